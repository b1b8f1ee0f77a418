//! A packet socket: a network card of the host as a port.
//!
//! A virtio-net header precedes each frame. Frames that are sent go from their sender's memory into
//! the kernel, a run of them by one system call. Received ones are in a ring that kernel and
//! process share.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use taut_api::fabric::message::PacketSocket;
use taut_api::fabric::{DropReason, ForeignFd};
use taut_virtq::device::{FIRST_BYTES, TxQueue};
use taut_virtq::header::{self, NetHeader};

use super::frame::{Body, Failure, Frame, Put};
use crate::net::ethernet::{HEADER, TAG};
use crate::net::software_offload::{NO_OFFLOADS, Offloads};
use crate::net::vlan::TagEdit;
use crate::sys::counters::PortBlock;
use crate::sys::packet_ring::{Received, Ring, SPARE};

/// Length of the virtio-net header before each frame, which has no `num_buffers`.
const SHORT_HEADER: usize = header::LEN - size_of::<u16>();
/// Length of the two addresses, behind which a tag has its place.
const ADDRESSES: usize = HEADER - size_of::<u16>();

/// Frames from the card.
#[derive(Debug)]
pub struct Tx {
    ring: Ring,
    /// The frame that [`Self::first`] returns.
    held: Option<Held>,
    /// Counters of the port, for frames that are dropped here.
    counters: PortBlock,
}

/// A frame in its slot.
#[derive(Debug, Clone, Copy)]
struct Held {
    header: NetHeader,
    at: usize,
    len: usize,
}

impl Tx {
    /// Maps the ring of a socket.
    pub fn new(socket: &ForeignFd, setup: PacketSocket, counters: PortBlock) -> io::Result<Self> {
        let ring = Ring::map(socket, setup.ring)?;
        Ok(Self { ring, held: None, counters })
    }

    /// The next frame: the same one until [`Self::taken`] is called.
    pub fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure> {
        while self.held.is_none() {
            let Some(received) = self.ring.first() else { return Ok(None) };
            if received.marked {
                restore(&received, self.ring.slot());
            } else if save(&received, self.ring.slot()) {
                self.ring.mark();
            }
            self.held = hold(received, self.ring.slot());
            if self.held.is_none() {
                self.counters.drop_from(DropReason::Oversize);
                self.ring.advance();
            }
        }
        let held = self.held;
        Ok(held.and_then(|held| Some((held.header, self.ring.slot().get(held.at..held.at + held.len)?))))
    }

    /// Tells whether there is a frame.
    pub fn has_frame(&mut self) -> bool {
        self.held.is_some() || self.ring.first().is_some()
    }

    /// Goes on to the next frame. The kernel gets the slots back by [`Self::release`].
    pub fn taken(&mut self) {
        self.held = None;
        self.ring.advance();
    }

    /// Gives the slots of taken frames back to the kernel: receivers have the frames now. If this
    /// process ends before, the next one delivers them again.
    pub fn release(&mut self) {
        self.ring.release();
    }
}

/// Returns the bytes that change when the tag of a frame is put back: the end of the virtio-net
/// header, which is read before, and the two addresses. `None` for an impossible slot.
fn edited(received: &Received) -> Option<Range<usize>> {
    let begin = received.at.checked_sub(TAG).filter(|begin| *begin >= SPARE.end)?;
    Some(begin..received.at + ADDRESSES)
}

/// Saves the bytes that change when the tag of a frame is put back. Returns `false` if nothing will
/// change.
fn save(received: &Received, slot: &mut [u8]) -> bool {
    match edited(received) {
        Some(edited) if received.tag.is_some() && edited.end <= slot.len() => {
            slot.copy_within(edited, SPARE.start);
            true
        }
        _ => false,
    }
}

/// Undoes the change of a process that ended while it had the frame. The saved bytes stay.
fn restore(received: &Received, slot: &mut [u8]) {
    if let Some(edited) = edited(received).filter(|edited| edited.end <= slot.len()) {
        slot.copy_within(SPARE, edited.start);
    }
}

/// Puts the tag of a frame back into it, and reads its virtio-net header. Returns `None` for a
/// frame that the slot has only in part.
fn hold(received: Received, slot: &mut [u8]) -> Option<Held> {
    let Received { mut at, mut len, is_whole, tag, .. } = received;
    let begin = at.checked_sub(SHORT_HEADER).filter(|begin| is_whole && *begin >= SPARE.end)?;
    let mut bytes = [0; header::LEN];
    bytes[..SHORT_HEADER].copy_from_slice(slot.get(begin..at)?);
    let mut header = NetHeader::from_bytes(&bytes);
    if let Some(tag) = tag
        && len >= HEADER
    {
        // The end of the virtio-net header, which is read already, makes room for the tag.
        slot.copy_within(at..at + ADDRESSES, at - TAG);
        at -= TAG;
        len += TAG;
        slot[at + ADDRESSES..at + ADDRESSES + TAG].copy_from_slice(&tag);
        header = TagEdit::Insert(u16::from_be_bytes([tag[2], tag[3]])).header(&header);
    }
    Some(Held { header, at, len })
}

/// Beginning of a frame that is sent in a run: its virtio-net header and its first bytes.
#[derive(Debug)]
pub struct Head {
    bytes: [u8; SHORT_HEADER + FIRST_BYTES + TAG],
    len: usize,
}

impl Head {
    /// Joins a header and first bytes, of which there are at most [`FIRST_BYTES`] and a tag.
    #[inline]
    pub fn new(header: &NetHeader, start: &[u8]) -> Self {
        let mut head = Self { bytes: [0; SHORT_HEADER + FIRST_BYTES + TAG], len: SHORT_HEADER + start.len() };
        head.bytes[..SHORT_HEADER].copy_from_slice(&header.to_bytes()[..SHORT_HEADER]);
        head.bytes[SHORT_HEADER..head.len].copy_from_slice(start);
        head
    }
}

impl AsRef<[u8]> for Head {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Frames to the card.
#[derive(Debug)]
pub struct Rx {
    socket: Arc<ForeignFd>,
    /// The offloads that the kernel does if the card does not.
    pub offloads: Offloads,
}

impl Rx {
    /// Creates the sending end of a socket.
    pub fn new(socket: Arc<ForeignFd>, setup: PacketSocket) -> Self {
        let offloads = Offloads { uso4: setup.uso, uso6: setup.uso, ..Offloads::TCP };
        Self { socket, offloads }
    }

    /// Sends a frame from the memory in which it lies.
    pub fn put(&mut self, frame: &Frame<'_>) -> Put {
        match frame.body {
            Body::Guest(body) => {
                let header = frame.header.to_bytes();
                outcome(body.write_to(self.socket.as_fd(), &header[..SHORT_HEADER]))
            }
            Body::Host(bytes) => self.send(&frame.header, bytes),
        }
    }

    /// Sends frames of a guest's last look from the memory in which they lie, from frame `first` on
    /// and one for each [`Head`] in `heads`.
    ///
    /// `after` gets [`Put::Done`] with the number of frames that the kernel has taken, or what
    /// became of the next frame, with 1. It returns `false` to end the run there.
    pub fn put_run(
        &mut self,
        queue: &TxQueue,
        first: usize,
        heads: &[impl AsRef<[u8]>],
        mut after: impl FnMut(usize, Put) -> bool,
    ) {
        queue.send_run(first, heads, self.socket.as_fd(), |sent| match sent {
            Ok(count) => after(count, Put::Done),
            Err(error) => after(1, outcome(Err(error))),
        });
    }

    /// Sends a finished frame: one without offloads.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Put {
        self.send(&NO_OFFLOADS, bytes)
    }

    fn send(&self, header: &NetHeader, bytes: &[u8]) -> Put {
        let header = header.to_bytes();
        let parts = [IoSlice::new(&header[..SHORT_HEADER]), IoSlice::new(bytes)];
        outcome(rustix::io::writev(&self.socket, &parts).map_err(io::Error::from))
    }
}

/// Translates the result of sending.
fn outcome(sent: io::Result<usize>) -> Put {
    let Err(error) = sent else { return Put::Done };
    match Errno::from_io_error(&error) {
        Some(Errno::AGAIN) => Put::NotNow(DropReason::RingFull),
        Some(Errno::NXIO | Errno::NODEV) => {
            Put::Failed(Failure::Gone("the network interface is gone".to_owned()))
        }
        Some(Errno::NETDOWN) => Put::Refused(DropReason::PortDown),
        Some(Errno::MSGSIZE) => Put::Refused(DropReason::Oversize),
        // ENOBUFS: the queue of the card is full. EINVAL: the kernel rejects the header.
        _ => Put::Refused(DropReason::DeviceRefused),
    }
}

#[cfg(test)]
mod tests {
    use taut_virtq::header::{GSO_TCPV4, NEEDS_CSUM};

    use super::*;

    /// A slot with this frame behind its virtio-net header.
    fn slot(header: NetHeader, frame: &[u8]) -> (Received, Vec<u8>) {
        let at = 66 + SHORT_HEADER;
        let mut slot = vec![0xee; 66];
        slot.extend(&header.to_bytes()[..SHORT_HEADER]);
        slot.extend(frame);
        slot.resize(2048, 0xee);
        (Received { at, len: frame.len(), is_whole: true, tag: None, marked: false }, slot)
    }

    #[test]
    fn a_tag_that_the_kernel_took_out_is_put_back() {
        let plain: Vec<u8> = (0..90).collect();
        let tagged = [&plain[..12], &[0x81, 0, 0xa0, 7], &plain[12..]].concat();
        let header = NetHeader {
            flags: NEEDS_CSUM,
            gso_type: GSO_TCPV4,
            hdr_len: 54,
            csum_start: 34,
            ..NetHeader::default()
        };
        let (received, mut slot) = slot(header, &plain);
        let held = hold(received, &mut slot).unwrap();
        assert_eq!((held.header, &slot[held.at..held.at + held.len]), (header, &plain[..]));
        let received = Received { tag: Some([0x81, 0, 0xa0, 7]), ..received };
        let held = hold(received, &mut slot).unwrap();
        assert_eq!(slot[held.at..held.at + held.len], tagged);
        assert_eq!((held.header.csum_start, held.header.hdr_len), (38, 58));
    }

    #[test]
    fn a_successor_puts_the_tag_back_once() {
        let plain: Vec<u8> = (0..90).collect();
        let header = NetHeader { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 6, ..NetHeader::default() };
        let (received, mut slot) = slot(header, &plain);
        let received = Received { tag: Some([0x81, 0, 0xa0, 7]), ..received };
        assert!(save(&received, &mut slot));
        let saved = slot.clone();
        let held = hold(received, &mut slot).unwrap();
        let first = (held.header, slot[held.at..held.at + held.len].to_vec());
        // The process may have ended anywhere between saving and the last changed byte.
        let whole = slot.clone();
        for changed in 0..=edited(&received).unwrap().len() {
            let mut slot = saved.clone();
            let edited = edited(&received).unwrap();
            slot[edited.start..edited.start + changed]
                .copy_from_slice(&whole[edited.start..edited.start + changed]);
            for again in 0..2 {
                restore(&received, &mut slot);
                let held = hold(received, &mut slot).unwrap();
                let found = (held.header, slot[held.at..held.at + held.len].to_vec());
                assert_eq!(found, first, "{changed} bytes, {again}");
            }
        }
        assert!(!save(&Received { tag: None, ..received }, &mut slot), "nothing changes");
    }

    #[test]
    fn parts_of_frames_and_impossible_slots_are_dropped() {
        let (received, mut slot) = slot(NO_OFFLOADS, &[1; 60]);
        assert!(hold(Received { is_whole: false, ..received }, &mut slot).is_none());
        assert!(hold(Received { at: 4, ..received }, &mut slot).is_none());
        assert!(hold(Received { at: 50, ..received }, &mut slot).is_none());
        assert!(hold(Received { at: 5000, ..received }, &mut slot).is_none());
        let beyond = Received { at: 5000, tag: Some([0x81, 0, 0, 1]), ..received };
        assert!(!save(&beyond, &mut slot));
        restore(&beyond, &mut slot);
        let short = Received { len: 8, tag: Some([0x81, 0, 0, 1]), ..received };
        assert_eq!(hold(short, &mut slot).unwrap().len, 8, "the switch drops it");
    }
}
