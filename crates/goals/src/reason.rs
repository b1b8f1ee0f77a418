//! Reasons why something was not measured.

use std::fmt::{self, Display};

/// Reason why something was not measured. It is no [`std::error::Error`] itself, so that `?` turns
/// any error into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotMeasured(String);

/// Result of a measurement, or of a step towards it.
pub type Measured<T> = Result<T, NotMeasured>;

impl NotMeasured {
    /// Makes a reason from a text. Line breaks become `; `, because a goal is one line.
    pub fn because(reason: impl Display) -> Self {
        let text = reason.to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        Self(lines.join("; "))
    }

    /// Returns the reason as one line.
    pub fn reason(&self) -> &str {
        &self.0
    }
}

impl Display for NotMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for NotMeasured {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        Self::because(text)
    }
}

/// Says what was being done when something failed.
pub trait Context<T> {
    /// Puts `doing` and a colon before the reason.
    fn when(self, doing: impl Display) -> Measured<T>;
}

impl<T, E: Into<NotMeasured>> Context<T> for Result<T, E> {
    fn when(self, doing: impl Display) -> Measured<T> {
        self.map_err(|error| NotMeasured::because(format!("{doing}: {}", error.into())))
    }
}

/// Requires that `condition` holds; otherwise, `reason` is why something was not measured.
pub fn require(condition: bool, reason: impl Display) -> Measured<()> {
    if condition { Ok(()) } else { Err(NotMeasured::because(reason)) }
}
