//! Packets from guests: checked, and put where their receiver finds them (virtio 1.2, 5.10.6).

use std::time::Instant;

use taut_api::fabric::counters::SocketWord;
use taut_api::vmci::Cid;
use taut_virtq::device::socket::Packet;
use taut_virtq::socket_header::{
    CREDIT_REQUEST, CREDIT_UPDATE, REQUEST, RESPONSE, RST, RW, SEQPACKET, SHUTDOWN, SHUTDOWN_RCV,
    SHUTDOWN_SEND, STREAM, SocketHeader,
};

use super::News;
use super::connection::{Credit, End, Party, Side, State, Turn};
use super::guest::{MOST_REPLIES, MOST_TAKEN};
use super::hub::Hub;

/// Packets taken from one guest in a row; then others have their turn.
const BURST: usize = 64;
/// A guest's violations are told no more often than that.
const TELL_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It stays in its ring until its receiver has it.
    Waits,
    /// It is dealt with.
    Done,
}

impl Hub {
    /// Takes what a guest has sent; `true` if there was anything.
    pub(super) fn take_from(&mut self, guest: usize, now: Instant) -> bool {
        let mut taken = 0;
        while taken < BURST {
            let sender = &mut self.senders[guest];
            let listens = sender.taken < MOST_TAKEN && self.receivers[guest].replies.len() < MOST_REPLIES;
            let Some(ring) = sender.ring.as_mut().filter(|_| listens) else { break };
            match ring.queue.take() {
                Ok(Some(packet)) => {
                    taken += 1;
                    if self.arrive(guest, &packet, now) == Fate::Done {
                        self.give_back(guest, packet.head);
                    } else {
                        self.senders[guest].taken += 1;
                    }
                }
                Ok(None) => break,
                Err(fault) => {
                    self.broken(guest, 1, fault.into());
                    return true;
                }
            }
        }
        if taken > 0 {
            self.senders[guest].last = Some(now);
        }
        taken > 0
    }

    fn give_back(&mut self, guest: usize, head: u16) {
        if let Some(ring) = &mut self.senders[guest].ring {
            ring.queue.give_back(head);
            self.touch_sender(guest);
        }
    }

    fn arrive(&mut self, guest: usize, packet: &Packet, now: Instant) -> Fate {
        let header = &packet.header;
        let Some(known) = &self.guests[guest] else { return Fate::Done };
        known.counters.add(SocketWord::TxPackets, 1);
        let own = known.config.cid;
        if header.src_cid != u64::from(own.0) {
            self.count(guest, SocketWord::Forged, 1);
            let what = format!("a packet of context ID {} came from {own}'s device", header.src_cid);
            self.tell_violation(guest, what, now);
            return Fate::Done;
        }
        let payload = if header.op == RW { header.len } else { 0 };
        if packet.payload < payload || !matches!(header.kind, STREAM | SEQPACKET) {
            self.count(guest, SocketWord::Malformed, 1);
            if packet.payload >= payload {
                // A type that is not known (5.10.6.1).
                self.answer_by_reset(guest, header);
            }
            return Fate::Done;
        }
        // Above 32 bits there is nobody.
        let Ok(peer) = u32::try_from(header.dst_cid) else {
            self.refuse(guest, header);
            return Fate::Done;
        };
        let peer = (Cid(peer), header.dst_port);
        let Some((number, side)) = self.table.find((own, header.src_port), peer) else {
            self.of_no_connection(guest, header, peer, now);
            return Fate::Done;
        };
        let Some(connection) = self.table.get(number) else { return Fate::Done };
        if connection.state == State::Over || connection.kind != header.kind {
            if header.op == REQUEST {
                // Its port is in use as long as the other side has not been told of the end.
                self.refuse(guest, header);
            } else if header.op == RST && connection.state == State::Over {
                self.knows(number, side);
            }
            return Fate::Done;
        }
        let credit = Credit { alloc: header.buf_alloc, taken: header.fwd_cnt };
        let towards = &mut connection.flows[1 - side];
        if towards.credit != credit {
            towards.tell_credit(credit);
            if !towards.packets.is_empty() || connection.ends[1 - side].party == Party::Host {
                self.has_turn(Turn { connection: number, from: 1 - side });
            }
        }
        self.operate(guest, number, side, packet, now)
    }

    /// A packet of a connection that is there.
    fn operate(&mut self, guest: usize, number: u32, side: Side, packet: &Packet, now: Instant) -> Fate {
        let header = &packet.header;
        let turn = Turn { connection: number, from: side };
        let Some(connection) = self.table.get(number) else { return Fate::Done };
        let state = connection.state;
        let flow = &mut connection.flows[side];
        match header.op {
            RW if state == State::Open && !flow.ended => {
                flow.packets.push(&mut self.senders[guest].places, packet.head, header.len, header.flags);
                let bytes = u64::from(header.len);
                self.has_turn(turn);
                self.spend_credit(number, side);
                self.count(guest, SocketWord::TxBytes, bytes);
                return Fate::Waits;
            }
            RESPONSE if state == State::Requested && side == 1 => {
                flow.owed.response = true;
                self.accepted(number);
            }
            CREDIT_UPDATE if state == State::Open => {
                self.pass_credit_on(number, side, now);
                return Fate::Done;
            }
            CREDIT_REQUEST if state == State::Open => (flow.owed.ask, flow.asked) = (true, true),
            SHUTDOWN if state == State::Open => {
                flow.owed.shutdown |= header.flags & (SHUTDOWN_RCV | SHUTDOWN_SEND);
                flow.ended |= header.flags & SHUTDOWN_SEND != 0;
            }
            RST => {
                self.reset(number, Some(side));
                return Fate::Done;
            }
            _ => {
                // What the connection's state does not allow: it is over, for both.
                self.count(guest, SocketWord::Malformed, 1);
                self.count(guest, SocketWord::Resets, 1);
                self.reset(number, None);
                return Fate::Done;
            }
        }
        self.has_turn(turn);
        Fate::Done
    }

    fn of_no_connection(&mut self, guest: usize, header: &SocketHeader, peer: (Cid, u32), now: Instant) {
        match header.op {
            REQUEST => self.request(guest, header, peer, now),
            // Nobody has to be told.
            RST => {}
            _ => self.answer_by_reset(guest, header),
        }
    }

    /// A guest asks for a connection. Whoever it may not reach is, to it, not there: the same answer by the same way.
    fn request(&mut self, guest: usize, header: &SocketHeader, (cid, port): (Cid, u32), now: Instant) {
        let Some(asker) = &self.guests[guest] else { return };
        let own = End { cid: asker.config.cid, port: header.src_port, party: Party::Guest(guest) };
        let party = if cid == Cid::HOST {
            // The host's sockets are byte streams.
            (header.kind == STREAM).then_some(Party::Host)
        } else {
            let place = asker.peers.get(&cid).copied();
            place.filter(|&place| self.receivers[place].ring.is_some()).map(Party::Guest)
        };
        let Some(party) = party else { return self.refuse(guest, header) };
        let ends = [own, End { cid, port, party }];
        let Some(number) = self.open(ends, header.kind, now) else {
            self.count(guest, SocketWord::Limited, 1);
            if let Party::Guest(peer) = party {
                self.count(peer, SocketWord::Limited, 1);
            }
            return self.answer_by_reset(guest, header);
        };
        let Some(connection) = self.table.get(number) else { return };
        connection.flows[1].credit = Credit { alloc: header.buf_alloc, taken: header.fwd_cnt };
        if party == Party::Host {
            self.ask_host(guest, number, port);
        } else {
            connection.flows[0].owed.request = true;
            self.has_turn(Turn { connection: number, from: 0 });
        }
    }

    fn refuse(&mut self, guest: usize, header: &SocketHeader) {
        if header.op == REQUEST {
            self.count(guest, SocketWord::Refused, 1);
        }
        if header.op != RST {
            self.answer_by_reset(guest, header);
        }
    }

    /// Tells a guest that what it speaks of is not there.
    fn answer_by_reset(&mut self, guest: usize, header: &SocketHeader) {
        if header.op == RST {
            return;
        }
        self.receivers[guest].replies.push_back(SocketHeader {
            src_cid: header.dst_cid,
            dst_cid: header.src_cid,
            src_port: header.dst_port,
            dst_port: header.src_port,
            len: 0,
            kind: header.kind,
            op: RST,
            flags: 0,
            buf_alloc: 0,
            fwd_cnt: 0,
        });
        self.list(guest);
    }

    /// A side says by itself that a connection is over which the other has ended: it need not be told.
    fn knows(&mut self, number: u32, side: Side) {
        let Some(connection) = self.table.get(number) else { return };
        let flow = &mut connection.flows[1 - side];
        flow.over = true;
        flow.owed = super::connection::Owed::default();
        self.discard(number, 1 - side);
        self.free_if_over(number);
    }

    fn tell_violation(&mut self, guest: usize, what: String, now: Instant) {
        let Some(known) = &mut self.guests[guest] else { return };
        if known.told.is_none_or(|told| now.duration_since(told) >= TELL_AGAIN) {
            known.told = Some(now);
            self.news.push(News::Violation { port: known.config.id, what });
        }
    }
}
