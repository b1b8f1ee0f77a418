//! The audit record: who asked for which change, and what came of it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::Name;
use crate::role::Role;

/// One request that changes something, or was refused because its caller lacks the role.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Sequence number. Changes and refused requests are counted apart.
    pub seq: u64,
    /// Wall clock at the request, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Sender of the request.
    pub caller: AuditCaller,
    /// HTTP method.
    pub method: String,
    /// Path of the resource.
    pub path: String,
    /// Outcome; absent while the request is worked on, and if the daemon was killed meanwhile.
    #[serde(default)]
    pub outcome: Option<AuditOutcome>,
}

/// Sender of a request. A process on this host is described as the kernel knows it: user, groups
/// and process number are those of the moment in which it connected; the program is that of the
/// moment in which the daemon accepted the connection. Of a caller over TCP, token and address are
/// known.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditCaller {
    /// Effective user ID; absent for a caller over TCP.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Effective group ID; absent for a caller over TCP.
    #[serde(default)]
    pub gid: Option<u32>,
    /// Name of the token that a caller over TCP has shown.
    #[serde(default)]
    pub token: Option<Name>,
    /// IP address of a caller over TCP.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// User ID with which the session began that the process belongs to (`loginuid`); absent if
    /// there was no login.
    #[serde(default)]
    pub loginuid: Option<u32>,
    /// Process ID; absent for a process of another PID namespace.
    #[serde(default)]
    pub pid: Option<u32>,
    /// Start of the process, in clock ticks since the host's boot. Absent, as the program is, if
    /// the process had ended or if the kernel cannot tell it from a later one with the same number
    /// (before Linux 6.5).
    #[serde(default)]
    pub start_time: Option<u64>,
    /// Program that the process runs.
    #[serde(default)]
    pub program: Option<String>,
    /// Role that the caller had; absent if it had none.
    #[serde(default)]
    pub role: Option<Role>,
}

/// The outcome of a request.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditOutcome {
    /// Wall clock at the answer, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// HTTP status of the answer.
    pub status: u16,
    /// Message of the error.
    #[serde(default)]
    pub error: Option<String>,
    /// Document that was written or deleted.
    #[serde(default)]
    pub document: Option<AuditedDocument>,
}

/// A document that a request wrote or deleted.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditedDocument {
    /// Kind and name, such as `vm/db1`.
    pub subject: String,
    /// Store revision of the write.
    pub revision: u64,
    /// SHA-256 of the document before, as JSON; absent for a new one.
    #[serde(default)]
    pub before: Option<String>,
    /// SHA-256 of the document after; absent for a deleted one.
    #[serde(default)]
    pub after: Option<String>,
}

/// Result of a check of the audit record's hash chain. Each record contains the SHA-256 of the one
/// before it, so a record that was changed, removed or inserted breaks the chain. Whoever may write
/// the files can also make a whole new chain: compare `hash` with one that was noted elsewhere.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditCheck {
    /// Number of records in the files. A change has two: its request and its outcome.
    pub records: u64,
    /// Sequence number of the oldest record.
    #[serde(default)]
    pub oldest: Option<u64>,
    /// Sequence number of the newest record.
    #[serde(default)]
    pub newest: Option<u64>,
    /// SHA-256 of the newest record.
    pub hash: String,
    /// First place at which the chain is broken.
    #[serde(default)]
    pub fault: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_left_out() {
        let caller = AuditCaller {
            uid: Some(1000),
            gid: Some(100),
            pid: Some(7),
            role: Some(Role::Define),
            ..AuditCaller::default()
        };
        let text = r#"{"uid":1000,"gid":100,"pid":7,"role":"define"}"#;
        assert_eq!(serde_json::to_string(&caller).unwrap(), text);
        assert_eq!(serde_json::from_str::<AuditCaller>(text).unwrap(), caller);
    }
}
