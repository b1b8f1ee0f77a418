//! A spinner for what takes longer than a blink. Silent when nobody watches.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Something under way; its line disappears when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Starts with what is being done.
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
