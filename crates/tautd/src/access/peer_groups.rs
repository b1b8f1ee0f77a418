//! Supplementary groups of the process at the other end of a Unix socket.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Largest number of groups that a process can have (`NGROUPS_MAX`).
const MOST: usize = 65_536;
/// Number of groups for which there is room at first.
const FIRST: usize = 32;

/// Returns the supplementary groups that the peer had when it connected (`SO_PEERGROUPS`).
pub(super) fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; FIRST];
    loop {
        let mut length = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the descriptor is open for as long as `socket` lives. `groups` is writable for
        // `length` bytes, of which the kernel writes at most that many, and any bytes are a valid
        // `u32`, which is `gid_t`. `length` is writable, too. Both outlive the call, which keeps
        // neither pointer.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let count = length as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // Then the kernel has set `length` to what it needs.
        let needs_room = error.raw_os_error() == Some(libc::ERANGE);
        if !needs_room || !(groups.len() + 1..=MOST).contains(&count) {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_peers_groups_are_this_process_s() {
        let (a, _b) = UnixStream::pair().unwrap();
        let mut own: Vec<u32> =
            rustix::process::getgroups().unwrap().into_iter().map(rustix::process::Gid::as_raw).collect();
        let mut peer = peer_groups(&a).unwrap();
        own.sort_unstable();
        peer.sort_unstable();
        assert_eq!(peer, own);
        assert!(peer_groups(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
