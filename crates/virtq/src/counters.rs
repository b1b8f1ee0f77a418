//! Words that processes share through a file: counters that one process writes and any process
//! reads.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;

use crate::memory::{Mapping, MemoryError};

/// A file of 64-bit words in native byte order, mapped until dropped.
#[derive(Debug)]
pub struct SharedWords {
    mapping: Mapping,
}

impl SharedWords {
    /// Maps the first `count` words of a file. The file must be long enough.
    pub fn map(file: BorrowedFd<'_>, count: usize) -> Result<Self, MemoryError> {
        let size = count as u64 * 8;
        let failed = |source: rustix::io::Errno| MemoryError::Map { size, source: source.into() };
        let actual = rustix::fs::fstat(file).map_err(failed)?.st_size as u64;
        if actual < size || count == 0 {
            return Err(MemoryError::FileTooShort { guest_addr: 0, needed: size.max(8), actual });
        }
        Ok(Self { mapping: Mapping::shared(file, 0, count * 8).map_err(failed)? })
    }

    /// The words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping starts on a page, so it is aligned. It is a whole number of words
        // long, lives as long as the borrow, and is accessed only through atomics.
        unsafe { std::slice::from_raw_parts(self.mapping.base().as_ptr().cast(), self.mapping.len() / 8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_see_the_same_words() {
        let file = memfd_create("words", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 8 * 1024).unwrap();
        let one = SharedWords::map(file.as_fd(), 1024).unwrap();
        let two = SharedWords::map(file.as_fd(), 1000).unwrap();
        assert_eq!((one.words().len(), two.words().len()), (1024, 1000));
        one.words()[999].store(7, Ordering::Relaxed);
        assert_eq!(two.words()[999].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_short_file_is_refused() {
        let file = memfd_create("words", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 8 * 1024 - 1).unwrap();
        assert!(matches!(
            SharedWords::map(file.as_fd(), 1024),
            Err(MemoryError::FileTooShort { actual: 8191, .. })
        ));
        assert!(SharedWords::map(file.as_fd(), 0).is_err());
    }
}
