//! Frames by which uplinks find out whether they have a path: beacons, and questions to a gateway.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use super::frame::{ARP, ETHERNET_IPV4, HEADER, SHORTEST, arp, header};
use super::neighbour::{self, IPV6};
use super::set::Uplink;

/// Type of beacons: one of those that IEEE 802 leaves to local experiments.
const BEACON: u16 = 0x88b6;
/// First bytes of a beacon's contents. The last one is the version.
const MAGIC: [u8; 5] = *b"taut\x01";
/// Operation of an ARP answer.
const ANSWER: u16 = 2;

/// Sender of a beacon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// Number that the sender's process has drawn at random.
    pub process: u64,
    /// Number of the vSwitch within the process.
    pub segment: u16,
    /// The uplink.
    pub uplink: Uplink,
}

/// Contents of a frame that may be a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// A beacon.
    Beacon(Sender),
    /// An answer from the station with this address.
    Answer(IpAddr),
}

/// Proof that an uplink has a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proof {
    /// Beacon of another uplink of its vSwitch.
    Beacon,
    /// Answer of a gateway in a VLAN.
    Answer {
        /// VLAN of the answer; 0 for none.
        vlan: u16,
        /// Address of the gateway.
        gateway: IpAddr,
    },
}

/// Proofs that the uplinks of a vSwitch wait for. Nothing else is taken for one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// Number of the own process and vSwitch, if a team waits for beacons.
    pub beacons: Option<(u64, u16)>,
    /// VLANs and addresses of gateways.
    pub gateways: BTreeSet<(u16, IpAddr)>,
}

impl Expected {
    /// Returns what a frame proves for the uplink at which it has arrived in a VLAN; `None` if it
    /// is not expected. `is_to_card` tells whether it is for the address of the uplink's card, and
    /// `tag` is the length of its VLAN tag.
    pub fn proof(
        &self,
        uplink: Uplink,
        vlan: u16,
        is_to_card: bool,
        frame: &[u8],
        tag: usize,
    ) -> Option<Proof> {
        match hear(frame, tag)? {
            Heard::Beacon(Sender { process, segment, uplink: sender }) => {
                let is_own = self.beacons == Some((process, segment));
                (is_own && sender != uplink).then_some(Proof::Beacon)
            }
            Heard::Answer(gateway) => {
                let is_expected = is_to_card && self.gateways.contains(&(vlan, gateway));
                is_expected.then_some(Proof::Answer { vlan, gateway })
            }
        }
    }

    /// Returns whether a frame of this type can be a proof.
    pub fn may_be_proof(&self, ethertype: u16, is_to_card: bool) -> bool {
        match ethertype {
            BEACON => self.beacons.is_some(),
            ARP => is_to_card && self.gateways.iter().any(|(_, gateway)| gateway.is_ipv4()),
            IPV6 => is_to_card && self.gateways.iter().any(|(_, gateway)| gateway.is_ipv6()),
            _ => false,
        }
    }
}

/// Returns a beacon to all stations from a card with the address `mac` (ESX: `check_beacon`).
pub fn beacon(mac: [u8; 6], sender: Sender) -> Vec<u8> {
    let Sender { process, segment, uplink } = sender;
    let mut frame = header([0xff; 6], mac, BEACON);
    frame.extend(MAGIC);
    frame.extend(process.to_be_bytes());
    frame.extend(segment.to_be_bytes());
    frame.push(uplink.number());
    frame.resize(SHORTEST, 0);
    frame
}

/// Returns a question to the station with the address `gateway`, from a card with the address
/// `mac`. The station answers to the card.
///
/// For IPv4 it is an ARP probe from no IP address (RFC 5227, section 2.1.1), so no other station
/// changes what it knows. For IPv6 it is a neighbour solicitation from the card's link-local
/// address: an answer to no address would go to all nodes.
pub fn question(mac: [u8; 6], gateway: IpAddr) -> Vec<u8> {
    match gateway {
        IpAddr::V4(gateway) => arp(ARP, 1, (mac, Ipv4Addr::UNSPECIFIED), ([0; 6], gateway)),
        IpAddr::V6(gateway) => neighbour::solicitation(mac, gateway),
    }
}

/// Returns what a frame says whose contents begin after `tag` bytes of a VLAN tag; `None` if it is
/// neither a beacon nor an answer.
fn hear(frame: &[u8], tag: usize) -> Option<Heard> {
    let ethertype = u16::from_be_bytes(*frame.get(HEADER + tag - 2..)?.first_chunk()?);
    let contents = &frame[HEADER + tag..];
    match ethertype {
        BEACON => {
            let rest = contents.strip_prefix(&MAGIC)?;
            let process = u64::from_be_bytes(*rest.first_chunk()?);
            let segment = u16::from_be_bytes(*rest[8..].first_chunk()?);
            let uplink = Uplink::new(*rest.get(10)?)?;
            Some(Heard::Beacon(Sender { process, segment, uplink }))
        }
        ARP => {
            let rest = contents.strip_prefix(&ETHERNET_IPV4)?.strip_prefix(&ANSWER.to_be_bytes())?;
            let ip: [u8; 4] = *rest.get(6..)?.first_chunk()?;
            Some(Heard::Answer(Ipv4Addr::from(ip).into()))
        }
        IPV6 => neighbour::answer(contents).map(|gateway| Heard::Answer(gateway.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: [u8; 6] = [0, 0x50, 0x56, 1, 2, 3];
    const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn sender() -> Sender {
        Sender { process: 0x0123_4567_89ab_cdef, segment: 7, uplink: Uplink::new(31).unwrap() }
    }

    /// Puts the tag of a VLAN into a frame.
    fn tagged(frame: &[u8]) -> Vec<u8> {
        [&frame[..12], &[0x81, 0, 0, 10], &frame[12..]].concat()
    }

    /// The answer of a station to a question.
    fn answer(question: &[u8], station: [u8; 6]) -> Vec<u8> {
        let mut frame = [&question[6..12], &station, &question[12..]].concat();
        frame[21] = 2;
        frame[22..28].copy_from_slice(&station);
        let asked: [u8; 4] = question[38..42].try_into().unwrap();
        frame[28..32].copy_from_slice(&asked);
        frame
    }

    #[test]
    fn a_beacon_is_heard_with_and_without_a_tag() {
        let frame = beacon(CARD, sender());
        assert_eq!((frame.len(), &frame[..6], &frame[6..12]), (60, &[0xff; 6][..], &CARD[..]));
        assert_eq!(hear(&frame, 0), Some(Heard::Beacon(sender())));
        assert_eq!(hear(&tagged(&frame), 4), Some(Heard::Beacon(sender())));
    }

    #[test]
    fn the_answer_to_a_question_is_heard() {
        let question = question(CARD, GATEWAY);
        assert_eq!(question[28..32], [0; 4], "a probe claims no address");
        assert_eq!(hear(&question, 0), None);
        let answer = answer(&question, [2, 0, 0, 0, 0, 1]);
        assert_eq!(hear(&answer, 0), Some(Heard::Answer(GATEWAY)));
        assert_eq!(hear(&tagged(&answer), 4), Some(Heard::Answer(GATEWAY)));
    }

    #[test]
    fn parts_of_frames_say_nothing() {
        for frame in [beacon(CARD, sender()), answer(&question(CARD, GATEWAY), CARD)] {
            for len in 0..30 {
                assert_eq!(hear(&frame[..len], 0), None, "{len}");
                assert_eq!(hear(&frame[..len], 4), None, "{len}");
            }
        }
        let mut strange = beacon(CARD, sender());
        strange[HEADER + 4] = 9;
        assert_eq!(hear(&strange, 0), None, "another version");
        let mut strange = beacon(CARD, sender());
        strange[HEADER + 15] = 32;
        assert_eq!(hear(&strange, 0), None, "no uplink has this number");
    }

    #[test]
    fn only_what_is_expected_is_a_proof() {
        let [own, other] = [31, 3].map(|number| Uplink::new(number).unwrap());
        let Sender { process, segment, .. } = sender();
        let expected =
            Expected { beacons: Some((process, segment)), gateways: [(20, GATEWAY)].into_iter().collect() };
        let proof = |frame: &[u8], at| expected.proof(at, 0, false, frame, 0);
        assert_eq!(proof(&beacon(CARD, sender()), other), Some(Proof::Beacon));
        assert_eq!(proof(&beacon(CARD, sender()), own), None, "its own beacon came back");
        assert_eq!(proof(&beacon(CARD, Sender { process: 1, ..sender() }), other), None, "another host");
        assert_eq!(proof(&beacon(CARD, Sender { segment: 1, ..sender() }), other), None, "another vSwitch");
        let of = |gateway: [u8; 4]| answer(&question(CARD, IpAddr::from(gateway)), [2, 0, 0, 0, 0, 1]);
        let proof = |vlan, is_to_card, gateway| expected.proof(own, vlan, is_to_card, &of(gateway), 0);
        let expected_answer = Proof::Answer { vlan: 20, gateway: GATEWAY };
        assert_eq!(proof(20, true, [10, 0, 0, 1]), Some(expected_answer));
        assert_eq!(proof(20, false, [10, 0, 0, 1]), None, "to another card");
        assert_eq!(proof(21, true, [10, 0, 0, 1]), None, "another VLAN");
        assert_eq!(proof(20, true, [10, 0, 0, 2]), None, "another station");
        let none = Expected::default();
        for (ethertype, is_to_card, may) in [
            (BEACON, false, true),
            (ARP, true, true),
            (ARP, false, false),
            (IPV6, true, false),
            (0x0800, true, false),
        ] {
            assert_eq!(expected.may_be_proof(ethertype, is_to_card), may);
            assert!(!none.may_be_proof(ethertype, is_to_card));
        }
        let v6 = Expected { beacons: None, gateways: [(0, "fe80::1".parse().unwrap())].into() };
        assert!(v6.may_be_proof(IPV6, true) && !v6.may_be_proof(IPV6, false) && !v6.may_be_proof(ARP, true));
    }
}
