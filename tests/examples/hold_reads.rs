//! Holds every process that reads a file, so that it can be looked at: `hold_reads FILE`.
//!
//! Prints `ready`, then `held PID` for each process. The processes go on when this program ends.

use std::error::Error;
use std::io::Write as _;

use nix::fcntl::AT_FDCWD;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args_os().nth(1).ok_or("usage: hold_reads FILE")?;
    let reads = Fanotify::init(InitFlags::FAN_CLASS_CONTENT, EventFFlags::O_RDONLY)?;
    reads.mark(MarkFlags::FAN_MARK_ADD, MaskFlags::FAN_ACCESS_PERM, AT_FDCWD, Some(&*file))?;
    let mut output = std::io::stdout();
    writeln!(output, "ready")?;
    // The kernel asks whether a read may go on. Without an answer the reader waits.
    loop {
        for event in reads.read_events()? {
            writeln!(output, "held {}", event.pid())?;
        }
        output.flush()?;
    }
}
