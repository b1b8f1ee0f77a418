//! Roles: what a caller of the API may do.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Role of a caller of the API. Each one includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything but the audit record, tokens and the frames of ports.
    View,
    /// Starts and stops VMs.
    Operate,
    /// Writes VMs, vSwitches and port groups.
    Define,
    /// Does everything: the host's settings, namespaces, sockets and frames of others, the daemon
    /// itself.
    Admin,
}

impl Role {
    /// All roles, each before those that include it.
    pub const ALL: [Self; 4] = [Self::View, Self::Operate, Self::Define, Self::Admin];

    /// Returns the name of the role, as in the roles file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Operate => "operate",
            Self::Define => "define",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_grow_and_are_written_as_in_the_roles_file() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(serde_json::to_value(role).unwrap(), role.as_str());
        }
    }
}
