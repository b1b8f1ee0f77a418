//! Packets that were taken from a ring before it stopped, and that are there when it starts again.
//!
//! A transmit ring that starts where it stopped belongs to the same driver: its connections go on,
//! and so do the packets that the driver had sent and not got back.

use std::collections::HashMap;

use taut_api::vmci::Cid;
use taut_virtq::fault::RingFault;
use taut_virtq::socket_header::RW;

use crate::vsock::guest::Sender;
use crate::vsock::proto::{Address, ConnectionTable, FlowId, GuestIdx};

/// Result of taking up a ring's packets.
#[derive(Debug)]
pub(crate) struct TakenUp {
    /// Packets of no connection were given back.
    pub(crate) gave_back: bool,
    /// All packets of the ring, if packets that connections wait for are missing or have another
    /// length. The guest then counts as restarted.
    pub(crate) incomplete: Option<Vec<u16>>,
}

/// Takes up the packets that a predecessor of this ring had taken. Packets of connections that go
/// on, or whose receiver is still to be handed them before a reset, are queued again. All others
/// are given back.
///
/// Connections of this process already have their packets queued. After a takeover, the packets in
/// the ring are queued anew.
pub(crate) fn take_up_packets(
    guest: GuestIdx,
    own: Cid,
    sender: &mut Sender,
    table: &mut ConnectionTable,
) -> Result<TakenUp, RingFault> {
    let known = waiting_packets(guest, sender, table);
    let (mut gave_back, mut same) = (false, true);
    sender.taken = known.len();
    let Some(ring) = &mut sender.ring else { return Ok(TakenUp { gave_back, incomplete: None }) };
    while ring.queue.again() > 0 {
        let Some(packet) = ring.queue.take()? else { break };
        let header = packet.header;
        if let Some(&len) = known.get(&packet.head) {
            same &= header.len == len && packet.payload >= len;
            continue;
        }
        let from = Address { cid: own, port: header.src_port };
        let peer = u32::try_from(header.dst_cid).map_or(Cid(0), Cid);
        let found = table.find(from, Address { cid: peer, port: header.dst_port });
        if let Some((id, side, connection)) = found
            && connection.flows[side].packets_unknown
            && header.op == RW
            && packet.payload >= header.len
        {
            let packets = &mut connection.flows[side].packets;
            packets.push(
                &mut sender.slots,
                FlowId { connection: id, from: side },
                packet.head,
                header.len,
                header.flags,
            );
            sender.taken += 1;
        } else {
            ring.queue.give_back(packet.head);
            gave_back = true;
        }
    }
    let taken: Vec<u16> = ring.queue.taken().collect();
    let complete = same && known.keys().all(|packet| taken.contains(packet));
    Ok(TakenUp { gave_back, incomplete: (!complete).then_some(taken) })
}

/// Packets that connections of this guest wait for: number and length.
fn waiting_packets(guest: GuestIdx, sender: &Sender, table: &ConnectionTable) -> HashMap<u16, u32> {
    let flows = table.of(guest).map(|connection| &connection.flows[connection.side_of(guest)]);
    flows
        .flat_map(|flow| flow.packets.iter(&sender.slots).map(|(packet, queued)| (packet, queued.len)))
        .collect()
}
