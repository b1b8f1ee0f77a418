//! Checks of what a front end brings: guest memory and event descriptors.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::fs::{SealFlags, fcntl_get_seals};
use taut_api::Bytes;
use taut_api::fabric::ForeignFd;
use taut_api::fabric::config::FrontEndRules;
use taut_api::fabric::session::MemoryRecord;

use crate::sys::descriptor::is_eventfd;
use crate::sys::epoll::set_nonblocking;
use crate::vhost_user::error::SessionError;

/// Memory beyond the guest's own that a front end may bring: firmware and memory of devices.
const SPARE: Bytes = Bytes::mib(64);

/// Checks guest memory before it is mapped: its size, since the fabric's address space serves all
/// guests, and its seals, since an access to a page that was cut off would end the fabric.
pub(super) fn check_memory(
    rules: &FrontEndRules,
    regions: &[MemoryRecord],
    files: &mut [ForeignFd],
) -> Result<(), SessionError> {
    let sizes = regions.iter().map(|region| region.size);
    let got = Bytes(sizes.fold(0, u64::saturating_add));
    if let Some(memory) = rules.memory
        && got.0 > memory.0.saturating_add(SPARE.0)
    {
        return Err(SessionError::TooMuchMemory { got, memory });
    }
    for (region, file) in regions.iter().zip(files) {
        if is_sealed(file) {
            file.admit();
        } else if !rules.trusted {
            return Err(SessionError::Unsealed(region.guest_addr));
        }
    }
    Ok(())
}

/// Tells whether nobody can shorten the file. Only memory files have seals.
fn is_sealed(file: &ForeignFd) -> bool {
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
}

/// Checks an event descriptor, and makes it non-blocking: a front end that fills it up must not
/// stop the thread that signals it.
pub(super) fn admit_event<E: From<ForeignFd>>(
    rules: &FrontEndRules,
    mut fd: ForeignFd,
) -> Result<Arc<E>, SessionError> {
    if is_eventfd(fd.as_fd()).map_err(SessionError::Event)? {
        fd.admit();
    } else if !rules.trusted {
        return Err(SessionError::NotAnEventfd);
    }
    set_nonblocking(&fd).map_err(SessionError::Event)?;
    Ok(Arc::new(fd.into()))
}
