//! Errors as users meet them: what went wrong with which values, why, and what to do.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every API response that is not a success, and what the command line prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
pub struct ApiError {
    /// The class of error; decides the HTTP status.
    pub kind: ErrorKind,
    /// One sentence with the values that matter.
    pub message: String,
    /// The chain of causes, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// What to do about it.
    pub hint: String,
}

/// Class of an [`ApiError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The request or file is wrong (400).
    Invalid,
    /// Nothing has that name (404).
    NotFound,
    /// It exists already, is in use, or changed meanwhile (409).
    Conflict,
    /// The plan refused it: missing resources or a rule (422).
    Refused,
    /// The host lacks something: privileges, QEMU, space (503).
    Unavailable,
    /// A fault of taut itself (500).
    Internal,
}

impl ErrorKind {
    /// The HTTP status of this class.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::Refused => 422,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }
}

impl ApiError {
    /// An error without further causes.
    pub fn new(kind: ErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, message: message.into(), causes: Vec::new(), hint: hint.into() }
    }

    /// The same error with `cause` and everything behind it noted.
    #[must_use]
    pub fn because(mut self, cause: &(dyn std::error::Error + 'static)) -> Self {
        let mut next = Some(cause);
        while let Some(error) = next {
            self.causes.push(error.to_string());
            next = error.source();
        }
        self
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        for cause in &self.causes {
            write!(f, "\n  because: {cause}")?;
        }
        write!(f, "\nhint: {}", self.hint)
    }
}
