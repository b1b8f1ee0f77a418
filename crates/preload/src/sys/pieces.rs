//! The bytes that a program passes to a write, and the room that it has for a read, in pieces.
#![allow(unsafe_code, reason = "bytes behind pointers of the program")]

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU8, Ordering};

use libc::iovec;

/// Most pieces of one write (`UIO_MAXIOV`).
const MOST: usize = 1024;

/// The bytes of a write.
#[derive(Clone, Copy)]
pub(crate) struct Pieces<'a> {
    all: &'a [iovec],
    len: usize,
}

impl Pieces<'_> {
    /// No bytes.
    pub(crate) const NONE: Self = Self { all: &[], len: 0 };

    /// The bytes that `count` structures describe; `None` if the kernel refuses them.
    ///
    /// # Safety
    /// `parts` points to `count` structures, each of which describes bytes that can be read, for as
    /// long as the result is used.
    pub(crate) unsafe fn new(parts: *const iovec, count: usize) -> Option<Self> {
        if count == 0 {
            // The structures are not looked at.
            return Some(Self { all: &[], len: 0 });
        }
        if parts.is_null() || count > MOST {
            return None;
        }
        // SAFETY: as the caller promises.
        let all = unsafe { std::slice::from_raw_parts(parts, count) };
        let len = all.iter().try_fold(0usize, |sum, part| {
            let known = part.iov_len == 0 || !part.iov_base.is_null();
            known.then(|| sum.checked_add(part.iov_len)).flatten()
        })?;
        Some(Self { all, len })
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Reads a byte of each page of the first `most` bytes. If the program cannot read one, it gets
    /// the signal here, where the library has no lock.
    pub(crate) fn touch(&self, most: usize) {
        /// Least size of a page.
        const PAGE: usize = 4096;
        let mut left = most;
        for part in self.all {
            let now = left.min(part.iov_len);
            for place in (0..now).step_by(PAGE).chain(now.checked_sub(1)) {
                // SAFETY: the piece has these bytes, as the caller of `new` promises.
                unsafe { part.iov_base.cast::<u8>().add(place).read_volatile() };
            }
            left -= now;
        }
    }

    /// The bytes behind the first `skip` ones that lie in one piece, at most `most` of them.
    pub(crate) fn part(&self, mut skip: usize, most: usize) -> Option<&[u8]> {
        for part in self.all {
            if skip < part.iov_len {
                // SAFETY: the piece has these bytes, as the caller of `new` promises.
                let start = unsafe { part.iov_base.cast::<u8>().add(skip) };
                // SAFETY: as above. A program that changes them meanwhile sends any of both values.
                return Some(unsafe { std::slice::from_raw_parts(start, most.min(part.iov_len - skip)) });
            }
            skip -= part.iov_len;
        }
        None
    }

    /// Copies bytes behind the first `skip` ones to a buffer. Returns their number.
    pub(crate) fn copy(&self, mut skip: usize, to: &mut [u8]) -> usize {
        let mut copied = 0;
        for part in self.all {
            if skip >= part.iov_len {
                skip -= part.iov_len;
                continue;
            }
            let room = to.get_mut(copied..).unwrap_or_default();
            let count = (part.iov_len - skip).min(room.len());
            if count == 0 {
                break;
            }
            // SAFETY: the piece has these bytes, as the caller of `new` promises. The target has
            // room for them, and is memory of the library that the program does not know.
            unsafe {
                std::ptr::copy_nonoverlapping(part.iov_base.cast::<u8>().add(skip), room.as_mut_ptr(), count);
            }
            (copied, skip) = (copied + count, 0);
        }
        copied
    }
}

/// The room of a read.
pub(crate) struct Room<'a>(Pieces<'a>);

impl Room<'_> {
    /// The room that `count` structures describe; `None` if the kernel refuses them.
    ///
    /// # Safety
    /// `parts` points to `count` structures, each of which describes memory that can be written,
    /// for as long as the result is used.
    pub(crate) unsafe fn new(parts: *const iovec, count: usize) -> Option<Self> {
        // SAFETY: as the caller promises. Nothing is read.
        unsafe { Pieces::new(parts, count) }.map(Self)
    }

    /// Number of bytes for which there is room.
    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    /// Touches each page of the first `most` bytes, without a change. If the program cannot write
    /// to one, it gets the signal here, where the library has no lock.
    pub(crate) fn touch(&self, most: usize) {
        /// Least size of a page.
        const PAGE: usize = 4096;
        let mut left = most;
        for part in self.0.all {
            let now = left.min(part.iov_len);
            for place in (0..now).step_by(PAGE).chain(now.checked_sub(1)) {
                // SAFETY: the piece has this byte, as the caller of `new` promises. Other threads
                // may use it meanwhile, and an atomic operation loses no change of theirs.
                let byte = unsafe { AtomicU8::from_ptr(part.iov_base.cast::<u8>().add(place)) };
                byte.fetch_or(0, Ordering::Relaxed);
            }
            left -= now;
        }
    }

    /// The room behind the first `skip` bytes that lies in one piece, at most `most` bytes.
    pub(crate) fn part(&mut self, mut skip: usize, most: usize) -> Option<&mut [MaybeUninit<u8>]> {
        for part in self.0.all {
            if skip < part.iov_len {
                let len = most.min(part.iov_len - skip);
                // SAFETY: the piece has this room, as the caller of `new` promises.
                let start = unsafe { part.iov_base.cast::<MaybeUninit<u8>>().add(skip) };
                // SAFETY: as above. The program does not use it during its own read.
                return Some(unsafe { std::slice::from_raw_parts_mut(start, len) });
            }
            skip -= part.iov_len;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_from_any_place() {
        let texts: [&[u8]; 4] = [b"abc", b"", b"defg", b"h"];
        let parts =
            texts.map(|text| iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() });
        // SAFETY: the texts are constants.
        let pieces = unsafe { Pieces::new(parts.as_ptr(), parts.len()) }.unwrap();
        assert_eq!(pieces.len(), 8);
        pieces.touch(usize::MAX);
        for skip in 0..10 {
            for room in 0..10 {
                let mut to = vec![b'.'; room];
                let count = pieces.copy(skip, &mut to);
                let expected = &b"abcdefgh"[skip.min(8)..(skip + room).clamp(skip.min(8), 8)];
                assert_eq!(&to[..count], expected, "{skip} {room}");
            }
        }
        let none = iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
        // SAFETY: the texts are constants, which are not written to.
        let mut room = unsafe { Room::new(parts.as_ptr(), parts.len()) }.unwrap();
        let lens = [(0, 9), (1, 2), (3, 9), (7, 9), (8, 9)].map(|(skip, most)| {
            let ours = room.part(skip, most).map(|part| part.len());
            assert_eq!(ours, pieces.part(skip, most).map(<[u8]>::len));
            ours
        });
        assert_eq!(lens, [Some(3), Some(2), Some(4), Some(1), None]);
        // SAFETY: refused before anything is read.
        assert!(unsafe { Pieces::new(&raw const none, 1) }.is_none());
        // SAFETY: there are no structures.
        assert_eq!(unsafe { Pieces::new(std::ptr::null(), 0) }.map(|pieces| pieces.len()), Some(0));
    }
}
