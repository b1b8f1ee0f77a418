//! What is wrong when a step fails.

use std::error::Error;

use taut_launch::Step;

/// A step that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// The step.
    pub(crate) step: Step,
    /// What was tried, and its cause.
    pub(crate) error: String,
}

impl Failed {
    /// Describes a failure without a cause of its own.
    pub(crate) fn new(step: Step, error: impl Into<String>) -> Self {
        Self { step, error: error.into() }
    }
}

/// Turns results into those of a step.
pub(crate) trait Within<T> {
    /// Adds the step, and what was tried, to an error.
    fn within(self, step: Step, what: impl FnOnce() -> String) -> Result<T, Failed>;
}

impl<T, E: Error> Within<T> for Result<T, E> {
    fn within(self, step: Step, what: impl FnOnce() -> String) -> Result<T, Failed> {
        self.map_err(|error| Failed { step, error: format!("{}: {}", what(), chain(&error)) })
    }
}

/// Returns an error's text with those of its causes. Some libraries repeat the cause in the text.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
