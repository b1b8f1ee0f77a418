//! Walls between the processes of VMs and their host.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Bytes;

/// Walls between a VM's process and the host: a user without privileges, namespaces, Landlock, a
/// filter of system calls, and limits of what it uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Confinement {
    /// Number of the user and of the group that only this VM's process has.
    pub user: u32,
    /// Maximum memory of the process, if that is limited: the guest's, unless it is on huge pages,
    /// and what the program needs besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Maximum number of processes and threads, if that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Walls and limits that this host's kernel lacks, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}", self.user)?;
        if let Some(memory) = self.memory {
            write!(f, ", at most {memory} of memory")?;
        }
        if let Some(processes) = self.processes {
            write!(f, ", at most {processes} processes and threads")?;
        }
        if !self.missing.is_empty() {
            write!(f, ", without {}", self.missing.join(", "))?;
        }
        Ok(())
    }
}
