//! The protocol's steps at the beginning and the end of a connection.

use taut_virtq::socket_header::{SHUTDOWN_RCV, SHUTDOWN_SEND};

use super::actions::Actions;
use super::connection::{Connection, State};
use super::credit::Credit;
use super::ids::Side;
use super::pending_control::PendingControl;
use super::promise::Pledged;

impl Connection {
    /// Sets the credit that a side gives at first. `pledged` is what was promised for that
    /// side, if the connection is one between guests.
    pub(crate) fn grant_credit(&mut self, by: Side, credit: Credit, pledged: Option<&mut Pledged>) {
        let flow = &mut self.flows[by.other()];
        match pledged {
            Some(pledged) => flow.on_credit(credit, self.socket_type, pledged),
            None => flow.window.credit = credit,
        }
    }

    /// Opens a requested connection. Returns `true` if the request was unanswered until now.
    pub(crate) fn accept(&mut self) -> bool {
        let answered = self.state == State::Requested;
        if answered {
            self.state = State::Open;
        }
        answered
    }

    /// Ends the connection at the wish of side `by`, or for both sides. A side that does not know
    /// is to be sent a reset, behind all payload that it is still to be sent.
    ///
    /// Without `by`, waiting payload is discarded instead.
    pub(crate) fn reset(&mut self, by: Option<Side>, actions: &mut Actions) {
        actions.rare.answered |= self.state == State::Requested;
        self.state = State::Over;
        for from in Side::BOTH {
            let flow = &mut self.flows[from];
            // A receiver that was never sent the request need not be told of the end.
            let knows = by == Some(from.other()) || flow.pending.request;
            if by.is_none() {
                flow.pending = PendingControl::default();
                flow.advertised.update_deferred = false;
                flow.cut = true;
            }
            flow.ended = true;
            flow.over |= knows;
            if flow.over || by.is_none() {
                actions.rare.discard.add(from);
            }
            if !flow.over {
                flow.pending.reset = true;
                actions.ready.add(from);
            }
        }
        actions.rare.closed |= self.is_closed();
    }

    /// Ends the connection as [`Self::reset`] does. Returns the actions.
    pub(crate) fn end(&mut self, by: Option<Side>) -> Actions {
        let mut actions = Actions::default();
        self.reset(by, &mut actions);
        actions
    }

    /// Drops the control packets of a side that still wait for the other side, except for the
    /// reset. The connection is over, and no payload of the side is left.
    pub(crate) fn withdraw(&mut self, side: Side) {
        let flow = &mut self.flows[side];
        flow.pending = PendingControl { reset: flow.pending.reset, ..PendingControl::default() };
        flow.advertised.update_deferred = false;
    }

    /// Handles a reset of a connection that is over already: its sender need not be told of the
    /// end.
    pub(super) fn on_late_reset(&mut self, by: Side, actions: &mut Actions) {
        let from = by.other();
        let flow = &mut self.flows[from];
        flow.over = true;
        flow.pending = PendingControl::default();
        actions.rare.discard.add(from);
        actions.rare.closed = self.is_closed();
    }
}

/// Steps of a connection with the host, or with the fabric itself. That side has no kernel that
/// speaks the protocol: the fabric speaks it.
impl Connection {
    /// Decides whether the guest is told how much of its payload was taken: it has asked for that,
    /// or it has filled a quarter of the `buffer` since it was told last. `advertised` is the count
    /// of bytes that it was told then. If it is told, the caller queues the other side's flow.
    pub(crate) fn credit_news(&mut self, from: Side, advertised: &mut u32, buffer: u32) -> bool {
        let flow = &mut self.flows[from];
        let asked = std::mem::take(&mut flow.pending.credit_request);
        flow.pending.credit_update = false;
        flow.window.unread = 0;
        let sent = flow.window.sent;
        let is_due = asked || sent.wrapping_sub(*advertised) >= buffer / 4;
        if is_due {
            *advertised = sent;
            self.flows[from.other()].pending.credit_update = true;
        }
        is_due
    }

    /// Handles the guest's shutdown or reset, after its payload was written to the program's
    /// socket. `writable` tells whether the socket takes more. Returns the shutdown bits for the
    /// socket.
    pub(crate) fn on_host_written(&mut self, from: Side, writable: bool, actions: &mut Actions) -> u32 {
        let flow = &mut self.flows[from];
        if flow.has_payload() {
            if flow.pending.reset && !writable {
                // The program does not read what is left, and the guest no longer waits for it.
                actions.rare.discard.add(from);
                self.host_is_told(from, actions);
            }
            return 0;
        }
        if flow.pending.reset {
            self.host_is_told(from, actions);
            return 0;
        }
        let bits = std::mem::take(&mut flow.pending.shutdown);
        let host = from.other();
        // A program that may still leave its ring is to be handed the rest before the end.
        let host_ended = self.flows[host].ended && !self.withholds_end(host);
        if bits == SHUTDOWN_RCV | SHUTDOWN_SEND || bits & SHUTDOWN_SEND != 0 && host_ended {
            // A guest would answer by a reset.
            self.reset(Some(host), actions);
        }
        bits
    }

    /// Notes that the host's side knows of the connection's end.
    pub(crate) fn host_is_told(&mut self, from: Side, actions: &mut Actions) {
        self.flows[from].over = true;
        actions.rare.closed = self.is_closed();
    }

    /// Handles the end of the program's stream.
    pub(crate) fn on_host_end(&mut self, host: Side, actions: &mut Actions) {
        let guests = &self.flows[host.other()];
        let guest_ended = guests.ended && !guests.has_payload();
        self.flows[host].ended = true;
        // A program that may still leave its ring is to be handed the rest before the end.
        if guest_ended && self.withheld(host) == 0 {
            self.reset(Some(host), actions);
        } else {
            self.flows[host].pending.shutdown |= SHUTDOWN_SEND;
        }
    }
}
