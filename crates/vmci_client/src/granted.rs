//! A channel that the fabric has granted, for programs that use its rings by themselves.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use taut_queue_pair::{Channel, Region};

use crate::control::{self, Transport};
use crate::reason::NotAttached;

/// A channel for one end of a stream, and the control connection that owns it. The channel belongs
/// to the stream until all duplicates of the control connection are closed.
#[derive(Debug)]
pub struct Granted {
    /// The control connection: non-blocking, with close-on-exec.
    pub control: OwnedFd,
    /// The channel. The words of its rings are zero.
    pub channel: Channel,
    /// Number of bytes that come by packets, before those in the ring.
    pub by_packets: u64,
}

impl Granted {
    /// Asks the fabric for a channel, before anything was read from the stream or written to it.
    /// Does not allocate memory.
    pub fn ask(
        transport: &impl Transport,
        stream: BorrowedFd<'_>,
        region: &Region,
        patience: Duration,
    ) -> Result<Self, NotAttached> {
        let request = transport.request(stream)?;
        let (control, answer) = control::attach(transport, request, patience)?;
        let channels = region.geometry().channels();
        let no_channel = NotAttached::NoChannel { channel: answer.channel, channels };
        let channel = region.channel(answer.channel).ok_or(no_channel)?;
        Ok(Self { control, channel, by_packets: answer.by_packets })
    }
}
