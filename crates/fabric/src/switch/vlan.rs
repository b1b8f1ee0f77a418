//! VLANs of ports: the VLAN of a frame that a port sends, and the tag of a frame that it receives.
//!
//! A frame is in exactly one VLAN: that of the access port that sent it, or the one that its tag
//! names on a trunk; 0 stands for none. It is delivered only to ports of that VLAN: without a tag
//! at an access port, with a tag on a trunk. A priority tag (VLAN 0) is removed everywhere, but
//! from an access port to a trunk its priority is kept. A frame with a second tag never passes, so
//! a frame cannot be in one VLAN in the switch and in another one behind a port.

use taut_api::Vlan;
use taut_api::fabric::DropReason;

use crate::net::vlan::{TagEdit, VLAN_BITS, vlan_of};

/// The VLANs of a port.
#[derive(Debug)]
pub enum PortVlan {
    /// One VLAN, whose frames are untagged at the port.
    Access(u16),
    /// A bit for each VLAN. The bit of 4095 is never set.
    Trunk(Box<[u64; 64]>),
}

impl From<&Vlan> for PortVlan {
    fn from(vlan: &Vlan) -> Self {
        match vlan {
            Vlan::Access(vlan) => Self::Access(*vlan),
            Vlan::Trunk(ranges) => {
                let mut bits = Box::new([0; 64]);
                for vlan in ranges.iter().flat_map(|(first, last)| first..=last) {
                    bits[usize::from(vlan >> 6)] |= 1 << (vlan & 63);
                }
                Self::Trunk(bits)
            }
        }
    }
}

impl PortVlan {
    /// Tells whether the port's frames are tagged.
    #[inline]
    pub const fn is_trunk(&self) -> bool {
        matches!(self, Self::Trunk(_))
    }

    /// Tells whether the port takes part in a VLAN.
    #[inline]
    pub fn admits(&self, vlan: u16) -> bool {
        match self {
            Self::Access(own) => *own == vlan,
            Self::Trunk(bits) => {
                bits.get(usize::from(vlan >> 6)).is_some_and(|word| word >> (vlan & 63) & 1 == 1)
            }
        }
    }

    /// Tells whether two ports cannot have the same address: they have a VLAN in common, or both
    /// are trunks. The address of a trunk is valid in all its VLANs under one key.
    pub fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Access(own), other) | (other, Self::Access(own)) => other.admits(*own),
            (Self::Trunk(_), Self::Trunk(_)) => true,
        }
    }

    /// The VLAN of a frame with this tag that the port sends.
    ///
    /// # Errors
    /// The port must not send such a frame.
    #[inline]
    pub fn ingress(&self, tag: Option<u16>) -> Result<u16, DropReason> {
        match (self, tag.map_or(0, vlan_of)) {
            (Self::Access(own), 0) => Ok(*own),
            (Self::Access(_), _) => Err(DropReason::VlanTag),
            (Self::Trunk(_), vlan) if self.admits(vlan) => Ok(vlan),
            (Self::Trunk(_), _) => Err(DropReason::VlanNotAdmitted),
        }
    }

    /// The change of the tag for a frame of this VLAN that goes to the port; `None` if the port
    /// must not receive the frame.
    #[inline]
    pub fn egress(&self, vlan: u16, tag: Option<u16>) -> Option<TagEdit> {
        if !self.admits(vlan) {
            return None;
        }
        let tagged = vlan != 0 && matches!(self, Self::Trunk(_));
        Some(match tag {
            None if tagged => TagEdit::Insert(vlan),
            Some(tci) if tagged && vlan_of(tci) != vlan => TagEdit::Replace(tci & !VLAN_BITS | vlan),
            Some(_) if !tagged => TagEdit::Strip,
            _ => TagEdit::Keep,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use taut_api::vlan::VlanRanges;
    use taut_virtq::device::FIRST_BYTES;

    use super::*;
    use crate::net::ethernet::{self, HEADER, TAG};

    fn trunk(ranges: &[(u16, u16)]) -> PortVlan {
        PortVlan::from(&Vlan::Trunk(VlanRanges::new(ranges.iter().copied()).unwrap()))
    }

    #[test]
    fn two_ports_conflict_if_they_share_a_vlan_or_are_trunks() {
        let (ten, eleven) = (PortVlan::Access(10), PortVlan::Access(11));
        let (low, high) = (trunk(&[(1, 10)]), trunk(&[(20, 30)]));
        for (one, other, conflict) in [
            (&ten, &ten, true),
            (&ten, &eleven, false),
            (&low, &ten, true),
            (&low, &eleven, false),
            (&low, &high, true),
        ] {
            assert_eq!(one.conflicts(other), conflict, "{one:?} {other:?}");
            assert_eq!(other.conflicts(one), conflict, "{other:?} {one:?}");
        }
    }

    #[test]
    fn the_vlan_of_a_frame_follows_from_its_port_and_tag() {
        let (none, ten) = (PortVlan::Access(0), PortVlan::Access(10));
        let (some, all) = (trunk(&[(10, 20)]), PortVlan::from(&Vlan::all()));
        let priority = Some(0xe000);
        for (port, tag, vlan) in [
            (&none, None, Ok(0)),
            (&none, Some(5), Err(DropReason::VlanTag)),
            (&ten, None, Ok(10)),
            (&ten, priority, Ok(10)),
            (&ten, Some(10), Err(DropReason::VlanTag)),
            (&some, None, Err(DropReason::VlanNotAdmitted)),
            (&some, priority, Err(DropReason::VlanNotAdmitted)),
            (&some, Some(0x700a), Ok(10)),
            (&some, Some(21), Err(DropReason::VlanNotAdmitted)),
            (&some, Some(4095), Err(DropReason::VlanNotAdmitted)),
            (&all, None, Ok(0)),
            (&all, priority, Ok(0)),
            (&all, Some(4094), Ok(4094)),
            (&all, Some(4095), Err(DropReason::VlanNotAdmitted)),
        ] {
            assert_eq!(port.ingress(tag), vlan, "{tag:?} from {port:?}");
        }
    }

    #[test]
    fn tags_are_inserted_replaced_and_removed_for_the_receiver() {
        let (ten, all) = (PortVlan::Access(10), PortVlan::from(&Vlan::all()));
        for (port, vlan, tag, edit) in [
            (&ten, 10, None, Some(TagEdit::Keep)),
            (&ten, 10, Some(10), Some(TagEdit::Strip)),
            (&ten, 10, Some(0xe000), Some(TagEdit::Strip)),
            (&ten, 11, None, None),
            (&ten, 0, None, None),
            (&all, 10, None, Some(TagEdit::Insert(10))),
            (&all, 10, Some(0xe00a), Some(TagEdit::Keep)),
            (&all, 10, Some(0xe000), Some(TagEdit::Replace(0xe00a))),
            (&all, 0, None, Some(TagEdit::Keep)),
            (&all, 0, Some(0xe000), Some(TagEdit::Strip)),
            (&all, 4095, None, None),
        ] {
            assert_eq!(port.egress(vlan, tag), edit, "{tag:?} in {vlan} to {port:?}");
        }
    }

    fn ports() -> impl Strategy<Value = Vlan> {
        let near = 0_u16..8;
        let range = (near.clone(), near.clone()).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let trunk = prop::collection::vec(range, 1..3)
            .prop_map(|ranges| Vlan::Trunk(VlanRanges::new(ranges).unwrap()));
        prop_oneof![near.prop_map(Vlan::Access), trunk, Just(Vlan::all())]
    }

    proptest! {
        /// A frame that leaves at the second port is in the same VLAN on a like port of the next
        /// switch.
        #[test]
        fn a_frame_never_changes_its_vlan(
            from in ports(),
            to in ports(),
            mut frame in prop::collection::vec(any::<u8>(), 18..100),
            tag in prop::option::of((0_u16..10, 0_u16..8)),
        ) {
            frame[12..14].copy_from_slice(&[0x08, 0x00]);
            if let Some((vlan, priority)) = tag {
                frame[12..14].copy_from_slice(&[0x81, 0x00]);
                frame[14..16].copy_from_slice(&(vlan | priority << 13).to_be_bytes());
                frame[16..18].copy_from_slice(&[0x08, 0x00]);
            }
            let start = &frame[..frame.len().min(FIRST_BYTES)];
            let parsed = ethernet::check(start, frame.len()).unwrap();
            let Ok(vlan) = PortVlan::from(&from).ingress(parsed.tag) else { return Ok(()) };
            prop_assert!(from.admits(vlan));
            let to_port = PortVlan::from(&to);
            let Some(edit) = to_port.egress(vlan, parsed.tag) else {
                prop_assert!(!to.admits(vlan));
                return Ok(());
            };
            let mut space = [0; FIRST_BYTES + TAG];
            let edited = edit.start(start, &mut space);
            let after = ethernet::check(edited, edited.len()).unwrap();
            prop_assert_eq!(to_port.ingress(after.tag), Ok(vlan));
            prop_assert_eq!(after.tag.is_some(), vlan != 0 && matches!(to, Vlan::Trunk(_)));
            prop_assert_eq!((after.dst, after.src, after.ether_type), (parsed.dst, parsed.src, 0x0800));
            let behind = |start: &[u8], tagged: bool| start[HEADER + if tagged { TAG } else { 0 }..].to_vec();
            prop_assert_eq!(behind(edited, after.tag.is_some()), behind(start, parsed.tag.is_some()));
        }
    }
}
