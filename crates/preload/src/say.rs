//! What the library tells, on the program's standard error: each complaint once, and with `TAUT_VMCI_LOG=1` every decision.
//!
//! A line is put together on the stack, since this may be the middle of anything.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Longest text; the rest is cut off.
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

/// Says one text, with the library's name before it.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let mut whole = Text { bytes: [0; LONGEST], len: 0 };
    let _ = writeln!(whole, "libtaut_vmci: {text}");
    let bytes = whole.bytes.get(..whole.len).unwrap_or_default();
    if let Ok(stderr) = crate::sys::at(2) {
        let _ = rustix::io::write(stderr, bytes);
    }
}

/// Says decisions from now on.
pub(crate) fn set_verbose() {
    VERBOSE.store(true, Relaxed);
}

/// Are decisions to be told?
pub(crate) fn is_verbose() -> bool {
    VERBOSE.load(Relaxed)
}

/// A complaint that is made once.
#[derive(Debug)]
pub(crate) struct Once(AtomicBool);

impl Once {
    /// Not made yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Makes it, if it is the first time.
    pub(crate) fn say(&self, text: fmt::Arguments<'_>) {
        if !self.0.swap(true, Relaxed) {
            say(text);
        }
    }
}

/// Complains once from this place in the code.
macro_rules! complain {
    ($($text:tt)*) => {{
        static ONCE: $crate::say::Once = $crate::say::Once::new();
        ONCE.say(format_args!($($text)*));
    }};
}

/// Tells a decision, if they are to be told.
macro_rules! tell {
    ($($text:tt)*) => {
        if $crate::say::is_verbose() {
            $crate::say::say(format_args!($($text)*));
        }
    };
}

pub(crate) use {complain, tell};
