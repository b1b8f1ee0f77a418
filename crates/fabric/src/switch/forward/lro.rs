//! Large receive offload: whether a frame's receiver accepts merged frames, and their counters.

use taut_api::fabric::counters::PortWord;
use taut_virtq::header::{GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, NetHeader};

use super::Forwarder;
use crate::lro::Merged;
use crate::net::ethernet;
use crate::switch::index::MemberIdx;
use crate::switch::member::Member;
use crate::switch::policy::{self, Route};

impl Forwarder<'_> {
    /// Tells whether the receiver of this TCP frame accepts it merged with others: only a guest
    /// whose driver says so does.
    pub fn merges(&mut self, frame: &[u8]) -> bool {
        let Some(member) = self.receiver(frame) else { return false };
        let segmentation = if frame[12..14] == [0x08, 0x00] { GSO_TCPV4 } else { GSO_TCPV6 };
        let merged = NetHeader { flags: NEEDS_CSUM, gso_type: segmentation, ..NetHeader::default() };
        let Member { lro, port, .. } = self.segment.member(member);
        if !*lro || !port.is_guest() {
            return false;
        }
        let target = self.target(member, frame);
        self.lock_queue(target).end.as_ref().is_some_and(|end| end.offloads().take(&merged, 0))
    }

    /// The only receiver of a frame; `None` if it has several, or none.
    fn receiver(&self, frame: &[u8]) -> Option<MemberIdx> {
        let ethernet = ethernet::check(frame, frame.len()).ok()?;
        match policy::route(self.segment, self.sender, &ethernet, self.now).ok()?.route {
            Route::To(member) => Some(member),
            Route::All | Route::Outside | Route::Unknown | Route::Back => None,
        }
    }

    /// Counts a merged frame: one frame at its receiver, its segments at its sender.
    pub fn count_merged(&mut self, merged: &Merged<'_>) {
        let segments = u64::from(merged.segments);
        self.frames += segments - 1;
        self.bytes += merged.repeated as u64;
        if let Some(member) = self.receiver(merged.bytes) {
            let counters = &self.segment.member(member).port.counters;
            counters.add_shared(PortWord::RxMergedFrames, 1);
            counters.add_shared(PortWord::RxMergedSegments, segments);
        }
    }
}
