//! Large receive offload (row VN-12).
//!
//! TCP segments that come in one burst from a wire, a TAP or an emulated card are merged into
//! frames for guests with TSO. This saves such a guest most of the work per segment.
//!
//! * No delay: merged frames are sent when the burst ends at the latest.
//! * No reordering: a frame that cannot be merged first releases the merged frame of its flow, or
//!   all of them if its flow is unknown.
//! * No loss: cut up again at the same size, a merged frame yields its segments byte for byte,
//!   except for identifications without meaning (RFC 6864). Only consecutive segments are merged
//!   which carry data and no flags but `ACK` and `PSH`, have the same headers including options and
//!   timestamps, no IP options or extension headers, and correct checksums. Linux's GRO has the
//!   same rules.
//!
//! A merged frame has up to 64 KiB, like the frames that a guest with TSO sends. (ESX stops at
//! 32,000 bytes, `VmxnetLROMaxLength`, because there a merged frame must fit a chain of page-sized
//! buffers.)

mod merge;
mod segment;

use merge::Merge;
use segment::Kind;
use taut_virtq::header::NetHeader;

use crate::net::ethernet::MAX_FRAME;

/// Largest number of flows that are merged at the same time.
const FLOWS: usize = 8;

/// The merges of one source of segments.
#[derive(Debug, Default)]
pub struct Lro {
    /// Merges in the order in which they began. Those from `used` on are free.
    merges: Vec<Merge>,
    used: usize,
}

/// A merged frame that is ready to be sent.
#[derive(Debug)]
pub struct Merged<'a> {
    /// The virtio-net header.
    pub header: NetHeader,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Number of segments. A single segment is unchanged.
    pub segments: u32,
    /// Header bytes that the segments had in addition to the frame's.
    pub repeated: usize,
    /// Number of pieces that the receiver already has, if the frame has to be cut up after all.
    pub pieces_done: &'a mut usize,
}

/// The result of offering a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The frame was merged or begins a merge.
    Taken,
    /// The frame can be sent as it is: no merge of its flow is open.
    Pass,
    /// Other frames have to be sent first ([`Lro::ready`]). Then offer the frame again.
    Later,
}

impl Lro {
    /// Tells whether no frame is being merged or waits to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Offers a frame. `wanted` says whether its receiver accepts such frames merged.
    pub fn offer(&mut self, header: &NetHeader, frame: &[u8], wanted: bool) -> Offer {
        if self.used == 0 && !wanted {
            return Offer::Pass;
        }
        match Kind::of(header, frame) {
            Kind::Data(segment) if wanted && frame.len() <= MAX_FRAME => {
                if let Some(merge) = self.merges[..self.used].iter_mut().find(|m| *m.flow() == segment.flow) {
                    if merge.append(&segment, header, frame) {
                        return Offer::Taken;
                    }
                    merge.close();
                    return Offer::Later;
                }
                if segment.push || !segment.is_intact(header, frame) {
                    return Offer::Pass;
                }
                if self.used == FLOWS {
                    self.merges[0].close();
                    return Offer::Later;
                }
                match self.merges.get_mut(self.used) {
                    Some(merge) => merge.begin_again(segment, header, frame),
                    None => self.merges.push(Merge::begin(segment, header, frame)),
                }
                self.used += 1;
                Offer::Taken
            }
            Kind::Data(segment::TcpSegment { flow, .. }) | Kind::Other(flow) => {
                let gathered = self.merges[..self.used].iter_mut().find(|merge| *merge.flow() == flow);
                let Some(merge) = gathered else { return Offer::Pass };
                merge.close();
                Offer::Later
            }
            Kind::Unknown if self.used > 0 => {
                self.close();
                Offer::Later
            }
            Kind::Unknown => Offer::Pass,
        }
    }

    /// Ends the burst: all merges become ready.
    pub fn close(&mut self) {
        self.merges[..self.used].iter_mut().for_each(Merge::close);
    }

    /// The next ready frame: the same one until [`Self::sent`] is called.
    pub fn ready(&mut self) -> Option<Merged<'_>> {
        self.merges[..self.used].iter_mut().find(|merge| merge.is_closed()).map(Merge::frame)
    }

    /// Releases the frame that [`Self::ready`] returned.
    pub fn sent(&mut self) {
        if let Some(at) = self.merges[..self.used].iter().position(Merge::is_closed) {
            // Move the merge to the free ones; the others keep their order.
            self.merges[at..self.used].rotate_left(1);
            self.used -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
