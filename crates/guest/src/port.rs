//! The guest's end of a virtio-serial port, on which the host comes and goes.
//!
//! Data from the host arrives in one queue, its coming and going in another, and the kernel handles
//! each at its own pace. When one host leaves and the next one connects at once, the next one's
//! call may have been read while the kernel still reports that no host is connected; it may even
//! report so a moment after the call was answered.
//!
//! A host therefore counts as gone only after [`PATIENCE`] without data from it. Until then writing
//! waits, and reading does not end. A reply that reaches the next host instead does no harm,
//! because it has an id that the next host did not choose.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

/// Interval of checks for a host: the kernel has no event for its connection.
const LOOK: Duration = Duration::from_millis(50);
/// Interval of checks while a reader waits for the host to come back.
const NEXT_LOOK: Duration = Duration::from_millis(2);
/// Time without a host after which it counts as gone.
const PATIENCE: Duration = Duration::from_secs(1);

/// The kernel's interface to a port. Only [`Device::poll`] blocks.
pub(crate) trait Device {
    /// Reads from the host. Returns [`io::ErrorKind::WouldBlock`] without data, and 0 bytes without
    /// a host.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes to the host. Returns [`io::ErrorKind::WouldBlock`] without room or without a host.
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Waits for `what`, at most for `longest`. Returns [`PollFlags::HUP`] at once without a host.
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

/// An open port. Reading ends when the host has gone; writing fails then instead of blocking.
pub(crate) struct Port<D = File> {
    device: D,
    patience: Duration,
    /// Time since when the kernel has reported the host's absence.
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

    /// Waits until the host is connected.
    pub(crate) fn wait_for_host(&self) -> io::Result<()> {
        while self.device.poll(PollFlags::OUT, Some(Duration::ZERO))?.contains(PollFlags::HUP) {
            sleep(LOOK);
        }
        self.is_here();
        Ok(())
    }

    /// Notes that the host is connected, or was a moment ago.
    fn is_here(&self) {
        *self.away.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Notes the host's absence. Returns whether it has gone; if not, waits for a moment.
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
                // Room or data can be waited for only while a host is connected.
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
