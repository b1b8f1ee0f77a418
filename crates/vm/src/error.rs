//! Errors about what a user wrote.

use taut_api::ApiError;
use taut_api::error::ErrorKind;

/// An error of kind [`ErrorKind::Invalid`].
pub(crate) fn invalid(message: impl Into<String>, hint: impl Into<String>) -> ApiError {
    ApiError::new(ErrorKind::Invalid, message, hint)
}
