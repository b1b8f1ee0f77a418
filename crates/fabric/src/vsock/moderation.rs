//! What a guest need not know at once: each packet and each interrupt takes it away from its work.
//!
//! A receiver tells its credit whenever its buffer is empty (Linux does), so about once a packet; its sender need not hear of it while
//! it may send half a buffer more. Linux asks for an interrupt for every packet that it gets back, and needs none until its ring is
//! nearly full. Both learn it a little later, with the next thing that they are told or when [`SOON`] is over: whoever waits for
//! what we do not expect waits no longer than that.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use taut_api::fabric::counters::SocketWord;
use taut_virtq::socket_header::SocketHeader;

use super::connection::{Connection, Credit, Flow, Party, Side, Turn};
use super::hub::Hub;
use crate::sys::epoll::signal;

/// The latest that a guest learns what can wait.
const SOON: Duration = Duration::from_millis(1);

/// What waits until it is due, the earliest first.
#[derive(Debug, Default)]
pub(super) struct Later {
    updates: VecDeque<(Instant, Turn)>,
    /// Senders whose guests are to be interrupted.
    calls: VecDeque<(Instant, usize)>,
}

impl Later {
    /// When the first of it is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let update = self.updates.front().map(|(at, _)| *at);
        let call = self.calls.front().map(|(at, _)| *at);
        update.into_iter().chain(call).min()
    }
}

/// Something out of a list whose time has come.
fn due<T: Copy>(list: &mut VecDeque<(Instant, T)>, now: Instant) -> Option<T> {
    list.front().filter(|(at, _)| *at <= now)?;
    list.pop_front().map(|(_, item)| item)
}

impl Flow {
    /// The receiver has been told this, and with it the sender's credit.
    pub(super) fn has_told(&mut self, header: &SocketHeader) {
        self.told = Credit { alloc: header.buf_alloc, taken: header.fwd_cnt };
        self.owed.update = false;
        self.update_later = false;
    }
}

impl Connection {
    /// Must the other side know at once of the credit that this one gives?
    fn must_tell_credit(&self, of: Side) -> bool {
        let (told, flow) = (self.flows[of].told, &self.flows[1 - of]);
        let accepted = flow.sent.wrapping_add(flow.packets.bytes as u32).wrapping_sub(flow.offset);
        let known = told.alloc.saturating_sub(accepted.wrapping_sub(told.taken));
        flow.credit.alloc != told.alloc || known < told.alloc / 2
    }
}

impl Hub {
    /// A side has told its credit: the other one is to know, now or later.
    pub(super) fn pass_credit_on(&mut self, number: u32, of: Side, now: Instant) {
        let Some(connection) = self.table.get(number) else { return };
        let turn = Turn { connection: number, from: of };
        let asked = std::mem::take(&mut connection.flows[1 - of].asked);
        if asked || connection.ends[1 - of].party == Party::Host || connection.must_tell_credit(of) {
            connection.flows[of].owed.update = true;
            self.has_turn(turn);
        } else if !std::mem::replace(&mut connection.flows[of].update_later, true) {
            self.later.updates.push_back((now + SOON, turn));
        }
    }

    /// A side has sent something: what it need not have known it may need to know now.
    pub(super) fn spend_credit(&mut self, number: u32, by: Side) {
        let Some(connection) = self.table.get(number) else { return };
        let of = 1 - by;
        if connection.flows[of].update_later && connection.must_tell_credit(of) {
            connection.flows[of].owed.update = true;
            self.has_turn(Turn { connection: number, from: of });
        }
    }

    /// What has waited long enough; `true` if there was anything.
    pub(super) fn tell_what_is_due(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(turn) = due(&mut self.later.updates, now) {
            if let Some(connection) = self.table.get(turn.connection)
                && connection.flows[turn.from].update_later
            {
                connection.flows[turn.from].owed.update = true;
                self.has_turn(turn);
                any = true;
            }
        }
        while let Some(guest) = due(&mut self.later.calls, now) {
            if self.senders.get(guest).is_some_and(|sender| sender.owes_call) {
                self.call_sender(guest);
                any = true;
            }
        }
        any
    }

    /// Packets have been given back to a guest that wants to be interrupted for it: now if its ring may be getting full.
    pub(super) fn call_sender_later(&mut self, guest: usize, now: Instant) {
        let sender = &mut self.senders[guest];
        if !std::mem::replace(&mut sender.owes_call, true) {
            self.later.calls.push_back((now + SOON, guest));
        }
    }

    /// Has a guest that is owed an interrupt filled half of its ring since the last one?
    pub(super) fn is_short_of_room(&self, guest: usize) -> bool {
        let sender = &self.senders[guest];
        sender.owes_call
            && sender.ring.as_ref().is_some_and(|ring| {
                ring.queue.position().wrapping_sub(sender.called_at) >= ring.place.size() / 2
            })
    }

    /// Interrupts a guest for the packets that it has got back.
    pub(super) fn call_sender(&mut self, guest: usize) {
        let sender = &mut self.senders[guest];
        sender.owes_call = false;
        if let Some(ring) = &sender.ring {
            sender.called_at = ring.queue.used_position();
        }
        if let Some(call) = &sender.call {
            signal(call);
            self.count(guest, SocketWord::Interrupts, 1);
        }
    }
}
