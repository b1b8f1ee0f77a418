//! Large receive offload (VN-12): TCP segments that come in one burst from a wire, a TAP or an emulated card are merged into
//! frames that a guest with TSO takes whole, which spares it most of the work per segment.
//!
//! * Nothing waits: what a burst has gathered is sent when the burst ends at the latest.
//! * Nothing overtakes: a frame that cannot be merged makes what was gathered of its flow go first, and everything if its
//!   flow cannot be told.
//! * Nothing is lost: cut up again at the same size, a merged frame is the segments that it was made of, byte for byte
//!   (but for identifications that have no meaning, RFC 6864). So only segments are merged that follow each other, carry
//!   data and `ACK` or `PSH` and nothing else, have the same headers, options and timestamps included, no IP options or
//!   extension headers, and right checksums. These are the rules of Linux's GRO.
//!
//! A merged frame is up to 64 KiB long, as long as what a guest with TSO sends itself. (ESX stops at 32,000 bytes,
//! `VmxnetLROMaxLength`: there, one merged frame must fit into a chain of page-sized buffers.)

mod merge;
mod segment;

use merge::Merge;
use segment::Kind;
use taut_virtq::header::NetHeader;

use crate::net::ethernet::MAX_FRAME;

/// Flows that are gathered at the same time.
const FLOWS: usize = 8;

/// What a source of segments has gathered.
#[derive(Debug, Default)]
pub struct Lro {
    /// In the order in which they began; buffers beyond `used` wait for the next flow.
    merges: Vec<Merge>,
    used: usize,
}

/// A frame that is ready to be sent.
#[derive(Debug)]
pub struct Merged<'a> {
    /// Its header.
    pub header: NetHeader,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Segments in it; a single one is as it came.
    pub segments: u32,
    /// Bytes of headers that segments had and the frame has not.
    pub repeated: usize,
    /// Pieces of it that its receiver has already got, if it has to be cut up after all.
    pub pieces_done: &'a mut usize,
}

/// What became of a frame that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// It is gathered.
    Taken,
    /// It can be sent as it is; nothing of its flow is gathered.
    Pass,
    /// Something else has to be sent before: see [`Lro::ready`], and offer it again.
    Later,
}

impl Lro {
    /// Offers a frame. `wanted`: its receiver takes merged frames of its kind.
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
            Kind::Data(segment::Segment { flow, .. }) | Kind::Other(flow) => {
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

    /// The burst has ended: everything is ready.
    pub fn close(&mut self) {
        self.merges[..self.used].iter_mut().for_each(Merge::close);
    }

    /// The next frame that is ready; the same one until [`Self::sent`].
    pub fn ready(&mut self) -> Option<Merged<'_>> {
        self.merges[..self.used].iter_mut().find(|merge| merge.is_closed()).map(Merge::frame)
    }

    /// The frame that [`Self::ready`] gave has been dealt with.
    pub fn sent(&mut self) {
        if let Some(at) = self.merges[..self.used].iter().position(Merge::is_closed) {
            // To the end of those in use, and out; the others keep their order.
            self.merges[at..self.used].rotate_left(1);
            self.used -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
