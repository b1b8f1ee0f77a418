//! Leaving a namespace for a new one (unshare(2)).
#![allow(unsafe_code, reason = "rustix has the call as an unsafe function only")]

use std::io;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves the calling thread into new namespaces. `namespaces` may not contain
/// [`UnshareFlags::FILES`].
///
/// nix has a safe function, which passes the flags as an `int`. The kernel reads 64 bits, and
/// refuses the call if the compiler left other bits in the upper half of the register.
pub(super) fn unshare(namespaces: UnshareFlags) -> io::Result<()> {
    if namespaces.contains(UnshareFlags::FILES) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the call is unsafe only with `FILES`, which would give this thread a table of
    // descriptors of its own. It was excluded above.
    Ok(unsafe { unshare_unsafe(namespaces) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_descriptors_is_not_left() {
        let error = unshare(UnshareFlags::FILES | UnshareFlags::NEWNET).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
