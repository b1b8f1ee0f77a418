//! Walls between the processes of VMs and their host.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Walls between a VM's process and the host: a user without privileges, namespaces, Landlock and a
/// filter of system calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Confinement {
    /// Number of the user and of the group that only this VM's process has.
    pub user: u32,
    /// Walls that this host's kernel lacks, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.user)?;
        if !self.missing.is_empty() {
            write!(f, ", without {}", self.missing.join(", "))?;
        }
        Ok(())
    }
}
