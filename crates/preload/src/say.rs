//! Messages of the library on the program's standard error: each complaint once, and with
//! `TAUT_VMCI_LOG=1` every decision.
//!
//! A message is formatted on the stack, because the library may run at any point of the program.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Longest message in bytes. The rest is cut off.
const LONGEST: usize = 1024;

static VERBOSE: AtomicBool = AtomicBool::new(false);

struct Text {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let Some(room) = self.bytes.get_mut(self.len..) else { return Ok(()) };
        for (to, from) in room.iter_mut().zip(more.bytes()) {
            *to = from;
            self.len += 1;
        }
        Ok(())
    }
}

/// Prints a message behind the name of the library.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let mut whole = Text { bytes: [0; LONGEST], len: 0 };
    let _ = writeln!(whole, "libtaut_vmci: {text}");
    let bytes = whole.bytes.get(..whole.len).unwrap_or_default();
    if let Ok(stderr) = crate::sys::at(2) {
        let _ = rustix::io::write(stderr, bytes);
    }
}

/// Enables the log of decisions.
pub(crate) fn set_verbose() {
    VERBOSE.store(true, Relaxed);
}

/// Tells whether decisions are logged.
pub(crate) fn is_verbose() -> bool {
    VERBOSE.load(Relaxed)
}

/// A complaint that is printed once.
#[derive(Debug)]
pub(crate) struct Once(AtomicBool);

impl Once {
    /// A complaint that was not printed yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Prints the complaint the first time.
    pub(crate) fn say(&self, text: fmt::Arguments<'_>) {
        if !self.0.swap(true, Relaxed) {
            say(text);
        }
    }
}

/// Prints a complaint once for each place in the code.
macro_rules! complain {
    ($($text:tt)*) => {{
        static ONCE: $crate::say::Once = $crate::say::Once::new();
        ONCE.say(format_args!($($text)*));
    }};
}

/// Logs a decision, if that is enabled.
macro_rules! tell {
    ($($text:tt)*) => {
        if $crate::say::is_verbose() {
            $crate::say::say(format_args!($($text)*));
        }
    };
}

pub(crate) use {complain, tell};
