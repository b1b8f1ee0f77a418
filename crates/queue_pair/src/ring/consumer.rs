//! The end that reads bytes.

use std::borrow::Borrow;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use super::fault::{End, Hostile, unchanged, used};
use super::private::Private;
use super::wait::{Signaller, Waiter};
use crate::layout::Direction;
use crate::memory::{Channel, Copying, Memory, RingBytes};

/// The end of a ring that reads bytes.
#[derive(Debug)]
pub struct Consumer<M = Arc<Memory>> {
    channel: Channel<M>,
    direction: Direction,
    bytes: RingBytes<M>,
    /// Own position: bytes taken, modulo 2^32. Never taken from shared memory.
    tail: u32,
    /// Position that the other side has been told.
    published: u32,
    /// The own wait for bytes.
    waiter: Waiter,
    /// The other side's wait for room.
    signaller: Signaller,
}

/// What a look at a ring has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Number of bytes that can be read.
    pub bytes: u32,
    /// Whether more follow. If not, `bytes` has counted all of them.
    pub end: End,
}

impl<M: Borrow<Memory> + Clone> Consumer<M> {
    /// The end of an empty ring of a channel whose words are zero. `copying` is the way in which
    /// its bytes are copied.
    #[inline]
    pub fn new(channel: Channel<M>, direction: Direction, copying: Copying) -> Self {
        let bytes = channel.ring(direction, copying);
        let (waiter, signaller) = (Waiter::new(0), Signaller::new());
        Self { channel, direction, bytes, tail: 0, published: 0, waiter, signaller }
    }

    /// Continues where another process has stopped, which the words of the channel tell. Bytes that
    /// were read and not published are read again. The first [`Self::must_signal`] may lead to a
    /// signal that the other side has had already.
    pub fn resume(channel: Channel<M>, direction: Direction, copying: Copying) -> Result<Self, Hostile> {
        let tail = channel.load(direction.tail());
        let waiter = Waiter::new(channel.load(direction.bytes_wait()));
        let this = Self { tail, published: tail, waiter, ..Self::new(channel, direction, copying) };
        this.look()?;
        Ok(this)
    }

    /// The numbers that this end keeps privately.
    #[inline]
    pub fn private(&self) -> Private {
        Private {
            position: self.tail,
            published: self.published,
            waiter: self.waiter.number(),
            seen: self.signaller.seen(),
        }
    }

    /// Goes on where another process that shares this end has stopped.
    #[inline]
    pub fn go_on(&mut self, from: Private) {
        (self.tail, self.published) = (from.position, from.published);
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

    /// Own position: bytes taken so far, modulo 2^32.
    #[inline]
    pub fn position(&self) -> u32 {
        self.tail
    }

    /// The bytes of the ring.
    #[inline]
    pub(super) fn bytes(&self) -> &RingBytes<M> {
        &self.bytes
    }

    /// Number of bytes that can be read now.
    #[inline]
    pub fn available(&self) -> Result<u32, Hostile> {
        let head = self.channel.word(self.direction.head()).load(Acquire);
        // The other side may have written as far as it was told that there is room.
        used(self.direction, head, self.published, self.size())?;
        used(self.direction, head, self.tail, self.size())
    }

    /// Number of bytes that can be read now, and whether more follow.
    #[inline]
    pub fn look(&self) -> Result<Look, Hostile> {
        // Before the position: if the end is there, so is the last position.
        let end = self.channel.word(self.direction.end()).load(Acquire);
        let end = End::read(end, self.direction)?;
        Ok(Look { bytes: self.available()?, end })
    }

    /// Number of bytes in the ring, as the other side sees it before [`Self::publish`].
    #[inline]
    pub fn used(&self) -> Result<u32, Hostile> {
        let head = self.channel.word(self.direction.head()).load(Acquire);
        used(self.direction, head, self.published, self.size())
    }

    /// Number of free bytes in the ring, as the other side sees it after [`Self::publish`]. The
    /// fabric signals room only if at least half of the ring is free.
    #[inline]
    pub fn free(&self) -> Result<u32, Hostile> {
        Ok(self.size() - self.available()?)
    }

    /// Reads as many bytes as there are and `out` takes. Returns how many. The other side can use
    /// their room after [`Self::publish`].
    #[inline]
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, Hostile> {
        let count = self.peek(0, out)?;
        self.tail = self.tail.wrapping_add(count as u32);
        Ok(count)
    }

    /// As [`Self::read`], into memory that need not be initialised. The first bytes of `out`, as
    /// many as returned, are initialised then.
    #[inline]
    pub fn read_uninit(&mut self, out: &mut [MaybeUninit<u8>]) -> Result<usize, Hostile> {
        let count = self.peek_uninit(0, out)?;
        self.tail = self.tail.wrapping_add(count as u32);
        Ok(count)
    }

    /// Copies bytes out and leaves them in the ring, beginning `skip` bytes behind the next one.
    /// Returns how many. A later read may get other bytes if the other side is hostile.
    #[inline]
    pub fn peek(&self, skip: usize, out: &mut [u8]) -> Result<usize, Hostile> {
        self.peek_uninit(skip, crate::memory::as_uninit(out))
    }

    /// As [`Self::peek`], into memory that need not be initialised.
    #[inline]
    pub fn peek_uninit(&self, skip: usize, out: &mut [MaybeUninit<u8>]) -> Result<usize, Hostile> {
        let available = self.available()? as usize;
        let count = out.len().min(available.saturating_sub(skip));
        if count > 0 {
            self.bytes.copy_out(self.tail.wrapping_add(skip as u32), &mut out[..count]);
        }
        Ok(count)
    }

    /// Counts bytes as taken that the caller has seen by [`Self::peek`].
    ///
    /// # Panics
    /// If the ring is shorter. The caller must not count more bytes than there were.
    #[inline]
    pub fn skip(&mut self, count: usize) {
        let unpublished = self.tail.wrapping_sub(self.published) as usize;
        assert!(count <= self.size() as usize - unpublished, "more bytes than there were");
        self.tail = self.tail.wrapping_add(count as u32);
    }

    /// Tells the other side of the room that is free again. Returns whether there is any.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let news = self.published != self.tail;
        if news {
            self.channel.word(self.direction.tail()).store(self.tail, Release);
            self.published = self.tail;
        }
        news
    }

    /// Tells whether the other side waits for room and has not been signalled since it announced
    /// that. Call it after [`Self::publish`]; if it returns `true`, signal.
    #[inline]
    pub fn must_signal(&mut self) -> bool {
        self.signaller.must_signal(self.channel.word(self.direction.room_wait()))
    }

    /// Tells whether the other side has announced a wait for room for which it has got no signal.
    pub fn is_awaited(&self) -> bool {
        self.signaller.is_awaited(self.channel.word(self.direction.room_wait()))
    }

    /// Announces that this end waits for bytes. Look for bytes again before sleeping, and announce
    /// it again before sleeping again: each announcement gets at most one signal.
    #[inline]
    pub fn wait(&mut self) {
        self.waiter.wait(self.channel.word(self.direction.bytes_wait()));
    }

    /// Ends the wait, if one is announced.
    #[inline]
    pub fn stop_waiting(&mut self) {
        self.waiter.stop(self.channel.word(self.direction.bytes_wait()));
    }

    /// Tells whether a wait is announced.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.waiter.is_waiting()
    }

    /// Returns an error if the position in the channel is not the one that this end has told: then
    /// the other side may wait for room that is there.
    pub fn check_position(&self) -> Result<(), Hostile> {
        let tail = self.direction.tail();
        unchanged(tail, self.published, self.channel.load(tail))
    }

    /// As [`Self::check_position`], and also returns an error if the number of the wait is not the
    /// one that this end has announced: then the other side may not know that this end waits. Only
    /// for a party whose words no earlier user of the channel can still write.
    pub fn check_own_words(&self) -> Result<(), Hostile> {
        self.check_position()?;
        let wait = self.direction.bytes_wait();
        unchanged(wait, self.waiter.number(), self.channel.load(wait))
    }
}
