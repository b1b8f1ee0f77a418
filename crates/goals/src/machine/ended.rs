//! How a program ended, and what it wrote.

use std::time::Duration;

use super::{Doc, Text};
use crate::reason::{Context, Measured, NotMeasured};

/// How a program ended, and what it wrote.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The command line, for messages.
    pub command: String,
    /// Exit status, or `None` when a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: Text,
    /// Standard error.
    pub stderr: Text,
    /// Time that it took.
    pub took: Duration,
}

impl Ended {
    /// Returns true if it ended with status 0.
    pub fn is_success(&self) -> bool {
        self.status == Some(0)
    }

    /// Requires status 0.
    pub fn success(self) -> Measured<Self> {
        if self.is_success() {
            return Ok(self);
        }
        let how = self.status.map_or("by a signal".to_owned(), |status| format!("with status {status}"));
        let said = [&self.stderr, &self.stdout].map(|text| text.last_lines(3));
        let said = said.iter().find(|text| !text.is_empty()).map_or("", |text| text);
        Err(NotMeasured::because(format!("`{}` ended {how}\n{said}", self.command)))
    }

    /// Requires status 0 and returns the JSON document that it wrote.
    pub fn json(self) -> Measured<Doc> {
        let ended = self.success()?;
        ended.stdout.json().when(format!("the output of `{}`", ended.command))
    }
}
