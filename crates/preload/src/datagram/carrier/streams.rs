//! The streams of a carrier: opens, accepts and ends them.

use std::cmp::Reverse;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, getpeername};

use super::super::Address;
use super::super::peer::Peer;
use super::super::slots::MOST_PEERS;
use super::{Carrier, RETRY};
use crate::say::tell;
use crate::sys::{Name, at};

/// Most streams that are accepted in a row.
const MOST_ACCEPTED: usize = 16;

impl Carrier {
    /// Opens a stream to an address. Returns the index of the new peer.
    pub(super) fn dial(&mut self, to: Address, now: Instant) -> Option<usize> {
        self.make_room(to.cid);
        let peer = Peer::dial(self.slot, to, now).inspect_err(|error| {
            tell!("datagram to cid {} port {}: lost: {error}", to.cid, to.port);
        });
        self.peers.push(peer.ok()?);
        Some(self.peers.len() - 1)
    }

    /// Accepts the streams that other carriers have opened.
    pub(super) fn accept(&mut self, now: Instant) {
        for _ in 0..MOST_ACCEPTED {
            match self.accept_one(now) {
                Ok(()) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                // The process may have no descriptor left. The listener stays readable.
                Err(error) => {
                    tell!("datagrams: no stream is accepted: {error}");
                    self.accepts_from = Some(now + RETRY);
                    return;
                }
            }
        }
    }

    fn accept_one(&mut self, now: Instant) -> Result<(), Errno> {
        const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
        let socket = accept_with(at(self.slot.listener())?, FLAGS)?;
        if let Ok(Some(Name::Vsock(from))) = getpeername(&socket).map(|name| name.map(Name::from)) {
            self.make_room(from.cid);
            self.peers.push(Peer::accepted(self.slot, &socket, from.cid, now)?);
        }
        Ok(())
    }

    /// Ends a stream if there are too many for one more with this machine.
    fn make_room(&mut self, cid: u32) {
        if self.peers.len() < MOST_PEERS {
            return;
        }
        let candidates: Vec<_> = self.peers.iter().map(Candidate::of).collect();
        if let Some(index) = to_be_ended(&candidates, cid) {
            self.forget(index);
        }
    }

    /// Ends a stream. The others keep their order: of two streams with one address, which two
    /// carriers make that dial each other at once, each carrier uses the first one.
    pub(super) fn forget(&mut self, index: usize) {
        let peer = self.peers.remove(index);
        self.lost += peer.waiting + peer.inbox.count();
        if index < self.first {
            self.first -= 1;
        }
    }
}

/// A stream that may be ended for a new one, as far as the choice depends on it.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    cid: u32,
    is_idle: bool,
    last_datagram: Instant,
}

impl Candidate {
    fn of(peer: &Peer) -> Self {
        Self { cid: peer.cid, is_idle: peer.is_idle(), last_datagram: peer.last_datagram }
    }
}

/// Chooses the stream to be ended for a new one with the machine `new`: one of the machine that has
/// the most streams, so that no machine ends the streams of those that have fewer. An idle one is
/// preferred, then the one that was used the longest time ago.
fn to_be_ended(candidates: &[Candidate], new: u32) -> Option<usize> {
    let count = |cid: u32| {
        let open = candidates.iter().filter(|one| one.cid == cid).count();
        open + usize::from(cid == new)
    };
    let key = |one: &Candidate| (Reverse(count(one.cid)), one.cid != new, !one.is_idle, one.last_datagram);
    candidates.iter().enumerate().min_by_key(|(_, one)| key(one)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Candidates that were used one after the other.
    fn candidates(all: &[(u32, bool)]) -> Vec<Candidate> {
        let start = Instant::now();
        let times = (0..).map(|index| start + Duration::from_secs(index));
        let all = all.iter().zip(times);
        all.map(|(&(cid, is_idle), last_datagram)| Candidate { cid, is_idle, last_datagram }).collect()
    }

    #[test]
    fn the_machine_with_the_most_streams_loses_one() {
        let all = candidates(&[(3, true), (4, true), (4, true), (4, true), (5, true), (5, true)]);
        assert_eq!(to_be_ended(&all, 3), Some(1));
        assert_eq!(to_be_ended(&all, 4), Some(1));
        // With the new stream, 5 would have as many as 4.
        assert_eq!(to_be_ended(&all, 5), Some(4));
        assert_eq!(to_be_ended(&[], 3), None);
    }

    #[test]
    fn an_idle_stream_is_ended_before_one_in_use_then_the_oldest() {
        let all = candidates(&[(3, false), (3, false), (3, true), (3, true)]);
        assert_eq!(to_be_ended(&all, 3), Some(2));
        assert_eq!(to_be_ended(&all[..2], 3), Some(0));
    }
}
