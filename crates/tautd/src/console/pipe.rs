//! FIFOs that programs have as standard output and error.
//!
//! A program has its FIFO open for reading and writing, and without blocking. So a write neither
//! waits nor fails with `EPIPE`, whoever reads or dies. What does not fit is lost.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mknodat, open};
use rustix::io::Errno;

/// Maximum length of a log that [`drain`] appends to, and of what it reads, in bytes.
const MOST: u64 = 64 << 10;
/// The way in which everybody opens a FIFO.
const FLAGS: OFlags = OFlags::RDWR.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Makes a FIFO, in the place of another one.
pub(super) fn make(path: &Path) -> io::Result<OwnedFd> {
    let cannot = |error: io::Error| {
        io::Error::new(error.kind(), format!("the FIFO {} cannot be made: {error}", path.display()))
    };
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot(error)),
        _ => {}
    }
    let made = mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
    made.map_err(|error| cannot(error.into()))?;
    find(path).map_err(cannot)
}

/// Opens a FIFO that an earlier daemon made.
pub(super) fn find(path: &Path) -> io::Result<OwnedFd> {
    let pipe = open(path, FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
    match FileType::from_raw_mode(fstat(&pipe)?.st_mode) {
        FileType::Fifo => Ok(pipe),
        other => Err(io::Error::other(format!("it is a {other:?}"))),
    }
}

/// Opens a FIFO again, so that whoever has the descriptor shares its flags with nobody.
pub(super) fn again(pipe: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(open(format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd()), FLAGS, Mode::empty())?)
}

/// Appends to a log what is in a FIFO, while no console process does. A log that has grown stays as
/// it is.
pub(super) fn drain(pipe: &Path, log: &Path) -> io::Result<()> {
    let pipe = find(pipe)?;
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut log = File::options().append(true).create(true).mode(0o600).custom_flags(flags).open(log)?;
    if log.metadata()?.len() > MOST {
        return Ok(());
    }
    let mut buffer = [0; 4096];
    for _ in 0..MOST / buffer.len() as u64 {
        match rustix::io::read(&pipe, &mut buffer) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(n) => log.write_all(&buffer[..n])?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_never_waits_nor_fails_for_want_of_a_reader() {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().join("vm.pipe"), dir.path().join("vm.log"));
        let pipe = make(&path).unwrap();
        let program = again(&pipe).unwrap();
        drop(pipe);
        rustix::io::write(&program, b"alone\n").unwrap();
        let full = (0..1000).find_map(|_| rustix::io::write(&program, &[b'x'; 4096]).err());
        assert_eq!(full, Some(Errno::AGAIN));
        drain(&path, &log).unwrap();
        assert!(fs::read(&log).unwrap().starts_with(b"alone\nxxx"));
        rustix::io::write(&program, b"again\n").unwrap();
        let another = find(&path).unwrap();
        let mut read = [0; 6];
        while !read.ends_with(b"in\n") {
            assert!(rustix::io::read(&another, &mut read).unwrap() > 0);
        }
    }

    #[test]
    fn only_a_fifo_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vm.pipe");
        fs::write(&path, "a file").unwrap();
        assert!(find(&path).is_err());
        make(&path).unwrap();
        let error = make(&dir.path().join("missing/vm.pipe")).unwrap_err().to_string();
        assert!(error.contains("missing/vm.pipe cannot be made"), "{error}");
    }
}
