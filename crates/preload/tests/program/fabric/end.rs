//! One end of a connection, as a fabric sees it, and how bytes get from one end to the other.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use taut_queue_pair::message::GIVE_UP;
use taut_queue_pair::{Consumer, End as RingEnd, Ends, Word};

/// Most bytes of one look in one direction.
const LOOK: usize = 256 << 10;
/// Most bytes of one packet.
const PACKET: usize = 16 << 10;

/// One end of the connection.
pub(super) struct End {
    /// The fabric's side of the stream's own socket, whose bytes stand for packets.
    stream: UnixStream,
    /// The control connection, while it is open.
    control: Option<UnixStream>,
    /// Ends of the rings, while the end is attached or its rings have bytes.
    ends: Option<Ends>,
    channel: u32,
    freed: Option<u32>,
    /// Bytes that were delivered to this end by packets.
    by_packets: u64,
    /// Bytes of packets from this end that wait.
    pending: VecDeque<u8>,
    /// A packet came from this end while it was attached: it has left its channel, although its
    /// control connection may seem to be open.
    has_left: bool,
    /// Bytes for this end that it had not read when it left its channel.
    unread: Option<Consumer>,
    /// No more packets come from this end.
    has_shut: bool,
    /// The program has closed the stream's socket.
    has_closed: bool,
    /// The other end was told by its ring that no more bytes come from this one.
    is_finished: bool,
    /// The other end was told so by its socket.
    is_told: bool,
    /// Times that the program has given up.
    given_up: usize,
    /// The fabric looks at the ring from this end only after a bell.
    sleeps: bool,
    /// A bell has come since the fabric found that ring empty, or the fabric never sleeps.
    is_awake: bool,
}

impl End {
    pub(super) fn new(stream: UnixStream, sleeps: bool) -> Self {
        stream.set_nonblocking(true).unwrap();
        Self {
            stream,
            control: None,
            ends: None,
            channel: 0,
            freed: None,
            by_packets: 0,
            pending: VecDeque::new(),
            has_left: false,
            unread: None,
            has_shut: false,
            has_closed: false,
            is_finished: false,
            is_told: false,
            given_up: 0,
            sleeps,
            is_awake: true,
        }
    }

    pub(super) fn is_attached(&self) -> bool {
        self.ends.is_some() || self.unread.is_some()
    }

    pub(super) fn by_packets(&self) -> u64 {
        self.by_packets
    }

    /// Attaches the end. Packets that have come go before the bytes of its ring.
    pub(super) fn attach(&mut self, control: UnixStream, ends: Ends, channel: u32) {
        while self.receive() {}
        (self.has_left, self.is_awake) = (false, true);
        (self.control, self.ends, self.channel) = (Some(control), Some(ends), channel);
    }

    /// Has the end of this direction told again.
    pub(super) fn tell_again(&mut self) {
        self.is_finished = false;
    }

    /// The channel that the end has.
    pub(super) fn channel(&self) -> Option<u32> {
        self.is_attached().then_some(self.channel)
    }

    /// The channel that nobody uses any more, once.
    pub(super) fn freed(&mut self) -> Option<u32> {
        self.freed.take()
    }

    pub(super) fn is_over(&self) -> bool {
        self.has_closed && self.pending.is_empty() && self.control.is_none()
    }

    fn signal(&self) {
        if let Some(control) = &self.control {
            // Fails if the program has gone.
            let _ = send(control, &[7], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Sends a signal without a reason. Before, overwrites a word of the program if asked to.
    pub(super) fn trouble(&self, overwrites: bool) {
        if let Some(ends) = self.ends.as_ref().filter(|_| overwrites) {
            ends.consumer.channel().store(Word::OutEnd, 1);
        }
        self.signal();
    }

    /// Number of times that the program has given up since the last call.
    pub(super) fn take_given_up(&mut self) -> usize {
        std::mem::take(&mut self.given_up)
    }

    /// Takes all bells. Returns true if the control connection has ended: the end leaves its
    /// channel.
    pub(super) fn take_bells(&mut self) -> bool {
        let Some(control) = &self.control else { return false };
        let mut bells = [0; 64];
        loop {
            match recv(control, &mut bells, RecvFlags::DONTWAIT) {
                Ok((_, count)) if count > 0 => {
                    self.is_awake = true;
                    self.given_up += usize::from(bells[..count].contains(&GIVE_UP));
                }
                Err(Errno::AGAIN) => return false,
                _ => break,
            }
        }
        self.control = None;
        if let Some(ends) = &self.ends {
            // What is in IN is sent by packets, from the program's position on.
            let channel = ends.producer.channel().clone();
            let direction = ends.producer.direction();
            self.unread = Some(
                Consumer::resume(channel, direction, taut_queue_pair::memory::Copying::Library).unwrap(),
            );
        }
        true
    }

    /// Announces a wait for bytes of the program, and sleeps until a bell if there are none.
    fn fall_asleep(&mut self) {
        if let Some(ends) = self.ends.as_mut().filter(|_| self.sleeps && self.is_awake) {
            ends.consumer.wait();
            self.is_awake = ends.consumer.available() != Ok(0);
        }
    }

    /// Sends what was in IN by packets, and lets the channel go when both rings are empty.
    fn settle(&mut self) -> usize {
        let mut moved = 0;
        let Some(unread) = &mut self.unread else { return 0 };
        let mut packet = vec![0; PACKET];
        loop {
            let count = unread.peek(0, &mut packet).unwrap();
            if count == 0 {
                break;
            }
            match send(&self.stream, &packet[..count], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    unread.skip(sent);
                    moved += sent;
                }
                Err(Errno::AGAIN) => return moved,
                // It has closed.
                Err(_) => unread.skip(count),
            }
        }
        if let Some(ends) = &self.ends
            && ends.consumer.available().unwrap() == 0
        {
            (self.unread, self.ends) = (None, None);
            self.freed = Some(self.channel);
        }
        moved
    }

    /// Reads a packet, if none waits.
    fn take_packet(&mut self) {
        if self.has_closed {
            return;
        }
        let mut polled = [PollFd::new(&self.stream, PollFlags::empty())];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        let has_hung_up = polled[0].revents().contains(PollFlags::HUP);
        if self.pending.is_empty() && self.receive() {
            self.has_left = self.ends.is_some();
        }
        self.has_closed = has_hung_up && self.has_shut;
    }

    /// Reads a packet. Returns false if there is none.
    fn receive(&mut self) -> bool {
        if self.has_shut {
            return false;
        }
        let mut packet = vec![0; PACKET];
        match recv(&self.stream, &mut packet[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(Errno::CONNRESET) => self.has_shut = true,
            Ok((_, count)) => {
                self.pending.extend(&packet[..count]);
                return true;
            }
            Err(Errno::AGAIN) => {}
            Err(errno) => panic!("{errno}"),
        }
        false
    }

    /// Tells whether the ring to this end has bytes that the program has not got.
    fn has_unread(&self) -> bool {
        match (&self.unread, &self.ends) {
            (Some(unread), _) => unread.available() != Ok(0),
            (None, Some(ends)) => ends.producer.used() != Ok(0),
            (None, None) => false,
        }
    }

    /// Delivers bytes to this end, and returns how many it took.
    fn put(&mut self, bytes: &[u8]) -> usize {
        if self.has_closed {
            return bytes.len();
        }
        if self.unread.is_some() {
            // What it had not read goes first.
            if self.has_unread() {
                return 0;
            }
        } else if let Some(ends) = &mut self.ends {
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
}

/// Moves bytes from one end to the other. Returns how many.
pub(super) fn pass(from: &mut End, to: &mut End) -> usize {
    let mut moved = to.settle();
    from.take_packet();
    let left = from.ends.is_some() && (from.control.is_none() || from.has_left);
    // Packets that waited before the attach go first, and packets after the leave go last.
    if !left {
        moved += pass_packets(from, to);
    }
    if (from.pending.is_empty() && from.is_awake || left)
        && let Some(mut ends) = from.ends.take()
    {
        moved += pass_ring(&mut ends.consumer, to);
        let free = ends.consumer.free().unwrap();
        if ends.consumer.publish() && free >= ends.consumer.size() / 2 && ends.consumer.must_signal() {
            from.signal();
        }
        from.ends = Some(ends);
        from.fall_asleep();
    }
    from.settle();
    if from.ends.is_none() || from.ends.as_ref().is_some_and(|ends| ends.consumer.available() == Ok(0)) {
        moved += pass_packets(from, to);
    }
    if let Some(ends) = to.ends.as_mut().filter(|_| to.unread.is_none())
        && ends.producer.publish()
        && ends.producer.must_signal()
    {
        to.signal();
    }
    finish(from, to);
    moved
}

fn pass_packets(from: &mut End, to: &mut End) -> usize {
    let count = to.put(from.pending.make_contiguous());
    from.pending.drain(..count);
    count
}

fn pass_ring(from: &mut Consumer, to: &mut End) -> usize {
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
    let mut is_over = from.has_shut;
    if let Some(mut ends) = from.ends.take() {
        let look = ends.consumer.look().unwrap();
        is_over = (is_over || look.end == RingEnd::Finished) && look.bytes == 0;
        // A thread of the program may wait for room although another one has ended the direction.
        if look.end == RingEnd::Finished && ends.consumer.must_signal() {
            from.signal();
        }
        from.ends = Some(ends);
    }
    if !is_over || !from.pending.is_empty() || to.unread.is_some() && to.has_unread() {
        return;
    }
    if !from.is_finished {
        from.is_finished = true;
        if let Some(ends) = to.ends.as_mut().filter(|_| to.unread.is_none()) {
            ends.producer.finish(RingEnd::Finished);
            if ends.producer.must_signal() {
                to.signal();
            }
        }
    }
    if from.has_closed && !to.has_closed {
        // As the kernel does when the peer has closed: nothing can be sent any more.
        let _ = shutdown(&to.stream, Shutdown::Read);
    }
    // A socket whose peer has ended takes no more bytes, and those in IN may come back by packets.
    if to.has_unread() {
        return;
    }
    if !from.is_told {
        from.is_told = true;
        let _ = shutdown(&to.stream, Shutdown::Write);
    }
    if from.has_closed && !to.has_closed {
        (to.has_shut, to.has_closed) = (true, true);
        to.signal();
    }
}

/// Sleeps until a packet or a bell comes, or for a time.
pub(super) fn sleep(ends: &[End; 2], time: Duration) {
    let mut polled = Vec::new();
    for end in ends {
        if let Some(control) = &end.control {
            polled.push(PollFd::new(control, PollFlags::IN));
        }
        if !end.has_shut && end.pending.is_empty() {
            polled.push(PollFd::new(&end.stream, PollFlags::IN));
        }
    }
    let _ = poll(&mut polled, Some(&Timespec::try_from(time).unwrap()));
}
