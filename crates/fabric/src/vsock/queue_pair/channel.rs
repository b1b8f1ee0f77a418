//! One end of a connection that is attached to a channel: the fabric's side of the two rings.

use std::time::Instant;

use taut_queue_pair::memory::Copying;
use taut_queue_pair::ring::{Consumer, End, Ends, Hostile, Producer};
use taut_queue_pair::{Channel, layout::Role};

use crate::vsock::proto::{ConnId, Connection, Side};

/// One side of one connection. The serial number tells the connection from others that had, or will
/// have, the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EndId {
    pub(crate) connection: ConnId,
    pub(crate) serial: u32,
    pub(crate) side: Side,
}

impl EndId {
    /// A side of a connection.
    pub(crate) fn of(connection: &Connection, side: Side) -> Self {
        Self { connection: connection.id, serial: connection.serial, side }
    }
}

/// Positions in a ring: the program's, and the fabric's. They count bytes modulo 2³².
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Positions {
    theirs: u32,
    own: u32,
}

/// Positions of a ring that patrols have seen.
#[derive(Debug, Default)]
struct Patrolled {
    /// Positions at the last patrol.
    last: Option<Positions>,
    /// Positions for which a signal was due; [`AttachedEnd::patrol`] may have sent none.
    signalled: Option<Positions>,
}

impl Patrolled {
    /// Takes up the present positions. Returns whether a signal is due: one of them stands still,
    /// and none was due for them. That is so once at rest, and once in each period if only one of
    /// the two moves.
    fn must_signal(&mut self, now: Positions) -> bool {
        let stands = self.last.is_some_and(|last| last.theirs == now.theirs || last.own == now.own);
        self.last = Some(now);
        let is_due = stands && self.signalled != Some(now);
        if is_due {
            self.signalled = Some(now);
        }
        is_due
    }
}

/// Events that the other side may have missed, as a patrol has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missed {
    /// The program has written bytes, or made room, and the fabric waits for its bell.
    pub(crate) bell: bool,
    /// The program may wait for a signal that it does not get: a position stands still, and there
    /// is something for the program to find, or it has announced no wait.
    pub(crate) signal: bool,
}

/// A channel in use.
#[derive(Debug)]
pub(crate) struct AttachedEnd {
    /// Reads what the guest's program sends.
    pub(crate) out: Consumer,
    /// Writes what the guest's program receives.
    pub(crate) into: Producer,
    /// The end of a connection that is attached; `None` once that connection is forgotten.
    pub(crate) of: Option<EndId>,
    /// The control connection; `None` once the program has left the channel by closing it.
    pub(crate) control: Option<ConnId>,
    /// The end of the stream to the program, as the program was told of it.
    pub(crate) announced: End,
    /// The position up to which the program's bytes are delivered is known: it writes no more into
    /// the ring.
    pub(crate) is_final: bool,
    /// How far the end of the stream from the program has been noted.
    pub(crate) noted: Noted,
    /// The time is limited for which what the program has left is delivered.
    pub(super) drains: bool,
    /// Tells this use of the channel from others of it.
    pub(crate) number: u64,
    /// Time of the last patrol.
    pub(super) patrolled_at: Option<Instant>,
    /// Positions in the rings OUT and IN that patrols have seen.
    patrolled: [Patrolled; 2],
    /// The program may wait for room: more than half of OUT was full at some time since it was last
    /// signalled.
    was_crowded: bool,
}

/// How far the end of the stream from a program has been noted, and signalled to a thread of it
/// that waits for room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Noted {
    /// The stream goes on, as far as is known.
    #[default]
    No,
    /// The program sends no more.
    Ended,
    /// The stream is over: its bytes are not delivered any more.
    Over,
}

impl AttachedEnd {
    /// Attaches an end to a channel, whose words become zero.
    pub(crate) fn new(channel: &Channel, number: u64, of: EndId, control: ConnId) -> Self {
        channel.clear();
        let Ends { producer, consumer } = Ends::new(channel, Role::Fabric, Copying::Library);
        Self {
            out: consumer,
            into: producer,
            of: Some(of),
            control: Some(control),
            announced: End::Open,
            is_final: false,
            noted: Noted::No,
            drains: false,
            number,
            patrolled_at: None,
            patrolled: Default::default(),
            was_crowded: false,
        }
    }

    /// Goes on where another fabric has stopped, which the words of the channel tell. `announced`
    /// and `is_final` are what that fabric had noted.
    pub(crate) fn resume(
        channel: &Channel,
        number: u64,
        of: Option<EndId>,
        control: Option<ConnId>,
        announced: End,
        is_final: bool,
    ) -> Result<Self, Hostile> {
        let Ends { producer, consumer } = Ends::resume(channel, Role::Fabric, Copying::Library)?;
        Ok(Self {
            out: consumer,
            into: producer,
            of,
            control,
            announced,
            is_final,
            noted: Noted::No,
            drains: false,
            number,
            patrolled_at: None,
            patrolled: Default::default(),
            was_crowded: true,
        })
    }

    /// Tells whether this side of a connection is attached here.
    pub(crate) fn is_of(&self, connection: &Connection, side: Side) -> bool {
        self.of == Some(EndId::of(connection, side))
    }

    /// Shows the guest what was read from its ring. Returns `true` if its program waits for room
    /// and is to be signalled: it is, once half of the ring is free.
    pub(crate) fn publish_taken(&mut self) -> Result<bool, Hostile> {
        self.was_crowded |= self.out.used()? > self.out.size() / 2;
        self.out.publish();
        let is_signalled = self.out.free()? >= self.out.size() / 2 && self.out.must_signal();
        self.was_crowded &= !is_signalled;
        Ok(is_signalled)
    }

    /// Tells the program how its stream has ended, unless it was announced before.
    pub(crate) fn tell_end(&mut self, end: End) -> bool {
        let is_news = self.announced == End::Open;
        if is_news {
            self.announced = end;
            self.into.finish(end);
        }
        is_news
    }

    /// Looks at both rings, as if a bell had come, and at the fabric's own words.
    pub(crate) fn patrol(&mut self) -> Result<Missed, Hostile> {
        self.out.check_own_words()?;
        self.into.check_own_words(self.announced)?;
        let (unread, used) = (if self.is_final { None } else { Some(self.out.look()?) }, self.into.used()?);
        let has_bytes = unread.is_some_and(|look| look.bytes > 0 || look.end != End::Open);
        let has_room = used < self.into.size();
        let bell = has_bytes && self.out.is_waiting() || has_room && self.into.is_waiting();
        let (taken, written) = (self.out.position(), self.into.position());
        let unread = unread.map_or(0, |look| look.bytes);
        let [out, into] = &mut self.patrolled;
        let in_out = out.must_signal(Positions { theirs: taken.wrapping_add(unread), own: taken });
        let in_into = into.must_signal(Positions { theirs: written.wrapping_sub(used), own: written });
        let has_news = used > 0 || self.announced != End::Open;
        let is_awaited = self.out.is_awaited() || self.into.is_awaited();
        let misses_room = in_out && self.was_crowded && !self.out.is_awaited();
        let signal = misses_room || (in_out || in_into) && (has_news || !is_awaited);
        self.was_crowded &= !signal;
        Ok(Missed { bell, signal })
    }
}
