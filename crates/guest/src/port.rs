//! The guest's end of a virtio-serial port, on which the host comes and goes.
//!
//! What the host sends comes through one queue, that it has come or gone through another, and the kernel works each off when it comes to
//! it. So when one host leaves and the next one comes at once, the next one's call may be here, and read, while the kernel still says
//! that nobody is there; and it may say so a moment after a call was answered. Therefore a host counts as gone only when the kernel has said so for
//! [`PATIENCE`]: until then writing waits, and reading does not end. A reply to the last host that the next one gets does no harm:
//! it has an id that the next one did not choose.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

/// How often an unconnected port is looked at: the kernel has no event for "the host has connected".
const LOOK: Duration = Duration::from_millis(50);
/// The same while somebody waits for the host to come back.
const NEXT_LOOK: Duration = Duration::from_millis(2);
/// How long the host may be away without being gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the kernel offers of a port. Nothing of it blocks but [`Device::poll`].
pub(crate) trait Device {
    /// What the host sent; [`io::ErrorKind::WouldBlock`] when that is nothing, and no bytes when the host is not there either.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// [`io::ErrorKind::WouldBlock`] when there is no room, or no host.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Waits for `what`, or for no longer than that; [`PollFlags::HUP`] is told at once while the host is not there.
    fn poll(&self, what: PollFlags, longest: Option<Duration>) -> io::Result<PollFlags>;
}

impl Device for File {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut file = self;
        Read::read(&mut file, buffer)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self;
        Write::write(&mut file, bytes)
    }

    fn poll(&self, what: PollFlags, longest: Option<Duration>) -> io::Result<PollFlags> {
        let longest = longest.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut events = [PollFd::new(self, what)];
        poll(&mut events, longest.as_ref())?;
        Ok(events[0].revents())
    }
}

/// An open port. Reading ends when the host has gone; writing then fails instead of blocking.
pub(crate) struct Port<D = File> {
    device: D,
    patience: Duration,
    /// Since when the kernel has been saying that the host is not there.
    away: Mutex<Option<Instant>>,
}

impl Port {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        Ok(Self::new(file, PATIENCE))
    }
}

impl<D: Device> Port<D> {
    fn new(device: D, patience: Duration) -> Self {
        Self { device, patience, away: Mutex::default() }
    }

    /// Returns once the host is connected.
    pub(crate) fn wait_for_host(&self) -> io::Result<()> {
        while self.device.poll(PollFlags::OUT, Some(Duration::ZERO))?.contains(PollFlags::HUP) {
            sleep(LOOK);
        }
        self.is_here();
        Ok(())
    }

    /// The host is there, or was until just now.
    fn is_here(&self) {
        *self.away.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The host is away: for so long that it has gone? If not, some time has passed.
    fn is_gone(&self) -> bool {
        let since =
            *self.away.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        let gone = since.elapsed() >= self.patience;
        if !gone {
            sleep(NEXT_LOOK);
        }
        gone
    }
}

impl<D: Device> Read for &Port<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.device.read(buffer) {
                // Only with a host there is something to wait for.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_here();
                    self.device.poll(PollFlags::IN, None)?;
                }
                Ok(0) if !buffer.is_empty() => {
                    if self.is_gone() {
                        return Ok(0);
                    }
                }
                done => {
                    self.is_here();
                    return done;
                }
            }
        }
    }
}

impl<D: Device> Write for &Port<D> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.device.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let away = self.device.poll(PollFlags::OUT, None)?.contains(PollFlags::HUP);
                    if away && self.is_gone() {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                }
                done => {
                    self.is_here();
                    return done;
                }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
