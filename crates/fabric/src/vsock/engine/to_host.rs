//! Bytes of a guest, on their way to a program on the host.

use super::VsockSwitch;
use crate::vsock::host::HOST_BUFFER;
use crate::vsock::proto::{Actions, FlowId, Party};

impl VsockSwitch {
    /// Serves each flow towards the host one turn. Returns `true` if there was any.
    pub(super) fn deliver_to_host(&mut self) -> bool {
        let flows = self.sched.turns.host_flows();
        for _ in 0..flows {
            let Some(flow) = self.sched.turns.next_host_flow() else { break };
            self.write_to_host(flow);
        }
        flows > 0
    }

    /// Writes what a guest has for the program at the other end, in the order in which a guest
    /// would be handed it: the answer, payload, credit, shutdown, reset.
    fn write_to_host(&mut self, flow_id: FlowId) {
        let FlowId { connection: id, from } = flow_id;
        let host_side = from.other();
        let Self { table, guests, host, sched, .. } = self;
        let Some(connection) = table.get_mut(id) else { return };
        let own_port = connection.ends[host_side].address.port;
        let Party::Guest(guest) = connection.ends[from].party else { return };
        let flow = &mut connection.flows[from];
        flow.queued = false;
        if flow.over {
            return;
        }
        let Some(stream) = host.streams.get_mut(id) else { return };
        let mut actions = Actions::default();
        if !stream.is_attached() {
            // `tautd` has not answered yet. It need not be told that the guest gives up meanwhile.
            if flow.pending.reset {
                connection.host_is_told(from, &mut actions);
                self.carry_out_rare(id, actions.rare);
            }
            return;
        }

        let answered = std::mem::take(&mut flow.pending.response);
        if answered && stream.write_answer(own_port).is_err() {
            return self.end(id, Some(host_side));
        }
        let sender = &mut guests.senders[guest];
        let Ok(written) = stream.write_packets(flow, sender) else {
            return self.end(id, Some(host_side));
        };
        if written > 0 {
            sched.unpublished.add_sender(guest, sender);
        }
        // What waits in a ring that has stopped is queued again when the ring is back.
        let more = stream.writable && sender.ring.is_some() && !flow.packets.is_empty();
        let asked = std::mem::take(&mut flow.pending.credit_request);
        flow.pending.credit_update = false;
        flow.window.unread = 0;
        let sent = flow.window.sent;
        if more {
            sched.turns.queue(flow_id, connection);
        }
        let tells_credit = asked || sent.wrapping_sub(stream.told) >= HOST_BUFFER / 4;
        if tells_credit {
            stream.told = sent;
            connection.flows[host_side].pending.credit_update = true;
        }
        if answered || tells_credit {
            sched.turns.queue(FlowId { connection: id, from: host_side }, connection);
        }

        let bits = connection.on_host_written(from, stream.writable, &mut actions);
        stream.shut_down(bits);
        sched.queue_all(id, connection, actions.ready);
        if actions.rare.any() {
            self.carry_out_rare(id, actions.rare);
        }
    }
}
