//! Asks the kernel for transparent huge pages, for the heap and for files on tmpfs.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Bytes of a huge page on x86-64.
pub(super) const SIZE: usize = 2 << 20;

/// Asks the kernel for huge pages at these addresses of this process, for pages that are not used
/// yet. Addresses that do not fill a huge page are left out. A kernel without huge pages goes on
/// with small ones.
pub(super) fn prefer(addresses: Range<usize>) {
    let start = addresses.start.next_multiple_of(SIZE);
    let Some(len) = (addresses.end / SIZE * SIZE).checked_sub(start) else { return };
    // SAFETY: the advice changes neither contents nor access. The kernel refuses it for addresses
    // that are not mapped.
    unsafe { libc::madvise(ptr::without_provenance_mut(start), len, libc::MADV_HUGEPAGE) };
}

/// Moves the first `len` bytes of a file on tmpfs to transparent huge pages (`MADV_COLLAPSE`, from
/// Linux 6.1 on). Bytes that do not fill one are left out.
///
/// Contents and length stay. A process that uses the mapped file meanwhile waits for the copy of
/// 2 MiB. Fails, possibly after a part of the file, if the kernel finds no free memory in one
/// piece, or if the file is not on tmpfs.
pub(crate) fn gather(file: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let len = len / SIZE * SIZE;
    if len == 0 {
        return Ok(());
    }
    let room = Room::new(len)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    // SAFETY: the range lies in `room`, which this function owns, and nothing refers to it.
    if let Err(error) = unsafe { mmap(room.aligned(), len, protection, flags, file, 0) } {
        // The failed call may have unmapped the range, and another thread may have it by now. So
        // the reserved addresses are given up. They take no memory.
        std::mem::forget(room);
        return Err(error.into());
    }
    // SAFETY: the advice changes neither contents nor access of the pages. They stay mapped as long
    // as `room` lives.
    match unsafe { libc::madvise(room.aligned(), len, libc::MADV_COLLAPSE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A range of addresses that stays mapped until the value is dropped.
struct Room {
    base: *mut libc::c_void,
    len: usize,
}

impl Room {
    /// Reserves addresses in which `len` bytes from a multiple of [`SIZE`] on have room.
    fn new(len: usize) -> io::Result<Self> {
        let len = len + SIZE;
        // SAFETY: the kernel chooses unused addresses, so no existing object is replaced.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE) }?;
        Ok(Self { base, len })
    }

    /// Returns the address of the first huge page.
    fn aligned(&self) -> *mut libc::c_void {
        self.base.map_addr(|address| address.next_multiple_of(SIZE))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: base and length are those that mmap returned, and the whole range is still this
        // value's. Nothing refers to it.
        let unmapped = unsafe { munmap(self.base, self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping failed: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::{AtomicU8, Ordering};

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn a_mapped_file_keeps_its_bytes_and_length() {
        let file = File::from(memfd_create("bytes", MemfdFlags::CLOEXEC).unwrap());
        let len = 3 * SIZE + 100;
        file.set_len(len as u64).unwrap();
        let places = [0, 4095, SIZE - 1, SIZE, 2 * SIZE + 8192, 3 * SIZE + 99];
        for (place, byte) in places.into_iter().zip(1..) {
            file.write_all_at(&[byte], place as u64).unwrap();
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses unused addresses.
        let other = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0) }.unwrap();
        // SAFETY: the mapping has these bytes and stays until the process ends. Whoever else uses
        // them does so by the file.
        let byte = |at: usize| unsafe { &*other.cast::<AtomicU8>().add(at) };
        byte(8).store(7, Ordering::Relaxed);
        moved_or_refused(gather(file.as_fd(), len));
        byte(16).store(8, Ordering::Relaxed);
        assert_eq!(file.metadata().unwrap().len(), len as u64);
        for (place, expected) in places.into_iter().zip(1..).chain([(8, 7), (16, 8)]) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, place as u64).unwrap();
            assert_eq!(byte, [expected], "byte {place}");
        }
    }

    /// A kernel that has huge pages for files on tmpfs may have no free memory for them now. Tests
    /// run on Linux 6.1 or later.
    fn moved_or_refused(outcome: io::Result<()>) {
        let Err(error) = outcome else { return };
        let setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
        let has_them = fs::read_to_string(setting).is_ok_and(|text| !text.contains("[deny]"));
        let is_short = matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN | libc::EBUSY));
        assert!(!has_them || is_short, "{error}");
    }

    #[test]
    fn a_file_shorter_than_a_huge_page_is_left_alone() {
        let file = File::from(memfd_create("bytes", MemfdFlags::CLOEXEC).unwrap());
        gather(file.as_fd(), SIZE - 1).unwrap();
    }
}
