//! Bytes of a guest, on their way to a program on the host.

use std::time::Instant;

use super::VsockSwitch;
use crate::vsock::guest::Guests;
use crate::vsock::host::{Broken, HOST_BUFFER, HostSockets, HostStream, MAX_MOVED};
use crate::vsock::proto::{Actions, Connection, FlowId, GuestIdx, Party};
use crate::vsock::queue_pair::QueuePairs;
use crate::vsock::sched::{Place, Schedule};

/// Bytes after which other work has its turn.
const MAX_BYTES_IN_A_ROW: usize = 1 << 20;

impl VsockSwitch {
    /// Serves each flow towards the host, or the fabric itself, one turn, as far as there is time.
    /// Returns `true` if there was any.
    pub(super) fn deliver_to_host(&mut self) -> bool {
        let flows = self.sched.turns.host_flows();
        let mut bytes = 0;
        for _ in 0..flows {
            if bytes >= MAX_BYTES_IN_A_ROW {
                break;
            }
            let Some(place) = self.sched.turns.next_host_flow() else { break };
            bytes += self.serve_host(place);
        }
        flows > 0
    }

    /// Serves one turn of a flow towards the host. Returns the number of bytes that were written.
    fn serve_host(&mut self, place: Place) -> usize {
        let flow = place.flow;
        let FlowId { connection: id, from } = flow;
        let Self { table, guests, host, sched, pairs, now, .. } = self;
        let Some(connection) = table.get_mut(id).filter(|connection| place.is_of(connection)) else {
            return 0;
        };
        connection.flows[from].queued = false;
        let Party::Guest(guest) = connection.ends[from].party else { return 0 };
        if connection.flows[from].over {
            return 0;
        }
        if connection.ends[from.other()].party == Party::Fabric {
            self.serve_control(flow, guest);
            return 0;
        }
        let HostSockets { streams, buffer, .. } = host;
        let Some(stream) = streams.get_mut(id) else { return 0 };
        let (now, written, actions) = (*now, 0, Actions::default());
        let mut turn =
            HostTurn { flow, guest, now, connection, stream, buffer, guests, sched, pairs, written, actions };
        if turn.serve().is_err() {
            turn.connection.flows[from.other()].cut = true;
            turn.connection.reset(Some(from.other()), &mut turn.actions);
        }
        let HostTurn { connection, sched, written, actions, .. } = turn;
        sched.queue_all(id, connection, actions.ready);
        if actions.rare.any() {
            self.carry_out_rare(id, actions.rare);
        }
        written
    }
}

/// One turn of a flow from a guest to a program on the host.
pub(super) struct HostTurn<'a> {
    pub(super) flow: FlowId,
    /// The guest that sends.
    pub(super) guest: GuestIdx,
    pub(super) now: Instant,
    pub(super) connection: &'a mut Connection,
    pub(super) stream: &'a mut HostStream,
    /// Buffer for bytes on their way, used within the turn.
    pub(super) buffer: &'a mut Vec<u8>,
    pub(super) guests: &'a mut Guests,
    pub(super) sched: &'a mut Schedule,
    pub(super) pairs: &'a mut QueuePairs,
    /// Bytes written in this turn.
    pub(super) written: usize,
    /// Actions to carry out after the turn.
    actions: Actions,
}

impl HostTurn<'_> {
    /// Writes what the guest has for the program, in the order in which a guest would be handed it:
    /// the answer, payload, credit, shutdown, reset.
    fn serve(&mut self) -> Result<(), Broken> {
        let from = self.flow.from;
        if !self.stream.is_attached() {
            // `tautd` has not answered yet. It need not be told that the guest gives up meanwhile.
            if self.connection.flows[from].pending.reset {
                self.connection.host_is_told(from, &mut self.actions);
            }
            return Ok(());
        }
        let answered = self.write_answer()?;
        self.write_payload()?;
        self.write_ring_bytes()?;
        if self.written > 0 {
            self.connection.flows[from].moved = Some(self.now);
        }
        self.update_credit(answered);
        let writable = self.stream.writable;
        let bits = self.connection.on_host_written(from, writable, &mut self.actions);
        self.stream.shut_down(bits);
        Ok(())
    }

    /// Answers the client if the guest has accepted its connection. Returns `true` if it has.
    fn write_answer(&mut self) -> Result<bool, Broken> {
        let from = self.flow.from;
        let answered = std::mem::take(&mut self.connection.flows[from].pending.response);
        if answered {
            self.stream.write_answer(self.connection.ends[from.other()].address.port)?;
        }
        Ok(answered)
    }

    /// Writes the guest's waiting packets, as far as the socket takes them. What was copied out of
    /// the guest's ring goes first.
    fn write_payload(&mut self) -> Result<(), Broken> {
        let flow = &mut self.connection.flows[self.flow.from];
        let sender = &mut self.guests.senders[self.guest];
        let waiting = flow.packets.count;
        if flow.spill.is_some() {
            let before = flow.copied();
            let written = self.stream.write_copied(flow);
            // Bytes are also written before a call that fails.
            sender.copied_for_host -= before - flow.copied();
            self.written += written?;
        }
        if flow.spill.is_none() && self.written < MAX_MOVED {
            self.written += self.stream.write_packets(flow, sender)?;
        }
        // Packets without bytes are given back, too.
        if flow.packets.count < waiting {
            self.sched.unpublished.add_sender(self.guest, sender);
        }
        // Packets in a ring that has stopped are queued again when the ring is back.
        let may_go_on = sender.ring.is_some() && !flow.packets.is_empty()
            || flow.spill.is_some() && flow.packet_bytes() > 0;
        if self.stream.writable && may_go_on {
            self.sched.turns.queue(self.flow, self.connection);
        }
        Ok(())
    }

    /// Queues a credit update to the guest if it is due. After an answer, queues the flow for the
    /// program's bytes.
    fn update_credit(&mut self, answered: bool) {
        let FlowId { connection: id, from } = self.flow;
        let is_due = self.connection.credit_news(from, &mut self.stream.advertised, HOST_BUFFER);
        if answered || is_due {
            self.sched.turns.queue(FlowId { connection: id, from: from.other() }, self.connection);
        }
    }
}
