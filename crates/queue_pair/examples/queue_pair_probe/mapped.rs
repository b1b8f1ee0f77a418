//! Memory that this program writes at will, while the host reads and writes it.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Bytes that are looked at as one piece.
pub(crate) const PAGE: usize = 4096;

/// A mapping, which stays until the program ends.
pub(crate) struct Mapped {
    base: NonNull<u8>,
    /// Bytes of the device. The mapping may be longer.
    len: usize,
    beyond: usize,
}

impl Mapped {
    /// Maps `len` bytes of a device, and tries to map `beyond` more.
    pub(crate) fn new(device: &str, len: usize, beyond: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(device)?;
        let map = |len: usize| {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            // SAFETY: the kernel chooses an unused address, and nothing refers to the new pages
            // except through this value.
            unsafe { mmap(std::ptr::null_mut(), len, protection, flags, file.as_fd(), 0) }
        };
        let (base, beyond) = match map(len + beyond) {
            Ok(base) => (base, beyond),
            Err(_) => (map(len)?, 0),
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::FAULT)?;
        Ok(Self { base, len, beyond })
    }

    /// Bytes of the device.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes behind the device that are in the mapping.
    pub(crate) fn beyond(&self) -> usize {
        self.beyond
    }

    /// The word at an offset in the device.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len, "no word of the device");
        // SAFETY: the word is inside the mapping, and aligned, since pages are. The program uses
        // the bytes only by atomics and by system calls.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Stores a word.
    pub(crate) fn store(&self, offset: usize, value: u32) {
        self.word(offset).store(value, Relaxed);
    }

    /// Reads a page by the kernel, through a pipe: a page that is not there is an error instead of
    /// a fault.
    pub(crate) fn page(&self, offset: usize, pipe: &mut Pipe) -> Option<[u8; PAGE]> {
        assert!(offset.is_multiple_of(PAGE) && offset + PAGE <= self.len + self.beyond);
        // SAFETY: the page is inside the mapping. The kernel reads it and copes with one that is
        // not there; another process may change the bytes meanwhile, which the kernel allows.
        let written = unsafe {
            let from = self.base.as_ptr().add(offset).cast_const();
            libc::write(pipe.writer.as_raw_fd(), from.cast(), PAGE)
        };
        let mut page = [0; PAGE];
        if usize::try_from(written) == Ok(PAGE) {
            return pipe.reader.read_exact(&mut page).ok().map(|()| page);
        }
        // A write that fails takes a place in the pipe nevertheless.
        if let Ok(next) = Pipe::new() {
            *pipe = next;
        }
        None
    }
}

/// A pipe with room for a page.
pub(crate) struct Pipe {
    reader: io::PipeReader,
    writer: io::PipeWriter,
}

impl Pipe {
    pub(crate) fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { reader, writer })
    }
}
