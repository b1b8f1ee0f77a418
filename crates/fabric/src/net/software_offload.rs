//! Offloads in software: checksums and segmentation that a sender left to the hardware and its
//! receiver does not accept.
//!
//! The frame has been copied out of guest memory, so it cannot change. It becomes a series of
//! [`Pieces`], each of which can be written by itself: when the receiver fills up in the middle,
//! the rest follows later.

use std::ops::Range;

use taut_api::fabric::DropReason;
use taut_virtq::header::{self, NetHeader};

use super::checksum;
use super::ethernet::{HEADER as ETHERNET, TAG, TAG_8021Q};

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Largest number of segments that a TCP frame may represent: 64 KiB in segments of 48 bytes, the
/// shortest that Linux sends (`tcp_min_snd_mss`). Shorter ones are permitted in shorter frames,
/// because a router merges whatever it receives.
const MOST_TCP_SEGMENTS: usize = 65_536 / 48;
/// Largest number of segments that a UDP frame may represent (Linux's `UDP_MAX_SEGMENTS`).
const MOST_UDP_SEGMENTS: usize = 128;

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// The header of a finished frame: one without offloads.
pub const NO_OFFLOADS: NetHeader = NetHeader {
    flags: 0,
    gso_type: header::GSO_NONE,
    hdr_len: 0,
    gso_size: 0,
    csum_start: 0,
    csum_offset: 0,
    num_buffers: 1,
};

/// The offloads that a receiver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offloads {
    /// Frames with partial checksums.
    pub checksum: bool,
    /// TCP over IPv4 longer than the MTU.
    pub tso4: bool,
    /// TCP over IPv6 longer than the MTU.
    pub tso6: bool,
    /// Either, with the CWR flag of ECN in the first segment.
    pub ecn: bool,
    /// UDP over IPv4 longer than the MTU.
    pub uso4: bool,
    /// UDP over IPv6 longer than the MTU.
    pub uso6: bool,
}

impl Offloads {
    /// No offload: finished frames only.
    pub const NONE: Self =
        Self { checksum: false, tso4: false, tso6: false, ecn: false, uso4: false, uso6: false };
    /// All offloads except UDP segmentation.
    pub const TCP: Self =
        Self { checksum: true, tso4: true, tso6: true, ecn: true, uso4: false, uso6: false };

    /// Tells whether the frame can be handed over as it is. `ether_type` distinguishes UDP over
    /// IPv4 and IPv6, which the header does not.
    #[inline]
    pub fn take(self, header: &NetHeader, ether_type: u16) -> bool {
        if header.flags & header::NEEDS_CSUM == 0 && header.gso_type == header::GSO_NONE {
            return true;
        }
        let segmentation = match header.gso_type & !header::GSO_ECN {
            header::GSO_NONE => true,
            header::GSO_TCPV4 => self.tso4,
            header::GSO_TCPV6 => self.tso6,
            header::GSO_UDP_L4 if ether_type == u16::from_be_bytes(IPV4) => self.uso4,
            header::GSO_UDP_L4 => self.uso6,
            _ => false,
        };
        self.checksum && segmentation && (self.ecn || header.gso_type & header::GSO_ECN == 0)
    }
}

/// Checks that the sender's header is consistent and fits a frame of `len` bytes.
#[inline]
pub fn check_header(header: &NetHeader, len: usize) -> Result<(), DropReason> {
    if header.flags & header::NEEDS_CSUM != 0 {
        let field = usize::from(header.csum_start) + usize::from(header.csum_offset);
        if usize::from(header.csum_start) < ETHERNET || field + 2 > len {
            return Err(DropReason::BadHeader);
        }
    }
    match header.gso_type & !header::GSO_ECN {
        header::GSO_NONE if header.gso_type == header::GSO_NONE => Ok(()),
        header::GSO_TCPV4 | header::GSO_TCPV6 | header::GSO_UDP_L4 if header.gso_size > 0 => Ok(()),
        _ => Err(DropReason::BadHeader),
    }
}

/// A frame as the series of finished frames that it represents.
#[derive(Debug)]
pub struct Pieces<'a> {
    frame: &'a [u8],
    work: Work,
}

/// The work to be done.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// Complete one checksum: sum from `start` to the end, store at `field`.
    Checksum { start: usize, field: usize },
    /// Cut the payload into segments.
    Segments(Layout),
}

/// The layout of a frame to be cut.
#[derive(Debug, Clone, Copy)]
struct Layout {
    v4: bool,
    tcp: bool,
    /// Offset of the IP header, behind a VLAN tag if there is one.
    l3: usize,
    /// Offset of the TCP or UDP header.
    l4: usize,
    /// Offset of the payload. Each segment repeats everything before it.
    payload: usize,
    /// Payload bytes in a segment.
    size: usize,
}

impl<'a> Pieces<'a> {
    /// Analyses a frame whose header has passed [`check_header`].
    pub fn of(frame: &'a [u8], header: &NetHeader) -> Result<Self, DropReason> {
        let work = if header.gso_type == header::GSO_NONE {
            let start = usize::from(header.csum_start);
            Work::Checksum { start, field: start + usize::from(header.csum_offset) }
        } else {
            Work::Segments(Layout::of(frame, header)?)
        };
        Ok(Self { frame, work })
    }

    /// Number of pieces, at least one.
    pub fn count(&self) -> usize {
        match self.work {
            Work::Checksum { .. } => 1,
            Work::Segments(layout) => layout.segments(self.frame),
        }
    }

    /// Writes piece `index` into `out`, which holds [`super::ethernet::MAX_TAGGED`] bytes, and
    /// returns its length.
    pub fn write(&self, index: usize, out: &mut [u8]) -> usize {
        match self.work {
            Work::Checksum { start, field } => {
                let out = &mut out[..self.frame.len()];
                out.copy_from_slice(self.frame);
                // The field holds the sum of the pseudo header, which belongs to the sum.
                let sum = checksum::fold(checksum::add(0, &out[start..]));
                // In UDP, zero means "no checksum"; 0xffff is the other representation of zero.
                let sum = if sum == 0 { 0xffff } else { sum };
                out[field..field + 2].copy_from_slice(&sum.to_be_bytes());
                out.len()
            }
            Work::Segments(layout) => {
                let last = index + 1 == self.count();
                layout.write(self.frame, index, last, out)
            }
        }
    }
}

impl Layout {
    fn of(frame: &[u8], header: &NetHeader) -> Result<Self, DropReason> {
        let bad = DropReason::BadHeader;
        let byte = |at: usize| frame.get(at).copied().ok_or(bad);
        let tagged = frame.get(ETHERNET - 2..ETHERNET) == Some(&TAG_8021Q.to_be_bytes());
        let l3 = if tagged { ETHERNET + TAG } else { ETHERNET };
        let ether_type = frame.get(l3 - 2..l3);
        let v4 = ether_type == Some(&IPV4);
        let (protocol, l4) = if v4 {
            let words = usize::from(byte(l3)? & 0x0f);
            if words < 5 {
                return Err(bad);
            }
            (byte(l3 + 9)?, l3 + 4 * words)
        } else if ether_type == Some(&IPV6) {
            // Extension headers are not followed: no driver segments packets that have them.
            (byte(l3 + 6)?, l3 + 40)
        } else {
            return Err(DropReason::NoOffload);
        };
        let tcp = match (header.gso_type & !header::GSO_ECN, protocol) {
            (header::GSO_TCPV4, TCP) if v4 => true,
            (header::GSO_TCPV6, TCP) if !v4 => true,
            (header::GSO_UDP_L4, UDP) => false,
            _ => return Err(bad),
        };
        let l4_header = if tcp { 4 * usize::from(byte(l4 + 12)? >> 4) } else { 8 };
        let payload = l4 + l4_header;
        if payload > frame.len() || (tcp && l4_header < 20) {
            return Err(bad);
        }
        let layout = Self { v4, tcp, l3, l4, payload, size: usize::from(header.gso_size) };
        let most = if tcp { MOST_TCP_SEGMENTS } else { MOST_UDP_SEGMENTS };
        if layout.segments(frame) <= most { Ok(layout) } else { Err(bad) }
    }

    /// Number of segments, at least one.
    fn segments(&self, frame: &[u8]) -> usize {
        (frame.len() - self.payload).div_ceil(self.size).max(1)
    }

    /// Range of a segment's payload in the frame.
    fn payload_of(&self, frame: &[u8], index: usize) -> Range<usize> {
        let start = self.payload + index * self.size;
        start.min(frame.len())..(start + self.size).min(frame.len())
    }

    /// Writes one segment.
    fn write(&self, frame: &[u8], index: usize, last: bool, out: &mut [u8]) -> usize {
        let payload = self.payload_of(frame, index);
        let len = self.payload + payload.len();
        let out = &mut out[..len];
        out[..self.payload].copy_from_slice(&frame[..self.payload]);
        out[self.payload..].copy_from_slice(&frame[payload.clone()]);
        self.finish_ip(index, out);
        if self.tcp {
            let at = self.l4 + 4;
            let first = u32::from_be_bytes([out[at], out[at + 1], out[at + 2], out[at + 3]]);
            let sequence = first.wrapping_add((payload.start - self.payload) as u32);
            out[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
            let flags = &mut out[self.l4 + 13];
            if !last {
                *flags &= !FIN_PSH;
            }
            if index != 0 {
                *flags &= !CWR;
            }
            self.finish_checksum(self.l4 + 16, TCP, out);
        } else {
            let length = (len - self.l4) as u16;
            out[self.l4 + 4..self.l4 + 6].copy_from_slice(&length.to_be_bytes());
            self.finish_checksum(self.l4 + 6, UDP, out);
        }
        len
    }

    /// Writes the IP length, and for IPv4 the identification and header checksum.
    fn finish_ip(&self, index: usize, out: &mut [u8]) {
        let l3 = self.l3;
        let length = out.len() - l3;
        if self.v4 {
            out[l3 + 2..l3 + 4].copy_from_slice(&(length as u16).to_be_bytes());
            let id = u16::from_be_bytes([out[l3 + 4], out[l3 + 5]]).wrapping_add(index as u16);
            out[l3 + 4..l3 + 6].copy_from_slice(&id.to_be_bytes());
            out[l3 + 10..l3 + 12].fill(0);
            let sum = checksum::fold(checksum::add(0, &out[l3..self.l4]));
            out[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            out[l3 + 4..l3 + 6].copy_from_slice(&((length - 40) as u16).to_be_bytes());
        }
    }

    /// Writes the TCP or UDP checksum.
    fn finish_checksum(&self, field: usize, protocol: u8, out: &mut [u8]) {
        out[field..field + 2].fill(0);
        let addresses = if self.v4 { self.l3 + 12..self.l3 + 20 } else { self.l3 + 8..self.l3 + 40 };
        let pseudo = checksum::add(u64::from(protocol) + (out.len() - self.l4) as u64, &out[addresses]);
        let sum = checksum::fold(checksum::add(pseudo, &out[self.l4..]));
        let sum = if sum == 0 { 0xffff } else { sum };
        out[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
#[path = "software_offload_tests.rs"]
mod tests;
