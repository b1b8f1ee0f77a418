//! The guest's end of a virtio-serial port, on which the host comes and goes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;

/// How often an unconnected port is looked at: the kernel has no event for "the host has connected".
const LOOK: Duration = Duration::from_millis(50);

/// An open port. Reading ends while the host is not connected; writing then fails instead of blocking.
pub(crate) struct Port(File);

impl Port {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).map(Self)
    }

    /// Returns once the host is connected.
    pub(crate) fn wait_for_host(&self) -> io::Result<()> {
        loop {
            let mut events = [PollFd::new(&self.0, PollFlags::OUT)];
            poll(&mut events, Some(&rustix::event::Timespec::default()))?;
            if !events[0].revents().contains(PollFlags::HUP) {
                return Ok(());
            }
            sleep(LOOK);
        }
    }

    /// Waits until the port is ready for `what`, or the host has gone.
    fn wait(&self, what: PollFlags) -> io::Result<PollFlags> {
        let mut events = [PollFd::new(&self.0, what)];
        poll(&mut events, None)?;
        Ok(events[0].revents())
    }
}

impl Read for &Port {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.0).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(PollFlags::IN)?,
                done => return done,
            };
        }
    }
}

impl Write for &Port {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match (&self.0).write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.wait(PollFlags::OUT)?.contains(PollFlags::HUP) {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
