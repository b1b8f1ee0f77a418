//! The schedule: turns of flows, what a turn may hand over, deferred news, polling, and the
//! thread's share of its CPU.
//!
//! * [`turns`]: the order in which flows have their turn.
//! * [`allowance`], [`batch`]: how much a turn hands over, and which packets become one.
//! * [`pace`]: flows to rings, and when rings are looked at. [`patrol`]: when they are looked at
//!   although no bell has come.
//! * [`unpublished`], [`deferred`]: what guests are shown at the end of a round, and what later.
//! * [`half_open`]: the time-out of unanswered requests; [`starving`]: receivers that take nothing.
//! * [`polling`], [`sharing`], [`stream_pace`]: which rings are polled, when the thread leaves its
//!   CPU, and when it sleeps between two looks.

mod allowance;
mod batch;
mod deferred;
mod half_open;
mod pace;
mod patrol;
mod polling;
mod sharing;
mod starving;
mod stream_pace;
mod turns;
mod unpublished;

use std::time::{Duration, Instant};

pub(crate) use self::allowance::{Allowance, LARGE};
pub(crate) use self::batch::Batch;
pub(crate) use self::deferred::Deferred;
pub(crate) use self::half_open::HalfOpen;
pub(crate) use self::pace::{MAX_EMPTY_LOOKS, Pace};
pub(crate) use self::patrol::Patrols;
pub(crate) use self::polling::Polling;
pub(crate) use self::sharing::Sharing;
pub(crate) use self::starving::{LONG, Starving};
pub(crate) use self::stream_pace::{Ahead, StreamPace};
pub(crate) use self::turns::{MAX_TURN_BYTES, Place, Served, Turns};
pub(crate) use self::unpublished::Unpublished;
use super::proto::{Actions, ConnId, Connection, FlowId, GuestIdx, Sides};

/// Longest sleep: nothing is due.
pub(crate) const FOREVER: Duration = Duration::from_secs(3600);

/// The parts of the schedule.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) turns: Turns,
    pub(crate) deferred: Deferred,
    pub(crate) polling: Polling,
    pub(crate) unpublished: Unpublished,
    pub(crate) patrols: Patrols,
    pub(crate) half_open: HalfOpen,
    pub(crate) starving: Starving,
    pub(crate) stream_pace: StreamPace,
}

impl Schedule {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            turns: Turns::default(),
            deferred: Deferred::default(),
            polling: Polling::new(),
            unpublished: Unpublished::default(),
            patrols: Patrols::default(),
            half_open: HalfOpen::new(now),
            starving: Starving::default(),
            stream_pace: StreamPace::default(),
        }
    }

    /// Provides the state of a guest, whose index may be new.
    pub(crate) fn provide_guest(&mut self, guest: GuestIdx) {
        self.turns.provide_guest(guest);
        self.polling.provide_guest(guest);
    }

    /// Forgets everything about a removed guest. Its index may be that of another one later.
    pub(crate) fn remove_guest(&mut self, guest: GuestIdx) {
        self.turns.remove_guest(guest);
        self.polling.remove_guest(guest);
        self.unpublished.remove_guest(guest);
        self.starving.remove_guest(guest);
    }

    /// Queues the flows that a step of the protocol has made ready, and defers its credit update.
    #[inline]
    pub(crate) fn carry_out(
        &mut self,
        id: ConnId,
        connection: &mut Connection,
        actions: Actions,
        now: Instant,
    ) {
        self.queue_all(id, connection, actions.ready);
        if let Some(from) = actions.update_later {
            self.deferred.update(FlowId { connection: id, from }, now);
        }
    }

    /// Queues the flows from these sides of a connection.
    #[inline]
    pub(crate) fn queue_all(&mut self, id: ConnId, connection: &mut Connection, sides: Sides) {
        for from in sides {
            self.turns.queue(FlowId { connection: id, from }, connection);
        }
    }

    /// Tells whether no ring is polled and no flow waits for its turn.
    pub(crate) fn is_idle(&self) -> bool {
        self.polling.is_idle() && self.turns.is_idle()
    }

    /// Returns the time until something is due. Patrols do not count: the thread has a timer for
    /// them.
    pub(crate) fn until_due(&self, now: Instant) -> Duration {
        let Self { turns, half_open, deferred, starving, .. } = self;
        let looks = turns.pace.next_look();
        let times = [turns.next_release(), looks, half_open.next_sweep(), deferred.next(), starving.next()];
        let next = times.into_iter().flatten().min();
        next.map_or(FOREVER, |next| next.saturating_duration_since(now))
    }
}
