//! A spinner for operations of noticeable length; silent unless standard error is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// An operation in progress; dropping it removes its line.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Starts the spinner with a description of the operation.
    pub(crate) fn start(what: &str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(what.to_owned());
        bar.set_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("a fixed template"));
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
