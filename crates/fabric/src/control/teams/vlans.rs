//! VLANs in which the fabric sends frames of its own.

use std::collections::BTreeSet;

use taut_api::Vlan;

/// Most VLANs for one purpose, the first ones: frames in all VLANs of a trunk would flood the
/// physical network.
const MOST_VLANS: usize = 16;

/// Returns the first VLANs of a port; 0 stands for frames without a tag.
pub(in crate::control) fn first_vlans(vlan: &Vlan) -> impl Iterator<Item = u16> {
    let ranges = match vlan {
        Vlan::Access(vlan) => vec![(*vlan, *vlan)],
        Vlan::Trunk(ranges) => ranges.iter().collect(),
    };
    ranges.into_iter().flat_map(|(first, last)| first..=last).take(MOST_VLANS)
}

/// Returns the first VLANs of several ports together.
pub(super) fn first_vlans_of_all<'v>(vlans: impl Iterator<Item = &'v Vlan>) -> BTreeSet<u16> {
    let all: BTreeSet<u16> = vlans.flat_map(first_vlans).collect();
    all.into_iter().take(MOST_VLANS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vlan(text: &str) -> Vlan {
        text.parse().unwrap()
    }

    #[test]
    fn a_port_is_announced_in_its_first_vlans() {
        let announced = |text: &str| first_vlans(&vlan(text)).collect::<Vec<_>>();
        assert_eq!(announced("0"), [0]);
        assert_eq!(announced("10"), [10]);
        assert_eq!(announced("10-12,20"), [10, 11, 12, 20]);
        assert_eq!(announced("4095"), (0..16).collect::<Vec<_>>());
        assert_eq!(announced("1-17"), (1..=16).collect::<Vec<_>>());
    }

    #[test]
    fn several_ports_have_their_first_vlans_in_common() {
        let vlans = ["30", "10", "4095"].map(vlan);
        assert_eq!(first_vlans_of_all(vlans[..2].iter()), [10, 30].into());
        assert_eq!(first_vlans_of_all(vlans.iter()), (0..16).collect());
        assert!(first_vlans_of_all([].iter()).is_empty());
    }
}
