//! Calls that fail for want of descriptors or memory, and not for what they ask about.

#[cfg(test)]
pub(crate) mod rig;

use std::io;

use rustix::io::Errno;

/// Returns whether this process or the host lacks descriptors or memory, so that a failed call
/// tells nothing of the process that was asked for.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let number = Errno::from_io_error(error);
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// Returns the result of a call; `None` if it failed for a reason of the process that was asked
/// for, such as its end. Fails only for want of descriptors or memory.
pub(crate) fn unless_short<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if is_shortage(&error) => Err(error),
        result => Ok(result.ok()),
    }
}
