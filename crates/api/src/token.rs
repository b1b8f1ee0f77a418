//! Tokens, which name callers over TCP, and where TCP is listened on.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::Name;
use crate::role::Role;

/// Longest time for which a token is valid, in seconds: 366 days.
pub const LONGEST_VALIDITY_S: u64 = 366 * 86_400;

/// Request for a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// Name, which the audit record has of each request with this token.
    pub name: Name,
    /// Role of callers that show it.
    pub role: Role,
    /// Seconds for which it is valid, at most 31622400 (366 days).
    pub valid_s: u64,
}

/// A token, without its secret.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenInfo {
    /// Name.
    pub name: Name,
    /// Role of callers that show it.
    pub role: Role,
    /// Wall clock of its creation, milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// Wall clock from which on it is no longer valid.
    pub expires_ms: u64,
    /// True if that time has passed.
    pub expired: bool,
    /// Wall clock of the last request with it that this daemon has seen.
    #[serde(default)]
    pub used_ms: Option<u64>,
}

/// A new token. No later answer has its secret.
#[skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// The token.
    #[serde(flatten)]
    pub token: TokenInfo,
    /// Text to show: `Authorization: Bearer SECRET`.
    pub secret: String,
    /// Place to show it at; absent if the daemon does not listen on TCP.
    #[serde(default)]
    pub remote: Option<RemoteInfo>,
}

/// Shows no secret, which a log could keep.
impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { token, secret: _, remote } = self;
        formatter
            .debug_struct("CreatedToken")
            .field("token", token)
            .field("remote", remote)
            .finish_non_exhaustive()
    }
}

/// Access over TCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemoteInfo {
    /// Address and port that the daemon listens on.
    #[schema(value_type = String)]
    pub address: SocketAddr,
    /// SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` prints it.
    pub fingerprint: String,
    /// True if the daemon has made the certificate itself, so that clients have to pin it.
    pub self_signed: bool,
}
