//! Errors for users: message with values, causes, and a hint.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of every HTTP answer that is not a success, and the error that the command line prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
pub struct ApiError {
    /// Class of the error; determines the HTTP status.
    pub kind: ErrorKind,
    /// One sentence with the values that matter.
    pub message: String,
    /// Chain of causes, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// Advice for the user.
    pub hint: String,
}

/// Class of an [`ApiError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The request or file is wrong (400).
    Invalid,
    /// The caller has shown no token that is valid (401).
    Unauthenticated,
    /// The caller may not do this (403).
    Forbidden,
    /// No resource has that name (404).
    NotFound,
    /// The resource exists already, or is in use (409).
    Conflict,
    /// The resource is no longer as the client has read it (412).
    Changed,
    /// The plan refused the request: missing resources or a rule (422).
    Refused,
    /// The caller has asked too often, or too much at a time (429).
    TooMany,
    /// The host lacks something: privileges, QEMU, space (503).
    Unavailable,
    /// A fault of taut (500).
    Internal,
}

impl ErrorKind {
    /// All classes.
    pub const ALL: [Self; 10] = [
        Self::Invalid,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::NotFound,
        Self::Conflict,
        Self::Changed,
        Self::Refused,
        Self::TooMany,
        Self::Unavailable,
        Self::Internal,
    ];

    /// Returns the code of this class, as documents and the guide have it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::Changed => "changed",
            Self::Refused => "refused",
            Self::TooMany => "too-many",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// Returns the place of the guide's section about this class.
    pub fn guide(self) -> String {
        crate::guide::section("refusal", self.code())
    }

    /// Returns the HTTP status of this class.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::Changed => 412,
            Self::Refused => 422,
            Self::TooMany => 429,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }
}

impl ApiError {
    /// Creates an error without causes.
    pub fn new(kind: ErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, message: message.into(), causes: Vec::new(), hint: hint.into() }
    }

    /// Adds `cause` and its chain of sources.
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
