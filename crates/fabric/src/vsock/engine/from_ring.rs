//! Bytes out of a ring of their sender, on their way to a guest that gets packets or to a program
//! on the host. And bytes of the fabric itself, on control connections.

use taut_virtq::device::socket::Piece;
use taut_virtq::fault::RingFault;
use taut_virtq::socket_header::SocketHeader;

use super::looks::{after_taking, take_up_bytes};
use super::path::Turn;
use super::to_host::HostTurn;
use crate::vsock::host::{Broken, MAX_MOVED};
use crate::vsock::proto::{FlowId, GuestIdx, OneWay, Source};
use crate::vsock::queue_pair::{EndId, News, PairFault};
use crate::vsock::sched::Served;

impl Turn<'_> {
    /// Looks for bytes that the sender has written into its ring since the last look: small ones
    /// that are held gather there. Returns `false` if the words are impossible. The connection is
    /// reset then.
    pub(super) fn look_at_ring(&mut self, sender: GuestIdx) -> bool {
        let Some(end) = self.pairs.end(self.connection, self.from) else { return true };
        let Err(fault) = take_up_bytes(end, &mut self.connection.flows[self.from]) else { return true };
        self.pairs.note(News::Fault(sender, EndId::of(self.connection, self.from), fault));
        false
    }

    /// Hands over at most `most` bytes of the sender's ring as one packet.
    pub(super) fn deliver_ring_bytes(
        &mut self,
        header: SocketHeader,
        sender: GuestIdx,
        most: u32,
    ) -> Result<Served, RingFault> {
        let flow_id = FlowId { connection: self.id, from: self.from };
        let Some(end) = self.pairs.end(self.connection, self.from) else {
            self.connection.flows[self.from].unframed = 0;
            return Ok(Served::Idle);
        };
        let most = (most.min(self.connection.flows[self.from].unframed) as usize).min(MAX_MOVED);
        let buffer = &mut self.host.buffer;
        buffer.resize(MAX_MOVED, 0);
        let read = end.out.read(&mut buffer[..most]).map_err(PairFault::from);
        let got = match read {
            Ok(got) if got > 0 => got,
            read => {
                let fault = read.err().unwrap_or(PairFault::WentBack(end.out.direction()));
                self.pairs.note(News::Fault(sender, EndId::of(self.connection, self.from), fault));
                return Ok(Served::Idle);
            }
        };
        let receiver = &mut self.guests.receivers[self.guest];
        receiver.deliver(header, std::iter::once(Piece::Bytes(&buffer[..got])))?;
        let flow = &mut self.connection.flows[self.from];
        flow.unframed -= got as u32;
        flow.moved = Some(self.now);
        self.connection.flows[self.from.other()].one_way = OneWay::default();
        self.connection.exchanges.on_moved(self.from);
        let flow = &mut self.connection.flows[self.from];
        flow.held_since = None;
        flow.on_ring_bytes_delivered(got as u32);
        flow.on_header_delivered(&header);
        self.guests.count_from_ring(sender, got as u64);
        self.count_delivered(got as u32);
        after_taking(self.pairs, &mut self.sched.turns.pace, flow_id, self.connection, self.now);
        Ok(Served::More)
    }

    /// Hands over at most `most` bytes of the receiver's own ring, which it has left unread.
    pub(super) fn deliver_returned(&mut self, header: SocketHeader, most: u32) -> Result<Served, RingFault> {
        let Some(end) = self.pairs.end(self.connection, self.from.other()) else {
            self.connection.flows[self.from].returned = 0;
            return Ok(Served::Idle);
        };
        let flow = &mut self.connection.flows[self.from];
        let len = most.min(flow.returned).min(MAX_MOVED as u32);
        let buffer = &mut self.host.buffer;
        buffer.resize(MAX_MOVED, 0);
        let bytes = &mut buffer[..len as usize];
        end.into.copy_back(flow.returned, bytes);
        self.guests.receivers[self.guest].deliver(header, std::iter::once(Piece::Bytes(bytes)))?;
        flow.returned -= len;
        flow.moved = Some(self.now);
        flow.held_since = None;
        flow.on_ring_bytes_delivered(len);
        flow.on_header_delivered(&header);
        if flow.returned == 0 {
            self.pairs.note_left(self.connection);
        }
        // The bytes were counted when they went into the ring.
        self.count_delivered(0);
        self.sched.unpublished.bytes += len;
        Ok(Served::More)
    }

    /// Hands over at most `most` bytes that the fabric has to say on a control connection.
    pub(super) fn deliver_own_bytes(&mut self, header: SocketHeader, most: u32) -> Result<Served, RingFault> {
        let flow = &mut self.connection.flows[self.from];
        let Some(control) = self.pairs.control(self.id) else {
            flow.unframed = 0;
            return Ok(Served::Idle);
        };
        let bytes = control.bytes();
        let bytes = &bytes[..control.waiting().min(most) as usize];
        let receiver = &mut self.guests.receivers[self.guest];
        if !receiver.deliver(header, std::iter::once(Piece::Bytes(bytes)))? {
            return Ok(Served::Full);
        }
        control.sent(bytes.len());
        flow.unframed = control.waiting();
        flow.held_since = None;
        flow.window.on_delivered(bytes.len() as u32);
        flow.on_header_delivered(&header);
        self.count_delivered(bytes.len() as u32);
        Ok(Served::More)
    }
}

impl HostTurn<'_> {
    /// Writes the bytes of the guest's ring, as far as the socket takes them, once no packet is
    /// left that goes before them.
    pub(super) fn write_ring_bytes(&mut self) -> Result<(), Broken> {
        let Self { flow: flow_id, guest, connection, stream, sched, pairs, buffer, guests, .. } = self;
        let in_turn = &mut self.written;
        let from = flow_id.from;
        let runs = guests.senders[*guest].ring.is_some();
        if !runs || connection.flows[from].source() != Some(Source::Unframed) {
            return Ok(());
        }
        let Some(end) = pairs.end(connection, from) else {
            connection.flows[from].unframed = 0;
            return Ok(());
        };
        let flow = &mut connection.flows[from];
        buffer.resize(MAX_MOVED, 0);
        let mut written = 0;
        let mut fault = None;
        while stream.writable && flow.unframed > 0 && *in_turn + written < MAX_MOVED {
            let most = (flow.unframed as usize).min(MAX_MOVED);
            match end.out.peek(0, &mut buffer[..most]) {
                Ok(0) => fault = Some(PairFault::WentBack(end.out.direction())),
                Err(words) => fault = Some(words.into()),
                Ok(got) => {
                    let taken = stream.write(&buffer[..got])?;
                    end.out.skip(taken);
                    flow.unframed -= taken as u32;
                    written += taken;
                    continue;
                }
            }
            break;
        }
        if let Some(fault) = fault {
            pairs.note(News::Fault(*guest, EndId::of(connection, from), fault));
            return Ok(());
        }
        *in_turn += written;
        guests.count_from_ring(*guest, written as u64);
        if written > 0 {
            connection.exchanges.on_moved(from);
        }
        let is_left = connection.flows[from].unframed > 0;
        after_taking(pairs, &mut sched.turns.pace, *flow_id, connection, self.now);
        if is_left && stream.writable {
            sched.turns.queue(*flow_id, connection);
        }
        Ok(())
    }
}
