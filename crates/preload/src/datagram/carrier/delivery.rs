//! The way from the peers of a carrier to its program.

use std::io::IoSlice;
use std::os::fd::RawFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::super::peer::Peer;
use super::{Carrier, Events};
use crate::say::tell;
use crate::sys::at;

impl Carrier {
    /// The peers in the order in which they are served.
    fn in_turn(&self) -> Vec<RawFd> {
        let (last, first) = self.peers.split_at(self.first.min(self.peers.len()));
        first.iter().chain(last).map(Peer::fd).collect()
    }

    fn index_of(&self, fd: RawFd) -> Option<usize> {
        self.peers.iter().position(|peer| peer.fd() == fd)
    }

    /// Serves the peers that have events.
    pub(super) fn serve_all(&mut self, events: &Events, now: Instant) {
        for fd in self.in_turn() {
            if !events.of(fd).is_empty()
                && let Some(index) = self.index_of(fd)
                && self.serve(index, now).is_err()
            {
                self.forget(index);
            }
        }
    }

    /// Passes what was received from all peers to the program, as long as it has room.
    pub(super) fn deliver_all(&mut self) {
        for fd in self.in_turn() {
            if let Some(index) = self.index_of(fd)
                && self.deliver(index).is_err()
            {
                self.forget(index);
            }
        }
    }

    /// Serves a peer that has events. An error means that the stream is over.
    fn serve(&mut self, index: usize, now: Instant) -> Result<(), Errno> {
        let Self { peers, room, .. } = self;
        let peer = &mut peers[index];
        peer.connected()?;
        if peer.flush(now).is_err() {
            // Datagrams that the peer has sent before are still received.
            self.lost += peer.give_up();
        }
        if !peer.may_fill(self.is_full) {
            return Ok(());
        }
        peer.is_over |= peer.fill(room, now).is_err();
        self.deliver(index)
    }

    /// Passes received datagrams to the program, as long as it has room. An error means that the
    /// stream is over, and all that came before is delivered.
    fn deliver(&mut self, index: usize) -> Result<(), Errno> {
        let peer = &mut self.peers[index];
        let Some(from) = peer.address() else {
            return if peer.is_over { Err(Errno::CONNRESET) } else { Ok(()) };
        };
        let is_wanted = self.slot.peer().is_none_or(|wanted| wanted == from);
        let mut delivered = 0;
        while !self.is_full
            && let Some(datagram) = peer.inbox.first()?
        {
            let len = datagram.len();
            if is_wanted && self.ended.is_none() {
                let header = from.to_bytes();
                let parts = [IoSlice::new(&header), IoSlice::new(datagram)];
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let carrier_end = at(self.slot.carrier_end())?;
                match sendmsg(carrier_end, &parts, &mut SendAncillaryBuffer::default(), flags) {
                    Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                        self.is_full = true;
                        // One that got no room stays the first.
                        self.first = index + usize::from(delivered > 0);
                        return Ok(());
                    }
                    Err(Errno::INTR) => continue,
                    // The program's socket is closed, which the next look at it finds.
                    Ok(_) | Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::CONNREFUSED) => {}
                    Err(error) => {
                        tell!(
                            "datagram of {len} bytes from cid {} port {}: lost: {error}",
                            from.cid,
                            from.port
                        );
                        self.lost += 1;
                    }
                }
            }
            peer.inbox.remove(len);
            delivered += 1;
        }
        if peer.is_over && !self.is_full { Err(Errno::CONNRESET) } else { Ok(()) }
    }
}
