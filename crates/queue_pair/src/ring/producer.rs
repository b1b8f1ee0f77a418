//! The end that writes bytes.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::consumer::Consumer;
use super::fault::{End, Hostile, unchanged, used};
use super::private::Private;
use super::wait::{Signaller, Waiter};
use crate::layout::Direction;
use crate::memory::{Channel, Copying, Memory, RingBytes};

/// The end of a ring that writes bytes.
#[derive(Debug)]
pub struct Producer<M = Arc<Memory>> {
    channel: Channel<M>,
    direction: Direction,
    bytes: RingBytes<M>,
    /// Own position: bytes written, modulo 2^32. Never taken from shared memory.
    head: u32,
    /// Position that the other side has been told.
    published: u32,
    /// The own wait for room.
    waiter: Waiter,
    /// The other side's wait for bytes.
    signaller: Signaller,
}

impl<M: Borrow<Memory> + Clone> Producer<M> {
    /// The end of an empty ring of a channel whose words are zero. `copying` is the way in which
    /// its bytes are copied.
    #[inline]
    pub fn new(channel: Channel<M>, direction: Direction, copying: Copying) -> Self {
        let bytes = channel.ring(direction, copying);
        let (waiter, signaller) = (Waiter::new(0), Signaller::new());
        Self { channel, direction, bytes, head: 0, published: 0, waiter, signaller }
    }

    /// Continues where another process has stopped, which the words of the channel tell. Bytes that
    /// were written and not published are lost. The first [`Self::must_signal`] may lead to a
    /// signal that the other side has had already.
    pub fn resume(channel: Channel<M>, direction: Direction, copying: Copying) -> Result<Self, Hostile> {
        let head = channel.load(direction.head());
        let waiter = Waiter::new(channel.load(direction.room_wait()));
        let this = Self { head, published: head, waiter, ..Self::new(channel, direction, copying) };
        this.used()?;
        Ok(this)
    }

    /// The numbers that this end keeps privately.
    #[inline]
    pub fn private(&self) -> Private {
        Private {
            position: self.head,
            published: self.published,
            waiter: self.waiter.number(),
            seen: self.signaller.seen(),
        }
    }

    /// Goes on where another process that shares this end has stopped.
    #[inline]
    pub fn go_on(&mut self, from: Private) {
        (self.head, self.published) = (from.position, from.published);
        self.waiter = Waiter::new(from.waiter);
        self.signaller = Signaller::resume(from.seen);
    }

    /// Length of the ring in bytes.
    #[inline]
    pub fn size(&self) -> u32 {
        self.bytes.len()
    }

    /// The channel of the ring.
    #[inline]
    pub fn channel(&self) -> &Channel<M> {
        &self.channel
    }

    /// Direction of the ring.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Own position: bytes written so far, modulo 2^32.
    #[inline]
    pub fn position(&self) -> u32 {
        self.head
    }

    /// Number of bytes that the other side has not taken, including those not published.
    #[inline]
    pub fn used(&self) -> Result<u32, Hostile> {
        let tail = self.channel.word(self.direction.tail()).load(Acquire);
        // Bytes that are not published cannot have been taken.
        used(self.direction, self.published, tail, self.size())?;
        used(self.direction, self.head, tail, self.size())
    }

    /// Number of bytes that can be written now.
    #[inline]
    pub fn room(&self) -> Result<u32, Hostile> {
        Ok(self.size() - self.used()?)
    }

    /// Copies bytes that were written out of the ring again: the first ones of the last `count`
    /// bytes. A producer whose consumer has left delivers in another way what [`Self::used`] says
    /// was not taken. The consumer may have changed the bytes.
    ///
    /// # Panics
    /// If the ring is shorter than `count`, or `count` than `out`.
    pub fn copy_back(&self, count: u32, out: &mut [u8]) {
        assert!(count <= self.size() && out.len() <= count as usize, "more bytes than were written");
        self.bytes.copy_out(self.head.wrapping_sub(count), crate::memory::as_uninit(out));
    }

    /// Writes as many bytes as there is room for. Returns how many. The other side sees them after
    /// [`Self::publish`].
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Hostile> {
        let count = bytes.len().min(self.room()? as usize);
        self.bytes.copy_in(self.head, &bytes[..count]);
        self.head = self.head.wrapping_add(count as u32);
        Ok(count)
    }

    /// Moves up to `most` bytes from another ring: as many as it has and this one has room for.
    /// Returns how many. Both ends have to be published then.
    #[inline]
    pub fn write_from<F: Borrow<Memory> + Clone>(
        &mut self,
        from: &mut Consumer<F>,
        most: usize,
    ) -> Result<usize, Hostile> {
        let count = most.min(from.available()? as usize).min(self.room()? as usize);
        self.bytes.copy_from(self.head, from.bytes(), from.position(), count);
        self.head = self.head.wrapping_add(count as u32);
        from.skip(count);
        Ok(count)
    }

    /// Tells the other side of the bytes that were written. Returns whether there were any.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let news = self.published != self.head;
        if news {
            self.channel.word(self.direction.head()).store(self.head, Release);
            self.published = self.head;
        }
        news
    }

    /// Tells whether the other side waits for bytes and has not been signalled since it announced
    /// that. Call it after [`Self::publish`] and [`Self::finish`]; if it returns `true`, signal.
    #[inline]
    pub fn must_signal(&mut self) -> bool {
        self.signaller.must_signal(self.channel.word(self.direction.bytes_wait()))
    }

    /// Tells whether the other side has announced a wait for bytes for which it has got no signal.
    pub fn is_awaited(&self) -> bool {
        self.signaller.is_awaited(self.channel.word(self.direction.bytes_wait()))
    }

    /// Publishes, and then says that no more bytes follow. Ask [`Self::must_signal`] afterwards.
    pub fn finish(&mut self, end: End) {
        self.publish();
        self.channel.word(self.direction.end()).store(end.number(), Release);
    }

    /// Announces that this end waits for room. Look for room again before sleeping, and announce
    /// it again before sleeping again: each announcement gets at most one signal.
    #[inline]
    pub fn wait(&mut self) {
        self.waiter.wait(self.channel.word(self.direction.room_wait()));
    }

    /// Ends the wait, if one is announced.
    #[inline]
    pub fn stop_waiting(&mut self) {
        self.waiter.stop(self.channel.word(self.direction.room_wait()));
    }

    /// Tells whether a wait is announced.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.waiter.is_waiting()
    }

    /// Returns an error if the position in the channel, or its end word, is not what this end has
    /// told: then the other side may wait for bytes that are there. `end` is how this end has
    /// finished.
    pub fn check_position(&self, end: End) -> Result<(), Hostile> {
        let (head, last) = (self.direction.head(), self.direction.end());
        unchanged(head, self.published, self.channel.load(head))?;
        unchanged(last, end.number(), self.channel.load(last))
    }

    /// As [`Self::check_position`] and [`Consumer::check_own_words`].
    pub fn check_own_words(&self, end: End) -> Result<(), Hostile> {
        self.check_position(end)?;
        let wait = self.direction.room_wait();
        unchanged(wait, self.waiter.number(), self.channel.load(wait))
    }
}
