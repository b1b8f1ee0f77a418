//! The handle of an attached end.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use taut_queue_pair::memory::Copying;
use taut_queue_pair::{Ends, Role};

use crate::control::{Transport, Vsock};
use crate::device;
use crate::granted::Granted;
use crate::link::Link;
use crate::options::Options;
use crate::reason::NotAttached;
use crate::receive::Receiver;
use crate::send::Sender;
use crate::time::Wait;
use crate::waiting::{Interest, Polled, Ready};

/// The program's end of a stream, attached to a channel of the VM's memory for queue pairs.
///
/// Reading and writing are independent, so that two threads may share a handle. The handle belongs
/// to the process that made it: after a fork, the child must not use it. Dropping it ends the use
/// of the channel; bytes that were written are still delivered. The connection itself ends when the
/// program's socket is closed as well.
#[derive(Debug)]
pub struct Attached {
    link: Link,
    receiver: Receiver,
    sender: Sender,
    channel: u32,
}

impl Attached {
    /// Attaches a stream of `AF_VSOCK` after connect or accept, before anything was read from it or
    /// written to it. From then on the program reads and writes by the handle only.
    pub fn attach(stream: &impl AsFd, options: &Options) -> Result<Self, NotAttached> {
        Self::attach_by(&Vsock, stream.as_fd(), options)
    }

    /// Attaches a stream by some way to the fabric.
    pub(crate) fn attach_by(
        transport: &impl Transport,
        stream: BorrowedFd<'_>,
        options: &Options,
    ) -> Result<Self, NotAttached> {
        transport.request(stream)?;
        // Before the fabric is asked: it would set a channel aside in vain.
        let region = device::region(options.device.as_deref())?;
        let stream_of_handle = stream.try_clone_to_owned()?;
        let Granted { control, channel, by_packets } =
            Granted::ask(transport, stream, &region, options.patience)?;
        let Ends { producer, consumer } = Ends::new(&channel, Role::Guest, Copying::Words);
        Ok(Self {
            link: Link::new(control, stream_of_handle),
            receiver: Receiver::new(consumer, by_packets, options.poll),
            sender: Sender::new(producer, options.poll),
            channel: channel.index(),
        })
    }

    /// Reads at least one byte; 0 means the end of the stream.
    ///
    /// Fails with `ConnectionReset` if the connection was reset or the fabric went away, and with
    /// `InvalidData` if the words in shared memory contradict the protocol, or if a word of this
    /// side is not as it was written. Fails with `WouldBlock`, `TimedOut` or `Interrupted` if
    /// `wait` has ended, or a signal of the operating system was handled.
    pub fn read_within(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        self.receiver.read(&self.link, buffer, wait, || self.check())
    }

    /// Reads what there is, without waiting.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_within(buffer, Wait::No)
    }

    /// Reads at least one byte, until a time.
    pub fn read_until(&self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        self.read_within(buffer, Wait::Until(deadline))
    }

    /// Writes at least one byte, unless there are none. The bytes are underway then, as those that
    /// a socket has taken.
    ///
    /// Fails with `BrokenPipe` after [`Self::shutdown_write`], or if the peer has closed the
    /// connection; no `SIGPIPE` is sent. The other errors are those of [`Self::read_within`].
    pub fn write_within(&self, bytes: &[u8], wait: Wait) -> io::Result<usize> {
        self.sender.write(&self.link, bytes, wait, || self.check())
    }

    /// Writes what there is room for, without waiting.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_within(bytes, Wait::No)
    }

    /// Writes at least one byte, until a time.
    pub fn write_until(&self, bytes: &[u8], deadline: Instant) -> io::Result<usize> {
        self.write_within(bytes, Wait::Until(deadline))
    }

    /// Says that no more bytes follow. The peer reads the end of the stream behind those that were
    /// written.
    pub fn shutdown_write(&self) -> io::Result<()> {
        self.sender.shut(&self.link)
    }

    /// Ends the use of the channel, as dropping the handle does.
    pub fn close(self) {
        drop(self);
    }

    /// Tells what would succeed, or fail, at once. No system call, unless bytes still come by
    /// packets.
    pub fn ready(&self) -> Ready {
        self.ready_among(Interest::BOTH)
    }

    fn ready_among(&self, interest: Interest) -> Ready {
        Ready {
            readable: interest.readable && self.receiver.is_ready(&self.link),
            writable: interest.writable && self.sender.is_ready(&self.link),
        }
    }

    /// Begins a wait of the program's own: with `poll`, `epoll` or the like on
    /// [`Self::descriptors`].
    ///
    /// If something of interest is ready, returns that, and the program must not wait. Otherwise
    /// the program waits for an event of the descriptors, and then calls [`Self::disarm`] with the
    /// same interest.
    ///
    /// One thread may wait for reading while another one waits for writing, or blocks in calls of
    /// the other direction. At most one thread may be between this call and [`Self::disarm`] for
    /// each direction. A wait may end with nothing ready, when a signal was for another thread.
    #[must_use = "if something is ready, no event may come"]
    pub fn arm(&self, interest: Interest) -> Ready {
        self.link.begin_own(interest);
        let ready = Ready {
            readable: interest.readable && self.receiver.arm(&self.link),
            writable: interest.writable && self.sender.arm(&self.link),
        };
        if ready.any() {
            self.withdraw(interest);
            self.link.cancel_own(interest);
        }
        ready
    }

    /// Ends a wait of the program's own, whether there was an event or not. Takes the signals that
    /// have come, wakes other threads that may have waited for them, and returns what is ready of
    /// the interest that [`Self::arm`] had.
    pub fn disarm(&self, interest: Interest) -> Ready {
        self.withdraw(interest);
        self.link.end_own(interest);
        // A fault makes both directions ready, and the next call returns it.
        let _ = self.check();
        self.ready_among(interest)
    }

    /// Returns an error if another program has overwritten words of this end. Called after each
    /// wait and after some calls that found nothing: the fabric ends a wait that overwritten words
    /// might make endless. Once the channel is lost, its words may be another connection's.
    fn check(&self) -> io::Result<()> {
        if self.link.is_lost() {
            return Ok(());
        }
        self.receiver.check(&self.link)?;
        self.sender.check(&self.link)
    }

    /// Has the fabric signal no longer, for these directions.
    fn withdraw(&self, interest: Interest) {
        if interest.readable {
            self.receiver.disarm(&self.link);
        }
        if interest.writable {
            self.sender.disarm(&self.link);
        }
    }

    /// Descriptors and events that the program waits for between [`Self::arm`] and
    /// [`Self::disarm`] with this interest. They may differ from one wait to the next.
    pub fn descriptors(&self, interest: Interest) -> [Polled<'_>; 2] {
        let stream = if interest.readable && self.receiver.by_packets() > 0 {
            Polled::IN
        } else if self.link.hung_up().is_some() {
            // Known already, so it would end every wait at once.
            Polled::NOTHING
        } else {
            Polled::RDHUP
        };
        [
            Polled { fd: self.link.polled_by(interest), events: Polled::IN },
            Polled { fd: self.link.stream(), events: stream },
        ]
    }

    /// Longest time that a wait of the program's own should take. There is a limit once the peer
    /// has ended its direction, since no event of a socket says that it has closed as well.
    pub fn longest_wait(&self) -> Option<Duration> {
        self.link.hung_up().map(|_| Link::AFTER_HANGUP)
    }

    /// Number of bytes that still come by packets, before those in the ring. They were underway
    /// when the end was attached; reading returns them first.
    pub fn by_packets(&self) -> u64 {
        self.receiver.by_packets()
    }

    /// Index of the channel.
    pub fn channel(&self) -> u32 {
        self.channel
    }
}

/// The control connection. A program that waits polls [`Attached::descriptors`] instead: signals
/// may stay unread here.
impl AsFd for Attached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.control()
    }
}

impl Read for &Attached {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_within(buffer, Wait::Forever)
    }
}

impl Write for &Attached {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_within(bytes, Wait::Forever)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Attached {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_within(buffer, Wait::Forever)
    }
}

impl Write for Attached {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_within(bytes, Wait::Forever)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
