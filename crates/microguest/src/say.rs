//! Error output that cannot end the process.

use std::fmt;
use std::io::{Write as _, stderr};

/// Writes a line to standard error. That may be a FIFO that is full: then the line is lost, where
/// `eprintln!` would panic.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "taut-micro: {line}");
}
