//! Reads parts of an image, within a budget.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, SeekFrom};

/// Most bytes that one inspection reads: 2 MiB.
pub const MAX_READ: u64 = 2 << 20;

/// Bytes that can be read at any offset.
pub trait ReadAt {
    /// Returns the number of bytes.
    ///
    /// # Errors
    /// Fails if the number cannot be found out.
    fn size(&self) -> io::Result<u64>;

    /// Fills the buffer from an offset.
    ///
    /// # Errors
    /// Fails if the bytes cannot be read, or if there are fewer.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for &[u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        self.as_slice().size()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_exact_at(buf, offset)
    }
}

/// A regular file or a block device. Only `fstat`, `lseek` (for a device) and `pread` are used.
impl ReadAt for BorrowedFd<'_> {
    fn size(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstat(self)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                u64::try_from(stat.st_size).map_err(|_| io::Error::other("its size is negative"))
            }
            // `fstat` gives no size of a device.
            FileType::BlockDevice => Ok(rustix::fs::seek(self, SeekFrom::End(0))?),
            other => Err(io::Error::other(format!("{other:?} is neither a file nor a block device"))),
        }
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(self, &mut buf[done..], offset.saturating_add(done as u64)) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        self.as_fd().size()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_fd().read_exact_at(buf, offset)
    }
}

/// Why a part of an image could not be read. Errors of the system are kept as text, so that
/// refusals can be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The size is unknown.
    #[error("its size is unknown: {error}")]
    Size {
        /// The system's error.
        error: String,
    },
    /// The image ends before.
    #[error("it has {size} bytes, and bytes {offset} to {} are needed", offset.saturating_add(*len))]
    PastEnd {
        /// First byte that was asked for.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Size of the image.
        size: u64,
    },
    /// The image asks for more reading than [`MAX_READ`].
    #[error("it needs {len} bytes read at {offset}, and {left} of {MAX_READ} are left")]
    Budget {
        /// First byte that was asked for.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Bytes that may still be read.
        left: u64,
    },
    /// The system failed.
    #[error("{len} bytes at {offset}: {error}")]
    System {
        /// First byte that was asked for.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// The system's error.
        error: String,
    },
}

/// An image from which at most [`MAX_READ`] bytes are read. Its size is determined once.
pub(crate) struct Bounded<'a> {
    image: &'a dyn ReadAt,
    size: u64,
    left: Cell<u64>,
}

impl<'a> Bounded<'a> {
    pub(crate) fn new(image: &'a dyn ReadAt) -> Result<Self, ReadError> {
        let size = image.size().map_err(|error| ReadError::Size { error: error.to_string() })?;
        Ok(Self { image, size, left: Cell::new(MAX_READ) })
    }

    /// Size of the file in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Reads `N` bytes.
    pub(crate) fn array<const N: usize>(&self, offset: u64) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.admit(offset, N as u64)?;
        self.fill(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Reads `len` bytes. Nothing is allocated if they are not there or exceed the budget.
    pub(crate) fn vec(&self, offset: u64, len: u64) -> Result<Vec<u8>, ReadError> {
        self.admit(offset, len)?;
        // The budget fits into `usize`.
        let mut bytes = vec![0; len as usize];
        self.fill(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Checks a read against the size and the budget, and charges it.
    fn admit(&self, offset: u64, len: u64) -> Result<(), ReadError> {
        let left = self.left.get();
        let Some(after) = left.checked_sub(len) else {
            return Err(ReadError::Budget { offset, len, left });
        };
        if offset.checked_add(len).is_none_or(|end| end > self.size) {
            return Err(ReadError::PastEnd { offset, len, size: self.size });
        }
        self.left.set(after);
        Ok(())
    }

    fn fill(&self, bytes: &mut [u8], offset: u64) -> Result<(), ReadError> {
        self.image.read_exact_at(bytes, offset).map_err(|error| ReadError::System {
            offset,
            len: bytes.len() as u64,
            error: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn bytes_and_files_are_read_alike() {
        let bytes: Vec<u8> = (0..200).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        for image in [&bytes as &dyn ReadAt, &bytes.as_slice(), &file] {
            let image = Bounded::new(image).unwrap();
            assert_eq!(image.size(), 200);
            assert_eq!(image.array(198), Ok([198, 199]));
            assert_eq!(image.vec(7, 3), Ok(vec![7, 8, 9]));
            assert_eq!(image.vec(199, 2), Err(ReadError::PastEnd { offset: 199, len: 2, size: 200 }));
            let far = ReadError::PastEnd { offset: u64::MAX, len: 2, size: 200 };
            assert_eq!(image.array::<2>(u64::MAX), Err(far));
        }
    }

    #[test]
    fn reading_ends_with_the_budget() {
        let bytes = vec![0; 3 << 20];
        let image = Bounded::new(&bytes).unwrap();
        assert!(image.vec(0, MAX_READ - 1).is_ok());
        assert_eq!(image.array::<2>(0), Err(ReadError::Budget { offset: 0, len: 2, left: 1 }));
        assert!(image.array::<1>(0).is_ok());
        let huge = ReadError::Budget { offset: 0, len: u64::MAX, left: 0 };
        assert_eq!(image.vec(0, u64::MAX), Err(huge));
    }

    #[test]
    fn a_file_that_shrinks_is_an_error() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let image = Bounded::new(&file).unwrap();
        file.set_len(10).unwrap();
        assert!(matches!(image.vec(0, 20), Err(ReadError::System { offset: 0, len: 20, .. })));
    }

    #[test]
    fn only_files_and_block_devices_have_a_size() {
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let error = socket.as_fd().size().unwrap_err().to_string();
        assert_eq!(error, "Socket is neither a file nor a block device");
        assert!(File::open("/dev/null").unwrap().size().is_err());
        assert!(File::open("/").unwrap().size().is_err());
    }
}
