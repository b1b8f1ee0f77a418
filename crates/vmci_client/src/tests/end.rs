//! One end of a connection, as a fabric sees it, and how bytes get from one end to the other.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use taut_queue_pair::{Consumer, End as RingEnd, Ends, Producer, Region};

/// Most bytes of one look in one direction.
const LOOK: usize = 256 << 10;
/// Most bytes of one packet.
const PACKET: usize = 16 << 10;

/// Bytes on the control connection of an end.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// From the guest.
    pub(super) bells: AtomicU64,
    /// To the guest.
    pub(super) signals: AtomicU64,
}

/// One end of the connection.
pub(super) struct End {
    pub(super) region: Region,
    /// The fabric's side of the stream's own socket, whose bytes stand for packets.
    pub(super) stream: UnixStream,
    /// The control connection, while it is open.
    pub(super) control: Option<UnixStream>,
    /// Ends of the rings, since the end was attached.
    pub(super) ends: Option<Ends>,
    pub(super) counts: Arc<Counts>,
    /// Bytes that were delivered to this end by packets.
    pub(super) by_packets: u64,
    /// Bytes that came by packets and are not delivered yet.
    pending: Vec<u8>,
    /// No more packets come from this end.
    pub(super) has_shut: bool,
    /// The guest has closed the stream's socket.
    pub(super) has_closed: bool,
    /// The other end was told that no more bytes come from this one.
    is_finished: bool,
}

impl End {
    pub(super) fn new(region: Region, stream: UnixStream, counts: Arc<Counts>) -> Self {
        stream.set_nonblocking(true).unwrap();
        Self {
            region,
            stream,
            control: None,
            ends: None,
            counts,
            by_packets: 0,
            pending: Vec::new(),
            has_shut: false,
            has_closed: false,
            is_finished: false,
        }
    }

    pub(super) fn signal(&self) {
        if let Some(control) = &self.control {
            // Before the program knows of it.
            self.counts.signals.fetch_add(1, Ordering::Relaxed);
            // Fails if the program has gone.
            let _ = send(control, &[7], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Takes all bells. When the control connection has ended, what is in IN is dropped.
    pub(super) fn take_bells(&mut self) {
        let Some(control) = &self.control else { return };
        let mut bells = [0; 64];
        loop {
            match recv(control, &mut bells, RecvFlags::DONTWAIT) {
                Ok((_, count)) if count > 0 => {
                    self.counts.bells.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(Errno::AGAIN) => return,
                _ => break,
            }
        }
        self.control = None;
    }

    /// Tells whether bytes to this end are of use to anybody.
    fn receives(&self) -> bool {
        !self.has_closed && (self.ends.is_none() || self.control.is_some())
    }

    /// Reads a packet, if none waits.
    fn take_packet(&mut self) {
        if self.has_closed {
            return;
        }
        let mut polled = [PollFd::new(&self.stream, PollFlags::empty())];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        let has_hung_up = polled[0].revents().contains(PollFlags::HUP);
        if self.pending.is_empty() && !self.has_shut {
            let mut packet = vec![0; PACKET];
            match recv(&self.stream, &mut packet[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) | Err(Errno::CONNRESET) => self.has_shut = true,
                Ok((_, count)) => self.pending.extend(&packet[..count]),
                Err(Errno::AGAIN) => {}
                Err(errno) => panic!("{errno}"),
            }
        }
        self.has_closed = has_hung_up && self.has_shut;
    }

    /// Delivers bytes to this end, and returns how many it took.
    fn put(&mut self, bytes: &[u8]) -> usize {
        if !self.receives() {
            return bytes.len();
        }
        if let Some(ends) = &mut self.ends {
            return ends.producer.write(bytes).unwrap();
        }
        match send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => {
                self.by_packets += count as u64;
                count
            }
            Err(Errno::AGAIN) => 0,
            // It closes just now.
            Err(_) => bytes.len(),
        }
    }

    /// Tells whether the ring to this end is so full that the fabric has to wait for room.
    pub(super) fn lacks_room(&self) -> bool {
        let half = |producer: &Producer| producer.room().unwrap() < producer.size() / 2;
        self.ends.as_ref().is_some_and(|ends| half(&ends.producer))
    }

    /// Announces or ends the fabric's waits.
    pub(super) fn set_waits(&mut self, waits: bool) {
        let lacks_room = self.lacks_room();
        let Some(ends) = &mut self.ends else { return };
        if waits {
            ends.consumer.wait();
            if lacks_room {
                ends.producer.wait();
            }
        } else {
            ends.consumer.stop_waiting();
            ends.producer.stop_waiting();
        }
    }

    /// Ends the connection for this end by a reset.
    pub(super) fn reset(&mut self) {
        if let Some(ends) = &mut self.ends {
            ends.producer.finish(RingEnd::Reset);
            self.signal();
        }
        let _ = shutdown(&self.stream, Shutdown::Both);
        (self.has_shut, self.has_closed, self.is_finished) = (true, true, true);
    }
}

/// Moves bytes from one end to the other: those of packets first. Returns how many.
pub(super) fn pass(from: &mut End, to: &mut End) -> usize {
    let mut moved = 0;
    from.take_packet();
    if !from.pending.is_empty() {
        let count = to.put(&from.pending);
        from.pending.drain(..count);
        moved += count;
    }
    if from.pending.is_empty()
        && let Some(ends) = &mut from.ends
    {
        moved += pass_ring(&mut ends.consumer, to);
        let free = ends.consumer.free().unwrap();
        // The guest waits until half of the ring is free.
        if ends.consumer.publish() && free >= ends.consumer.size() / 2 && ends.consumer.must_signal() {
            from.signal();
        }
    }
    if let Some(ends) = &mut to.ends
        && ends.producer.publish()
        && ends.producer.must_signal()
    {
        to.signal();
    }
    finish(from, to);
    moved
}

fn pass_ring(from: &mut Consumer, to: &mut End) -> usize {
    let receives = to.receives();
    if let Some(ends) = to.ends.as_mut().filter(|_| receives) {
        return ends.producer.write_from(from, LOOK).unwrap();
    }
    let mut moved = 0;
    let mut packet = vec![0; PACKET];
    while moved < LOOK {
        let count = from.peek(0, &mut packet).unwrap();
        let count = if count > 0 { to.put(&packet[..count]) } else { 0 };
        if count == 0 {
            break;
        }
        from.skip(count);
        moved += count;
    }
    moved
}

/// Tells the other end that no more bytes come, once all of them were delivered.
fn finish(from: &mut End, to: &mut End) {
    let mut is_over = from.has_shut || from.ends.is_some() && from.control.is_none();
    if let Some(ends) = &from.ends {
        let look = ends.consumer.look().unwrap();
        is_over = (is_over || look.end == RingEnd::Finished) && look.bytes == 0;
    }
    if !is_over || !from.pending.is_empty() {
        return;
    }
    if !from.is_finished {
        from.is_finished = true;
        if let Some(ends) = &mut to.ends {
            ends.producer.finish(RingEnd::Finished);
            if ends.producer.must_signal() {
                to.signal();
            }
        }
        let _ = shutdown(&to.stream, Shutdown::Write);
    }
    if from.has_closed && !to.has_closed {
        // As the kernel does when the peer has closed: nothing can be sent any more.
        let _ = shutdown(&to.stream, Shutdown::Both);
        to.has_shut = true;
        to.has_closed = true;
        to.signal();
    }
}
