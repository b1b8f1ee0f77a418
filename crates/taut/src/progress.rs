//! The sign that an operation of noticeable length is in progress.
//!
//! On a terminal, a spinner on standard error. A wait that may end without success also writes
//! lines to standard error, on a terminal or not.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Time after which the first line of a wait is written.
const FIRST_REPORT: Duration = Duration::from_secs(5);
/// Time between two further lines.
const NEXT_REPORT: Duration = Duration::from_secs(30);

/// An operation in progress; dropping it removes its spinner and ends its lines.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// The other end of the thread that writes lines; dropping it ends the thread.
    reports: Option<Sender<()>>,
}

impl Progress {
    /// Starts the spinner with a description of the operation.
    pub(crate) fn start(what: &str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(what.to_owned());
        bar.set_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})").expect("a fixed template"));
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar, reports: None }
    }

    /// Shows another description of the operation.
    pub(crate) fn show(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Starts the spinner for a wait of at most `patience`. Unless it ends soon, lines tell how
    /// much longer it may take; the first one ends in `advice`.
    pub(crate) fn with_reports(what: &str, patience: Duration, advice: String) -> Self {
        let mut progress = Self::start(what);
        let (end, ended) = channel();
        let (bar, what, begin) = (progress.bar.clone(), what.to_owned(), Instant::now());
        thread::spawn(move || {
            let mut advice = Some(advice);
            let mut pause = FIRST_REPORT;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let line = report(&what, patience.saturating_sub(begin.elapsed()), advice.take());
                bar.suspend(|| eprintln!("{line}"));
                pause = NEXT_REPORT;
            }
        });
        progress.reports = Some(end);
        progress
    }
}

fn report(what: &str, left: Duration, advice: Option<String>) -> String {
    let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
    format!("{what}, for at most {} s more{advice}", left.as_secs())
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.reports = None;
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_how_much_longer_the_wait_may_take() {
        let left = Duration::from_secs(175);
        assert_eq!(
            report("waiting for the agent in a", left, Some("try this".into())),
            "waiting for the agent in a, for at most 175 s more; try this"
        );
        assert_eq!(report("waiting", left, None), "waiting, for at most 175 s more");
    }
}
