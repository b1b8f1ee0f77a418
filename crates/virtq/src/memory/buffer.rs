//! Bulk copies from and to guest memory that may be scattered over several spans.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{Ordering, compiler_fence};

use super::spans::Span;

/// Number of parts that one `writev` takes without allocating.
const IOVECS: usize = 64;

/// A cursor over bytes in guest memory that are scattered over spans. Reads and writes move it
/// forward.
///
/// Invariant: `head` and `rest` lie in memory that is mapped for as long as the borrow lasts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer<'m> {
    head: Span,
    rest: &'m [Span],
}

impl<'m> Buffer<'m> {
    /// The bytes of `head`, then those of `rest`.
    #[inline]
    pub(super) fn new(head: Span, rest: &'m [Span]) -> Self {
        Self { head, rest }
    }
}

impl Buffer<'_> {
    /// A buffer without bytes.
    #[inline]
    pub(crate) fn empty() -> Self {
        Self { head: Span::EMPTY, rest: &[] }
    }

    /// As [`Self::read`], fast when the bytes lie in one piece.
    #[inline]
    pub(crate) fn read_array<const N: usize>(&mut self, out: &mut [u8; N]) {
        if self.head.len < N {
            self.read(out);
            return;
        }
        // SAFETY: N mapped bytes; see `read`.
        unsafe { std::ptr::copy(self.head.base.as_ptr(), out.as_mut_ptr(), N) };
        compiler_fence(Ordering::SeqCst);
        self.advance(N);
    }

    /// As [`Self::write`], fast when the bytes fit in one piece.
    #[inline]
    pub(crate) fn write_array<const N: usize>(&mut self, bytes: &[u8; N]) {
        if self.head.len < N {
            self.write(bytes);
            return;
        }
        // SAFETY: N mapped bytes; see `write`.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.head.base.as_ptr(), N) };
        self.advance(N);
    }

    /// Moves on within the current span, which has at least `len` bytes left.
    #[inline]
    fn advance(&mut self, len: usize) {
        assert!(len <= self.head.len);
        // SAFETY: not beyond the span's end.
        self.head.base = unsafe { self.head.base.add(len) };
        self.head.len -= len;
    }

    /// The next piece, of at least one and at most `most` bytes; `None` at the end. Moves the
    /// cursor behind the piece.
    #[inline]
    fn take(&mut self, most: usize) -> Option<Span> {
        while self.head.len == 0 {
            let (head, rest) = self.rest.split_first()?;
            (self.head, self.rest) = (*head, rest);
        }
        let piece = Span { base: self.head.base, len: most.min(self.head.len) };
        self.advance(piece.len);
        Some(piece)
    }

    /// Copies bytes out until `out` is full or the buffer ends. Returns how many. The copy is
    /// private: the compiler must not read guest memory again instead.
    #[inline]
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len() {
            let Some(piece) = self.take(out.len() - done) else { break };
            // SAFETY: the piece is mapped and `out` has at least piece.len bytes from `done` on. A
            // guest that writes at the same time changes only which bytes arrive.
            unsafe { std::ptr::copy(piece.base.as_ptr(), out.as_mut_ptr().add(done), piece.len) };
            done += piece.len;
        }
        compiler_fence(Ordering::SeqCst);
        done
    }

    /// Copies bytes in until all are written or the buffer ends. Returns how many.
    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let Some(piece) = self.take(bytes.len() - done) else { break };
            // SAFETY: the piece is mapped, `bytes` has at least piece.len bytes from `done` on.
            unsafe { std::ptr::copy(bytes.as_ptr().add(done), piece.base.as_ptr(), piece.len) };
            done += piece.len;
        }
        done
    }

    /// Copies up to `len` bytes from another buffer, as far as both buffers reach. Returns how
    /// many.
    #[inline]
    pub(crate) fn write_from(&mut self, from: &mut Buffer<'_>, len: usize) -> usize {
        let mut done = 0;
        while done < len {
            let Some(source) = from.take(len - done) else { break };
            let mut copied = 0;
            while copied < source.len {
                let Some(piece) = self.take(source.len - copied) else { return done + copied };
                // SAFETY: both pieces are mapped and have piece.len bytes. ptr::copy allows
                // overlap.
                unsafe { std::ptr::copy(source.base.as_ptr().add(copied), piece.base.as_ptr(), piece.len) };
                copied += piece.len;
            }
            done += source.len;
        }
        done
    }

    /// Moves the cursor forward by `len` bytes.
    #[inline]
    pub(crate) fn skip(&mut self, len: usize) {
        let mut left = len;
        while left > 0 {
            let Some(piece) = self.take(left) else { break };
            left -= piece.len;
        }
    }

    /// The pieces that are left, each of at least one byte.
    #[inline]
    pub(super) fn pieces(mut self) -> impl Iterator<Item = Span> {
        std::iter::from_fn(move || self.take(usize::MAX))
    }

    /// Writes `prefix`, then up to `len` bytes of the buffer, to a file descriptor by one `writev`.
    /// Returns the number of bytes that the kernel took.
    pub(crate) fn write_to(
        mut self,
        fd: BorrowedFd<'_>,
        prefix: [&[u8]; 2],
        len: usize,
    ) -> io::Result<usize> {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut parts = [none; IOVECS];
        let mut count = 0;
        for bytes in prefix {
            parts[count] = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            count += 1;
        }
        let mut left = len;
        let mut gathered = Vec::new();
        while left > 0
            && let Some(piece) = self.take(left)
        {
            if count == IOVECS - 1 {
                // Far more parts than any driver uses. The rest is gathered into one part.
                gathered.resize(left.min(piece.len + self.remaining()), 0);
                let mut rest = Buffer { head: piece, rest: self.rest };
                rest.read(&mut gathered);
                parts[count] =
                    libc::iovec { iov_base: gathered.as_mut_ptr().cast(), iov_len: gathered.len() };
                count += 1;
                break;
            }
            parts[count] = libc::iovec { iov_base: piece.base.as_ptr().cast(), iov_len: piece.len };
            count += 1;
            left -= piece.len;
        }
        // SAFETY: the first `count` entries describe live slices of this function or mapped guest
        // memory. writev only reads from them.
        let written = unsafe { libc::writev(fd.as_raw_fd(), parts.as_ptr(), i32::from(count as u8)) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    fn remaining(&self) -> usize {
        self.head.len + self.rest.iter().map(|span| span.len).sum::<usize>()
    }
}
