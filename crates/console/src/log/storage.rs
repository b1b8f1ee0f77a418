//! The file operations of a log.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A file that is read and written at given places.
pub trait Storage {
    /// Returns the length in bytes.
    ///
    /// # Errors
    /// When the file system refuses.
    fn length(&self) -> io::Result<u64>;

    /// Reads bytes at a place, and returns how many. 0 is the end of the file.
    ///
    /// # Errors
    /// When the file system refuses.
    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize>;

    /// Writes bytes at a place, and returns how many.
    ///
    /// # Errors
    /// When the file system refuses, for example because it is full.
    fn write_at(&self, bytes: &[u8], place: u64) -> io::Result<usize>;

    /// Cuts off what is behind `length`.
    ///
    /// # Errors
    /// When the file system refuses.
    fn truncate(&self, length: u64) -> io::Result<()>;
}

impl Storage for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        loop {
            match FileExt::read_at(self, buffer, place) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn write_at(&self, bytes: &[u8], place: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, place)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}
