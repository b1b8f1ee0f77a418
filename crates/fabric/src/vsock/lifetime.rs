//! A connection from its request until both of its ends know that it is over.

use std::time::Instant;

use taut_api::fabric::counters::SocketWord;

use super::connection::{Connection, End, Owed, Party, Side, State, Turn};
use super::guest::Guest;
use super::hub::Hub;

impl Hub {
    /// Opens a connection; `None` if there is no room for it.
    pub(super) fn open(&mut self, ends: [End; 2], kind: u16, now: Instant) -> Option<u32> {
        let room = |end: &End| match end.party {
            Party::Guest(guest) => {
                self.guests[guest].as_ref().is_some_and(|guest| guest.connections < guest.config.connections)
            }
            Party::Host => true,
        };
        let half_open = |guest: &Guest| guest.half_open < guest.config.half_open;
        let may_ask = match ends[0].party {
            Party::Guest(guest) => self.guests[guest].as_ref().is_some_and(half_open),
            Party::Host => true,
        };
        if !may_ask || !ends.iter().all(room) {
            return None;
        }
        let number = self.table.add(Connection::new(ends, kind, now), None)?;
        for end in ends {
            if let Party::Guest(guest) = end.party
                && let Some(guest) = &mut self.guests[guest]
            {
                guest.count(1);
                guest.counters.add(SocketWord::Opened, 1);
            }
        }
        self.half_open_by(ends[0].party, 1);
        Some(number)
    }

    pub(super) fn half_open_by(&mut self, asker: Party, by: i32) {
        self.requested = self.requested.saturating_add_signed(by as isize);
        if let Party::Guest(guest) = asker
            && let Some(guest) = &mut self.guests[guest]
        {
            guest.half_open = guest.half_open.saturating_add_signed(by);
        }
    }

    /// Somebody has accepted.
    pub(super) fn accepted(&mut self, number: u32) {
        let Some(connection) = self.table.get(number) else { return };
        if connection.state == State::Requested {
            connection.state = State::Open;
            let asker = connection.ends[0].party;
            self.half_open_by(asker, -1);
        }
    }

    /// A connection is over: because of what a side did, or for both sides alike. Whoever does not know is told, behind what it
    /// was sent before.
    pub(super) fn reset(&mut self, number: u32, by: Option<Side>) {
        let Some(connection) = self.table.get(number) else { return };
        if connection.state == State::Requested {
            let asker = connection.ends[0].party;
            connection.state = State::Over;
            self.half_open_by(asker, -1);
        }
        let Some(connection) = self.table.get(number) else { return };
        connection.state = State::Over;
        let mut told = [false; 2];
        for (from, told) in told.iter_mut().enumerate() {
            let flow = &mut connection.flows[from];
            // Whoever has not been told of it need not be told of its end.
            let knows = by == Some(1 - from) || flow.owed.request;
            if by.is_none() {
                (flow.owed, flow.update_later) = (Owed::default(), false);
            }
            flow.ended = true;
            flow.over |= knows;
            if !flow.over {
                flow.owed.reset = true;
            }
            *told = flow.over;
        }
        for from in [0, 1] {
            if told[from] || by.is_none() {
                self.discard(number, from);
            }
            if !told[from] {
                self.has_turn(Turn { connection: number, from });
            }
        }
        self.free_if_over(number);
    }

    /// Gives a flow's packets back, unread.
    pub(super) fn discard(&mut self, number: u32, from: Side) {
        let Some(connection) = self.table.get(number) else { return };
        let flow = &mut connection.flows[from];
        let mut packets = std::mem::take(&mut flow.packets);
        flow.offset = 0;
        let Party::Guest(guest) = connection.ends[from].party else { return };
        let sender = &mut self.senders[guest];
        while let Some(head) = packets.pop(&sender.places) {
            if let Some(ring) = &mut sender.ring {
                ring.queue.give_back(head);
            }
            sender.taken = sender.taken.saturating_sub(1);
        }
        self.touch_sender(guest);
    }

    /// Forgets a connection when everybody knows that it is over.
    pub(super) fn free_if_over(&mut self, number: u32) {
        let Some(connection) = self.table.get(number) else { return };
        if connection.state != State::Over || !connection.flows.iter().all(|flow| flow.over) {
            return;
        }
        for from in [0, 1] {
            self.discard(number, from);
        }
        if let Some(connection) = self.table.remove(number) {
            self.forget_turns(number, &connection);
            for guest in connection.guests() {
                if let Some(guest) = &mut self.guests[guest] {
                    guest.count(-1);
                }
            }
            self.hosts.close(number);
        }
    }

    /// The next connection of this number has other ends: nothing of it is to be found in their lists.
    fn forget_turns(&mut self, number: u32, connection: &Connection) {
        let others = |turn: &Turn| turn.connection != number;
        for from in [0, 1].into_iter().filter(|&from| connection.flows[from].queued) {
            match connection.ends[1 - from].party {
                Party::Guest(guest) => self.receivers[guest].turns.retain(others),
                Party::Host => self.hosts.turns.retain(others),
            }
            self.held.retain(|(_, turn)| others(turn));
        }
    }
}
