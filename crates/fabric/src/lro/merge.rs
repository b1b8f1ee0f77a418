//! The merge of one flow: segments that become one frame.

use taut_virtq::header::{self, NetHeader};

use super::Merged;
use super::segment::{CHECKSUM, FLAGS, Flow, PSH, TcpSegment};
use crate::net::checksum;
use crate::net::ethernet::{HEADER as ETHERNET, MAX_FRAME};

/// A growing frame. Its buffer is reused for later merges.
#[derive(Debug)]
pub(super) struct Merge {
    /// Room for the longest frame. The kernel allocates pages only when they are used.
    buffer: Box<[u8]>,
    len: usize,
    /// The first segment.
    first: TcpSegment,
    /// The header of the first segment, then of the frame.
    header: NetHeader,
    /// Number of segments.
    segments: u32,
    /// Payload bytes of each segment except the last.
    size: usize,
    /// Increment of IPv4's identification; `None` until the second segment shows it.
    step: Option<u16>,
    /// The frame is complete.
    closed: bool,
    /// Number of pieces that the receiver already has.
    pieces_done: usize,
}

impl Merge {
    /// Begins a merge with a segment of at most [`MAX_FRAME`] bytes and correct checksums.
    pub(super) fn begin(first: TcpSegment, header: &NetHeader, frame: &[u8]) -> Self {
        let buffer = vec![0; MAX_FRAME].into();
        let mut merge = Self {
            buffer,
            len: 0,
            first,
            header: *header,
            segments: 0,
            size: 0,
            step: None,
            closed: false,
            pieces_done: 0,
        };
        merge.begin_again(first, header, frame);
        merge
    }

    /// Begins a merge in the buffer of a finished one.
    pub(super) fn begin_again(&mut self, first: TcpSegment, header: &NetHeader, frame: &[u8]) {
        self.buffer[..frame.len()].copy_from_slice(frame);
        (self.len, self.first, self.header) = (frame.len(), first, *header);
        (self.segments, self.size) = (1, frame.len() - first.payload);
        (self.step, self.closed, self.pieces_done) = (None, false, 0);
    }

    /// The flow of the merge.
    pub(super) fn flow(&self) -> &Flow {
        &self.first.flow
    }

    /// Tells whether the frame is complete.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Appends a segment of the same flow. Returns `false` if it does not continue the frame.
    ///
    /// A short segment, or one with `PSH`, completes the frame.
    pub(super) fn append(&mut self, segment: &TcpSegment, header: &NetHeader, frame: &[u8]) -> bool {
        let step = self.fits(segment, frame);
        if step.is_none() || !segment.is_intact(header, frame) {
            return false;
        }
        self.step = step;
        let payload = &frame[segment.payload..];
        self.buffer[self.len..self.len + payload.len()].copy_from_slice(payload);
        self.len += payload.len();
        self.segments += 1;
        if segment.push {
            self.buffer[self.first.l4 + FLAGS] |= PSH;
        }
        if segment.push || payload.len() < self.size || self.len + self.size > MAX_FRAME {
            self.close();
        }
        true
    }

    /// Checks that a segment continues the frame with the same headers. Returns the increment of
    /// the identification if it does.
    fn fits(&self, segment: &TcpSegment, frame: &[u8]) -> Option<u16> {
        let first = &self.first;
        let size = frame.len() - segment.payload;
        let next = first.sequence.wrapping_add((self.len - first.payload) as u32);
        if self.closed || segment.payload != first.payload || segment.sequence != next {
            return None;
        }
        if size > self.size || self.len + size > MAX_FRAME || !first.same_headers(&self.buffer, frame) {
            return None;
        }
        if !first.v4 {
            return Some(0);
        }
        let gone = segment.id(frame).wrapping_sub(first.id(&self.buffer));
        let step = match self.step {
            Some(step) => step,
            None if gone == 0 && first.is_atomic(&self.buffer) => 0,
            None => 1,
        };
        (gone == step.wrapping_mul(self.segments as u16)).then_some(step)
    }

    /// Completes the frame: writes its lengths and header. A single segment stays unchanged.
    pub(super) fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) || self.segments == 1 {
            return;
        }
        let TcpSegment { v4, l4, payload, .. } = self.first;
        let frame = &mut self.buffer[..self.len];
        let ip = ETHERNET;
        if v4 {
            let len = (frame.len() - ip) as u16;
            frame[ip + 2..ip + 4].copy_from_slice(&len.to_be_bytes());
            frame[ip + 10..ip + 12].fill(0);
            let sum = checksum::fold(checksum::add(0, &frame[ip..l4]));
            frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            let len = (frame.len() - l4) as u16;
            frame[ip + 4..ip + 6].copy_from_slice(&len.to_be_bytes());
        }
        // A partial checksum, as a sender leaves it to its card: the segments' checksums were
        // correct.
        let sum = !checksum::fold(self.first.pseudo_sum(frame, frame.len()));
        frame[l4 + CHECKSUM..l4 + CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
        self.header = NetHeader {
            flags: header::NEEDS_CSUM,
            gso_type: if v4 { header::GSO_TCPV4 } else { header::GSO_TCPV6 },
            hdr_len: payload as u16,
            gso_size: self.size as u16,
            csum_start: l4 as u16,
            csum_offset: CHECKSUM as u16,
            num_buffers: 1,
        };
    }

    /// The completed frame.
    pub(super) fn frame(&mut self) -> Merged<'_> {
        Merged {
            header: self.header,
            bytes: &self.buffer[..self.len],
            segments: self.segments,
            repeated: (self.segments as usize - 1) * self.first.payload,
            pieces_done: &mut self.pieces_done,
        }
    }
}
