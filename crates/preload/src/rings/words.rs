//! The words of a record: what they mean, and how they are read and changed.
//!
//! | word | meaning | changed by |
//! |---|---|---|
//! | `STATE` | 0 unused, 1 bytes move by rings, 2 it has left them | the thread with both locks |
//! | `FLAGS` | the bits of [`flag`] | any thread |
//! | `SIGNALLED` | 1 once a signal was seen and not acted on | threads that poll or act on them |
//! | `VAIN` | calls without a wait that found nothing | those calls |
//! | `SINCE_END` | writes since the peer has ended its direction | the lock of OUT |
//! | `MODE` | whether calls wait (`mode`) | threads that ask the kernel, or change the mode |
//! | `SHARED` | 1 once a second process has the connection | a forked child |
//! | `PRIVATE` | for each ring: own position, and what is known of the peer | the ring's lock |
//! | `ANNOUNCED` | for each ring: 1 while the fabric signals its changes | the ring's lock |
//! | `WAITING` | for each ring: number of threads that sleep for it | those threads |
//! | `UNREAD` | times in a row that signals were left unread | threads that read or leave them |
//! | `COOKIE` | the socket's cookie | the thread that begins the record |
//! | `BY_PACKETS` | bytes that still come by packets | the lock of IN |
//! | `HUNG_UP` | time of the peer's end, in milliseconds | threads that poll |

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use taut_queue_pair::{Direction, Private};

use super::record::{Pair, place};
use crate::sys::milliseconds as now;

/// Flags of a connection.
pub(super) mod flag {
    /// The program has shut down writing.
    pub(in crate::rings) const SHUT_WRITE: u32 = 1;
    /// The program has shut down reading.
    pub(in crate::rings) const SHUT_READ: u32 = 2;
    /// The peer receives nothing any more.
    pub(in crate::rings) const GONE: u32 = 4;
    /// The control connection has ended.
    pub(in crate::rings) const ENDED: u32 = 8;
    /// The words of the channel cannot be believed.
    pub(in crate::rings) const FAULT: u32 = 16;
    /// The program was told of the reset.
    pub(in crate::rings) const TOLD: u32 = 32;
}

/// Places of the words.
pub(super) const STATE: usize = 0;
pub(super) const FLAGS: usize = 2;
const SIGNALLED: usize = 3;
const VAIN: usize = 4;
const SINCE_END: usize = 5;
const MODE: usize = 6;
const SHARED: usize = 7;
const PRIVATE: [usize; 2] = [8, 12];
const ANNOUNCED: [usize; 2] = [16, 17];
const WAITING: [usize; 2] = [18, 19];
const UNREAD: usize = 20;
/// Places of the long words.
pub(super) const COOKIE: usize = 0;
pub(super) const BY_PACKETS: usize = 1;
pub(super) const HUNG_UP: usize = 2;

impl Pair {
    #[inline]
    pub(super) fn word(&self, place: usize) -> &AtomicU32 {
        // The place is one of the constants above.
        self.record.words.get(place).unwrap_or(&NOWHERE)
    }

    #[inline]
    pub(super) fn long(&self, place: usize) -> &AtomicU64 {
        self.record.longs.get(place).unwrap_or(&NOWHERE_LONG)
    }

    #[inline]
    pub(super) fn has(&self, flag: u32) -> bool {
        self.word(FLAGS).load(Acquire) & flag != 0
    }

    /// Sets a flag. Returns whether it was set before.
    pub(super) fn set(&self, flag: u32) -> bool {
        self.word(FLAGS).fetch_or(flag, AcqRel) & flag != 0
    }

    /// Tells whether the channel is lost, as far as is known: its words may be another
    /// connection's.
    pub(super) fn is_lost(&self) -> bool {
        self.has(flag::ENDED | flag::FAULT)
    }

    /// Takes a flag back.
    pub(super) fn unset(&self, flag: u32) {
        self.word(FLAGS).fetch_and(!flag, AcqRel);
    }

    /// The numbers of a ring's end that only this program knows. The caller has the ring's lock.
    #[inline]
    pub(super) fn private(&self, direction: Direction) -> Private {
        let from = PRIVATE.get(place(direction)).copied().unwrap_or_default();
        let [position, published, waiter, seen] =
            [0, 1, 2, 3].map(|offset| self.word(from + offset).load(Relaxed));
        Private { position, published, waiter, seen }
    }

    #[inline]
    pub(super) fn set_private(&self, direction: Direction, private: Private) {
        let from = PRIVATE.get(place(direction)).copied().unwrap_or_default();
        let Private { position, published, waiter, seen } = private;
        for (offset, value) in [position, published, waiter, seen].into_iter().enumerate() {
            self.word(from + offset).store(value, Relaxed);
        }
    }

    /// Bytes that still come by packets. The caller has the lock of the ring IN to change it.
    #[inline]
    pub(super) fn by_packets(&self) -> u64 {
        self.long(BY_PACKETS).load(Relaxed)
    }

    pub(super) fn set_by_packets(&self, count: u64) {
        self.long(BY_PACKETS).store(count, Relaxed);
    }

    fn announced_word(&self, direction: Direction) -> &AtomicU32 {
        self.word(ANNOUNCED.get(place(direction)).copied().unwrap_or_default())
    }

    /// Tells whether a wait is announced by a number for which no signal was taken yet.
    pub(super) fn is_announced(&self, direction: Direction) -> bool {
        self.announced_word(direction).load(Acquire) != 0
    }

    pub(super) fn set_announced(&self, direction: Direction, announced: bool) {
        self.announced_word(direction).store(announced.into(), Release);
    }

    /// Number of threads that sleep for a ring, or are about to.
    pub(super) fn waiting(&self, direction: Direction) -> &AtomicU32 {
        self.word(WAITING.get(place(direction)).copied().unwrap_or_default())
    }

    /// 1 once a signal was seen that nobody has acted on.
    pub(super) fn signalled(&self) -> &AtomicU32 {
        self.word(SIGNALLED)
    }

    /// Times that signals were left unread since they were last read.
    pub(super) fn unread_signals(&self) -> &AtomicU32 {
        self.word(UNREAD)
    }

    /// Calls without a wait that found nothing.
    pub(super) fn vain(&self) -> &AtomicU32 {
        self.word(VAIN)
    }

    /// Whether calls wait, see `mode`.
    pub(super) fn mode(&self) -> &AtomicU32 {
        self.word(MODE)
    }

    /// Tells whether more than one process has, or has had, the connection.
    pub(super) fn is_shared(&self) -> bool {
        self.word(SHARED).load(Relaxed) != 0
    }

    pub(super) fn set_shared(&self) {
        self.word(SHARED).store(1, Relaxed);
    }

    /// Writes since the peer has ended its own direction.
    pub(super) fn since_end(&self) -> &AtomicU32 {
        self.word(SINCE_END)
    }

    /// Milliseconds since the stream's socket first said that the peer has ended its direction.
    pub(super) fn hung_up(&self) -> Option<u64> {
        let since = self.long(HUNG_UP).load(Relaxed);
        (since != 0).then(|| now().saturating_sub(since))
    }

    pub(super) fn set_hung_up(&self) {
        let _ = self.long(HUNG_UP).compare_exchange(0, now().max(1), Relaxed, Relaxed);
    }

    /// Tells whether nothing but bytes has come and gone on the connection, so that a read depends
    /// on the bytes in the ring only.
    #[inline]
    pub(super) fn reads_plainly(&self) -> bool {
        self.word(FLAGS).load(Acquire) & !flag::SHUT_WRITE == 0
            && self.by_packets() == 0
            && self.channel.load(Direction::In.end()) == 0
            && self.long(HUNG_UP).load(Relaxed) == 0
    }

    /// Tells whether nothing but bytes has come and gone on the connection, so that a write depends
    /// on the room in the ring only.
    #[inline]
    pub(super) fn writes_plainly(&self) -> bool {
        self.word(FLAGS).load(Acquire) == 0
            && self.channel.load(Direction::In.end()) == 0
            && self.long(HUNG_UP).load(Relaxed) == 0
    }

    /// Number of bytes in a ring, as far as its end in this guest knows; `None` if a call is about
    /// to change that, or the words are wrong. Takes no lock.
    #[inline]
    pub(super) fn used(&self, direction: Direction) -> Option<u32> {
        let [input, output] = PRIVATE;
        let used = match direction {
            Direction::In => self.channel.load(direction.head()).wrapping_sub(self.word(input).load(Relaxed)),
            Direction::Out => {
                self.word(output).load(Relaxed).wrapping_sub(self.channel.load(direction.tail()))
            }
        };
        (used <= self.channel.ring_len()).then_some(used)
    }
}

static NOWHERE: AtomicU32 = AtomicU32::new(0);
static NOWHERE_LONG: AtomicU64 = AtomicU64::new(0);
