//! Promises: the part of a receiver's credit that the sender is told of.
//!
//! A receiver can announce a buffer of 4 GiB and take nothing. Its peers' packets would then fill
//! the peers' rings, and stop the peers' other connections. So a sender is promised only a little
//! more than its receiver was lately seen to take. This is allowed: to a driver, the device is the
//! peer, and a device may announce any buffer that is really there (virtio 1.2, 5.10.6.3).
//!
//! Rules that Linux needs:
//! - The *edge*, the count of bytes up to which a sender may send, never goes back: Linux before
//!   6.19 would take the difference for a very large credit. If a receiver takes credit back, the
//!   sender's bytes wait in the sender's ring.
//! - The edge is told by the size of the buffer (`buf_alloc`), not by the count of bytes taken
//!   (`fwd_cnt`): Linux from 6.19 on compares the latter with its own buffer.
//! - Linux never asks for credit, so news of the edge must be sent.
//! - Linux refuses a record that is longer than the peer's buffer, so a promise to a sender of
//!   records has room for [`RECORD`] bytes if the receiver has.

use super::credit::{Credit, Window};
use super::socket_type::SocketType;

/// Bytes promised in advance on a new connection. A message of 64 KiB takes three round trips then,
/// and 256 connections that rest use up [`PLENTY`].
const FIRST_PACE: u32 = 16 << 10;
/// Most bytes promised in advance. More than this does not make a stream faster, since the bytes
/// between sender and receiver then no longer fit into a CPU's second-level cache.
const FASTEST_PACE: u32 = 1 << 20;
/// Bytes promised in advance whatever the receiver's other connections were promised.
const LEAST: u32 = 4 << 10;
/// While all streams to one receiver are promised fewer bytes than these, one stream may be
/// promised all of the rest.
const PLENTY: u64 = 4 << 20;
/// Most bytes that streams to one receiver are promised in advance, apart from [`LEAST`] for each
/// of them.
const MAX_PLEDGED: u64 = 12 << 20;
/// A stream is promised one of this many parts of what is left of [`MAX_PLEDGED`].
const PARTS: u64 = 64;
/// Most bytes of such a part. A message of this length takes one round trip.
const FULL_PART: u64 = 64 << 10;
/// Length of records that a sender of records can always send, if its receiver has a buffer for
/// them.
const RECORD: u32 = 1 << 20;

/// Bytes that the senders to one receiver may send and that it has not been handed yet. Each
/// direction of a connection counts as a stream or, with sockets of records, as a sender of
/// records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pledged {
    /// Bytes of streams.
    pub(crate) streams: u64,
    /// Bytes of senders of records.
    pub(crate) records: u64,
}

impl Pledged {
    /// Most bytes that one connection may be promised in advance.
    ///
    /// While streams are promised less than [`PLENTY`], one gets all that is left of it: a few
    /// streams get much, and many streams that are used get equal parts. A promise cannot be taken
    /// back, so streams that rest can have used all of it up. Then one gets a part of what is left
    /// of [`MAX_PLEDGED`].
    fn most(self) -> u32 {
        let left = PLENTY.saturating_sub(self.streams);
        let part = MAX_PLEDGED.saturating_sub(self.streams) / PARTS;
        left.max(part.min(FULL_PART)).max(LEAST.into()) as u32
    }

    /// Tells whether so much was promised for the receiver that records are no longer copied out of
    /// rings for it.
    pub(crate) fn is_too_much(self) -> bool {
        self.streams + self.records > MAX_PLEDGED
    }

    /// Adds the promise of a sender.
    pub(crate) fn add(&mut self, bytes: u32, socket_type: SocketType) {
        *self.sum(socket_type) += u64::from(bytes);
    }

    /// Forgets the promise of a sender that is no more, or of bytes that were handed over.
    pub(crate) fn remove(&mut self, bytes: u32, socket_type: SocketType) {
        let sum = self.sum(socket_type);
        *sum = sum.saturating_sub(bytes.into());
    }

    fn sum(&mut self, socket_type: SocketType) -> &mut u64 {
        match socket_type {
            SocketType::Stream => &mut self.streams,
            SocketType::SeqPacket => &mut self.records,
        }
    }
}

/// What the sender of one flow may send, as far as this fabric will have told it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    /// The count of payload bytes up to which the sender may send, modulo 2³².
    pub(crate) edge: u32,
    /// Bytes promised in advance. Doubles each time that the receiver has taken as many.
    pace: u32,
    /// Bytes that the receiver has taken since the pace changed.
    taken: u32,
}

impl Default for Promise {
    fn default() -> Self {
        Self { edge: 0, pace: FIRST_PACE, taken: 0 }
    }
}

impl Promise {
    /// The promise that another fabric has made, when the receiver had been handed `sent` bytes.
    pub(crate) fn taken_over(edge: u32, sent: u32) -> Self {
        Self { edge: sent.wrapping_add(ahead(edge, sent)), ..Self::default() }
    }

    /// Bytes that the sender may send and that the receiver has not been handed.
    #[inline]
    pub(crate) fn outstanding(&self, window: &Window) -> u32 {
        ahead(self.edge, window.sent)
    }

    /// Bytes up to which the sender may be ahead of its receiver.
    #[inline]
    pub(crate) fn limit(&self, window: &Window) -> u32 {
        window.credit.buf_alloc.min(self.pace)
    }

    /// Moves the edge as far as the receiver's credit and its other promises allow.
    #[inline]
    pub(crate) fn raise(&mut self, window: &Window, socket_type: SocketType, pledged: &mut Pledged) {
        let mut wanted = window.room().min(self.pace).min(pledged.most());
        if socket_type == SocketType::SeqPacket {
            let unread = window.sent.wrapping_sub(window.credit.fwd_cnt);
            let record = window.credit.buf_alloc.min(RECORD).saturating_sub(unread);
            wanted = wanted.max(record);
        }
        let outstanding = self.outstanding(window);
        if wanted > outstanding {
            self.edge = window.sent.wrapping_add(wanted);
            pledged.add(wanted - outstanding, socket_type);
        }
    }

    /// Counts bytes that the receiver was handed. `before` is what was outstanding then.
    #[inline]
    pub(crate) fn on_delivered(
        &mut self,
        bytes: u32,
        before: u32,
        socket_type: SocketType,
        pledged: &mut Pledged,
    ) {
        pledged.remove(bytes.min(before), socket_type);
        self.on_taken(bytes);
    }

    /// Counts bytes that the receiver has taken.
    #[inline]
    pub(crate) fn on_taken(&mut self, bytes: u32) {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken >= self.pace && self.pace < FASTEST_PACE {
            self.pace = (2 * self.pace).min(FASTEST_PACE);
            self.taken = 0;
        }
    }

    /// The credit to tell the sender.
    #[inline]
    pub(crate) fn credit(&self, window: &Window) -> Credit {
        // A receiver cannot have taken more than it was handed.
        let taken = window.credit.fwd_cnt;
        let fwd_cnt = if is_behind(window.sent, taken) { window.sent } else { taken };
        Credit { buf_alloc: self.edge.wrapping_sub(fwd_cnt), fwd_cnt }
    }
}

/// Tells whether `count` is less than `other`, for counts modulo 2³² that are close together.
#[inline]
fn is_behind(count: u32, other: u32) -> bool {
    count.wrapping_sub(other).cast_signed() < 0
}

/// By how much `count` is more than `other`; 0 if it is less.
#[inline]
pub(crate) fn ahead(count: u32, other: u32) -> u32 {
    if is_behind(count, other) { 0 } else { count.wrapping_sub(other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deliver(promise: &mut Promise, window: &mut Window, bytes: u32, pledged: &mut Pledged) {
        let before = promise.outstanding(window);
        window.on_delivered(bytes);
        promise.on_delivered(bytes, before, SocketType::Stream, pledged);
        promise.raise(window, SocketType::Stream, pledged);
    }

    /// Opens a stream to a receiver that gives `buffer` bytes of credit.
    fn open(buffer: u32, pledged: &mut Pledged) -> (Promise, Window) {
        let (mut promise, mut window) = (Promise::default(), Window::default());
        window.on_credit(Credit { buf_alloc: buffer, fwd_cnt: 0 });
        promise.raise(&window, SocketType::Stream, pledged);
        (promise, window)
    }

    /// Hands over `bytes` in steps. The receiver takes each step at once.
    fn transfer(promise: &mut Promise, window: &mut Window, bytes: u32, pledged: &mut Pledged) {
        let end = window.sent + bytes;
        while window.sent < end {
            let step = promise.outstanding(window).min(end - window.sent);
            deliver(promise, window, step, pledged);
            window.on_credit(Credit { fwd_cnt: window.sent, ..window.credit });
            promise.raise(window, SocketType::Stream, pledged);
        }
    }

    #[test]
    fn a_receiver_that_takes_nothing_is_promised_little_whatever_it_announces() {
        let (mut pledged, mut sum) = (Pledged::default(), 0);
        for connections in 1..=5000 {
            let (mut promise, window) = open(u32::MAX, &mut pledged);
            promise.raise(&window, SocketType::Stream, &mut pledged);
            sum += u64::from(promise.outstanding(&window));
            assert!(promise.outstanding(&window) >= LEAST);
            assert!(sum <= MAX_PLEDGED + connections * u64::from(LEAST), "{connections}: {sum}");
            assert!(connections > 64 || sum <= PLENTY / 4, "{connections}: {sum}");
        }
        assert_eq!(pledged, Pledged { streams: sum, records: 0 });
    }

    #[test]
    fn connections_that_have_taken_much_and_rest_are_promised_little_together() {
        let (mut pledged, mut resting) = (Pledged::default(), Vec::new());
        for _ in 0..1000 {
            let (mut promise, mut window) = open(u32::MAX, &mut pledged);
            transfer(&mut promise, &mut window, 4 << 20, &mut pledged);
            resting.push((promise, window));
        }
        // Once more, now that there are many.
        for (promise, window) in &mut resting {
            transfer(promise, window, 4 << 20, &mut pledged);
        }
        assert!(pledged.streams > PLENTY, "{pledged:?}");
        assert!(pledged.streams <= MAX_PLEDGED + 1000 * u64::from(LEAST), "{pledged:?}");
    }

    #[test]
    fn a_connection_that_is_used_gets_its_part_beside_many_that_rest() {
        // Connections that rest, what each of them has taken, and what another one is promised.
        for (count, taken, promised) in [
            (0, 0, FASTEST_PACE),
            (64, 0, FASTEST_PACE),
            (400, 0, 64 << 10),
            (20, 4 << 20, 64 << 10),
            (60, 4 << 20, 64 << 10),
            (127, 4 << 20, 24 << 10),
        ] {
            let mut pledged = Pledged::default();
            // Senders of records are promised much more, and take nothing away from streams.
            let records = Window { credit: Credit { buf_alloc: RECORD, fwd_cnt: 0 }, ..Window::default() };
            for _ in 0..50 {
                Promise::default().raise(&records, SocketType::SeqPacket, &mut pledged);
            }
            for _ in 0..count {
                let (mut promise, mut window) = open(u32::MAX, &mut pledged);
                transfer(&mut promise, &mut window, taken, &mut pledged);
            }
            let (mut promise, mut window) = open(u32::MAX, &mut pledged);
            transfer(&mut promise, &mut window, 4 << 20, &mut pledged);
            let most = promise.outstanding(&window);
            assert!(most >= promised, "{most} instead of {promised} beside {count} that took {taken} bytes");
        }
    }

    #[test]
    fn a_receiver_that_takes_what_it_is_handed_is_promised_more_until_its_buffer_or_the_most() {
        for (buffer, most) in [(256 << 10, 256 << 10), (u32::MAX, FASTEST_PACE)] {
            let (mut pledged, mut window, mut promise) =
                (Pledged::default(), Window::default(), Promise::default());
            window.on_credit(Credit { buf_alloc: buffer, fwd_cnt: 0 });
            promise.raise(&window, SocketType::Stream, &mut pledged);
            assert_eq!(promise.outstanding(&window), FIRST_PACE);
            for _ in 0..400 {
                deliver(&mut promise, &mut window, 16 << 10, &mut pledged);
                window.on_credit(Credit { buf_alloc: buffer, fwd_cnt: window.sent });
                promise.raise(&window, SocketType::Stream, &mut pledged);
            }
            assert_eq!(promise.outstanding(&window), most);
            assert_eq!(pledged.streams, u64::from(most));
        }
    }

    #[test]
    fn the_edge_never_goes_back_and_the_credit_told_is_never_contradictory() {
        let (mut pledged, mut window, mut promise) =
            (Pledged::default(), Window::default(), Promise::default());
        let mut edge = 0;
        for (buf_alloc, fwd_cnt) in
            [(1 << 18, 0), (10, 0), (0, 0), (u32::MAX, 77), (1 << 18, u32::MAX), (1 << 18, 100), (5000, 100)]
        {
            window.on_credit(Credit { buf_alloc, fwd_cnt });
            promise.raise(&window, SocketType::Stream, &mut pledged);
            assert!(!is_behind(promise.edge, edge));
            edge = promise.edge;
            deliver(&mut promise, &mut window, 100, &mut pledged);
            edge = if is_behind(promise.edge, edge) { edge } else { promise.edge };
            let told = promise.credit(&window);
            assert_eq!(told.fwd_cnt.wrapping_add(told.buf_alloc), promise.edge);
            assert_eq!(ahead(told.fwd_cnt, window.sent), 0, "more taken than was handed over");
        }
    }

    #[test]
    fn a_sender_of_records_can_send_the_longest_that_its_receiver_takes_up_to_a_mebibyte() {
        for (buffer, most) in [(256 << 10, 256 << 10), (u32::MAX, RECORD)] {
            let mut promise = Promise::default();
            let window = Window { credit: Credit { buf_alloc: buffer, fwd_cnt: 0 }, ..Window::default() };
            promise.raise(&window, SocketType::SeqPacket, &mut Pledged { streams: MAX_PLEDGED, records: 0 });
            assert_eq!(promise.credit(&window).buf_alloc, most);
        }
    }
}
