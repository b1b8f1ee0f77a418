//! Errors of a document that is refused.

use taut_api::ApiError;
use taut_api::error::ErrorKind;

/// The document is wrong in itself.
pub(super) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Invalid, message, hint)
}

/// The document conflicts with others, or with this host.
pub(super) fn conflict(message: impl Into<String>, hint: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Conflict, message, hint)
}
