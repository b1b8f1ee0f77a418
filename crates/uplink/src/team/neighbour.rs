//! Neighbour Discovery of IPv6 (RFC 4861): a question for an address, its answer, an advertisement
//! to all nodes, and what stations say of themselves.

use std::net::Ipv6Addr;

use super::frame::header;

/// Type of IPv6 packets.
pub(super) const IPV6: u16 = 0x86dd;
/// Number of ICMPv6 in an IPv6 header, and the hop limit that proves a neighbour.
const ICMPV6_OF_NEIGHBOUR: [u8; 2] = [58, 255];
/// Bytes of an IPv6 header.
const IPV6_HEADER: usize = 40;
/// Types of messages from hosts to routers, and from routers to hosts.
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
/// Type of a neighbour solicitation.
const SOLICITATION: u8 = 135;
/// Type of a neighbour advertisement.
const ADVERTISEMENT: u8 = 136;
/// Flags of an advertisement.
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// Options with the link-layer address of the sender, and of the target.
const SOURCE_ADDRESS: u8 = 1;
const TARGET_ADDRESS: u8 = 2;

/// Returns a question to the station with the address `target`, from a card with the address `mac`.
/// Its source is the card's own link-local address, to which the station answers.
pub(super) fn solicitation(mac: [u8; 6], target: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    frame(mac, (link_local(mac), group), [SOLICITATION, 0], target, SOURCE_ADDRESS)
}

/// Returns an unsolicited advertisement to all nodes that replaces what they know.
pub(super) fn advertisement(mac: [u8; 6], ip: Ipv6Addr, is_router: bool) -> Vec<u8> {
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let flags = OVERRIDE | if is_router { ROUTER } else { 0 };
    frame(mac, (ip, all), [ADVERTISEMENT, flags], ip, TARGET_ADDRESS)
}

/// A message whose checksum is right.
struct Message<'p> {
    source: Ipv6Addr,
    /// The message from its type on: whole units of 8 bytes.
    bytes: &'p [u8],
}

impl<'p> Message<'p> {
    /// Reads an IPv6 packet; `None` if it is no message of a neighbour. Bytes behind the packet are
    /// padding.
    fn read(packet: &'p [u8]) -> Option<Self> {
        let (header, rest) = packet.split_first_chunk::<IPV6_HEADER>()?;
        if header[0] >> 4 != 6 || !is_of_neighbour(header) {
            return None;
        }
        let bytes = rest.get(..u16::from_be_bytes([header[4], header[5]]).into())?;
        let (source, destination) = (address(&header[8..])?, address(&header[24..])?);
        // Options have whole units of 8 bytes. A sum over everything with its checksum is all ones.
        let is_whole = !bytes.is_empty() && bytes.len().is_multiple_of(8);
        if !is_whole || bytes[1] != 0 || checksum(source, destination, bytes) != 0 {
            return None;
        }
        Some(Self { source, bytes })
    }

    const fn kind(&self) -> u8 {
        self.bytes[0]
    }

    /// The flags of an advertisement.
    const fn flags(&self) -> u8 {
        self.bytes[4]
    }

    /// The address in question.
    fn target(&self) -> Option<Ipv6Addr> {
        address(self.bytes.get(8..)?)
    }

    /// Returns whether the options behind `fixed` bytes are well-formed, and name no other address
    /// than `mac` in an option of this kind.
    fn is_of(&self, mac: [u8; 6], fixed: usize, kind: u8) -> bool {
        let Some(mut options) = self.bytes.get(fixed..) else { return false };
        while let [option, units, ..] = *options {
            let length = 8 * usize::from(units);
            if length == 0 || options.len() < length || option == kind && options[2..length] != mac {
                return false;
            }
            options = &options[length..];
        }
        true
    }
}

/// Returns whether an IPv6 packet that begins with `start` can be a message of a neighbour.
pub(super) fn is_of_neighbour(start: &[u8]) -> bool {
    start.get(6..8) == Some(&ICMPV6_OF_NEIGHBOUR)
}

fn address(bytes: &[u8]) -> Option<Ipv6Addr> {
    Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?))
}

/// Returns the address of the station that answers a question with this IPv6 packet; `None` if it
/// is anything else. Bytes behind the packet are padding.
pub(super) fn answer(packet: &[u8]) -> Option<Ipv6Addr> {
    let message = Message::read(packet)?;
    let target = message.target()?;
    (message.kind() == ADVERTISEMENT && message.flags() & SOLICITED != 0).then_some(target)
}

/// Returns the address that the station `mac` has by this IPv6 packet, and whether it is a router,
/// each if the packet tells; `None` for a packet that is no message of this station itself.
///
/// A station that asks from no address, whether anybody else has one, is going to have that. One
/// that advertises an address without replacing what others know may share it (anycast), or speak
/// for another station.
pub(super) fn statement(packet: &[u8], mac: [u8; 6]) -> Option<(Option<Ipv6Addr>, Option<bool>)> {
    let message = Message::read(packet)?;
    let source = Some(message.source).filter(|source| !source.is_unspecified());
    let (fixed, option, stated) = match message.kind() {
        SOLICITATION => (24, SOURCE_ADDRESS, (source.or(message.target()), None)),
        ADVERTISEMENT => {
            let target = message.target().filter(|_| message.flags() & OVERRIDE != 0);
            (24, TARGET_ADDRESS, (target, Some(message.flags() & ROUTER != 0)))
        }
        ROUTER_SOLICITATION => (8, SOURCE_ADDRESS, (source, Some(false))),
        ROUTER_ADVERTISEMENT => (16, SOURCE_ADDRESS, (source, Some(true))),
        _ => return None,
    };
    message.is_of(mac, fixed, option).then_some(stated)
}

/// Returns the address that a card with the address `mac` gives itself (RFC 4291, appendix A).
fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[..2].copy_from_slice(&[0xfe, 0x80]);
    octets[8..11].copy_from_slice(&mac[..3]);
    octets[8] ^= 2;
    octets[11..13].copy_from_slice(&[0xff, 0xfe]);
    octets[13..].copy_from_slice(&mac[3..]);
    octets.into()
}

/// Returns a message from `source` to the group `to`, with the sender's address in an option.
fn frame(
    mac: [u8; 6],
    (source, to): (Ipv6Addr, Ipv6Addr),
    [kind, flags]: [u8; 2],
    target: Ipv6Addr,
    option: u8,
) -> Vec<u8> {
    // Type, code, checksum, flags; the target; the option and its length in units of 8 bytes.
    let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
    message.extend(target.octets());
    message.extend([option, 1]);
    message.extend(mac);
    let sum = checksum(source, to, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());

    let [.., a, b, c, d] = to.octets();
    let mut frame = header([0x33, 0x33, a, b, c, d], mac, IPV6);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend((message.len() as u16).to_be_bytes());
    frame.extend(ICMPV6_OF_NEIGHBOUR);
    frame.extend(source.octets());
    frame.extend(to.octets());
    frame.extend(message);
    frame
}

/// Returns the checksum of an ICMPv6 message of even length below 64 KiB (RFC 4443, RFC 8200
/// section 8.1).
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> u16 {
    let segments = source.segments().into_iter().chain(destination.segments());
    let words = message.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let mut sum = segments.chain(words).map(u32::from).sum::<u32>() + message.len() as u32 + 58;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::super::frame::HEADER;
    use super::*;

    const CARD: [u8; 6] = [0, 0x50, 0x56, 1, 2, 3];
    const STATION: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

    fn gateway() -> Ipv6Addr {
        "2001:db8::1:abcd:ef01".parse().unwrap()
    }

    /// The answer of the gateway to the card.
    fn answered(flags: u8) -> Vec<u8> {
        frame(STATION, (gateway(), link_local(CARD)), [ADVERTISEMENT, flags], gateway(), TARGET_ADDRESS)
    }

    #[test]
    fn a_question_goes_to_the_group_of_its_target_from_the_card() {
        let frame = solicitation(CARD, gateway());
        assert_eq!(frame.len(), 86);
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0xcd, 0xef, 0x01]);
        assert_eq!((&frame[6..12], &frame[12..14]), (&CARD[..], &[0x86, 0xdd][..]));
        let source: Ipv6Addr = "fe80::250:56ff:fe01:203".parse().unwrap();
        let group: Ipv6Addr = "ff02::1:ffcd:ef01".parse().unwrap();
        assert_eq!((&frame[22..38], &frame[38..54]), (&source.octets()[..], &group.octets()[..]));
        assert_eq!((frame[20], frame[21], frame[54]), (58, 255, 135));
        assert_eq!(frame[62..78], gateway().octets());
        assert_eq!((&frame[78..80], &frame[80..]), (&[1, 1][..], &CARD[..]));
        assert_eq!(checksum(source, group, &frame[54..]), 0);
        assert_eq!(answer(&frame[HEADER..]), None, "a question is no answer");
    }

    #[test]
    fn only_an_answer_to_a_question_is_one() {
        let frame = answered(SOLICITED | ROUTER | OVERRIDE);
        let packet = &frame[HEADER..];
        assert_eq!(answer(packet), Some(gateway()));
        assert_eq!(answer(&[packet, &[0; 9]].concat()), Some(gateway()), "with padding");
        for len in 0..packet.len() {
            assert_eq!(answer(&packet[..len]), None, "{len}");
        }
        // Each of these bits matters, or the checksum tells.
        for at in (0..packet.len()).filter(|at| !(1..4).contains(at)) {
            let mut strange = packet.to_vec();
            strange[at] ^= 0x40;
            assert_eq!(answer(&strange), None, "byte {at}");
        }
        assert_eq!(answer(&answered(ROUTER | OVERRIDE)[HEADER..]), None, "unsolicited");
        assert_eq!(answer(&advertisement(STATION, gateway(), true)[HEADER..]), None, "to all nodes");
    }

    /// The message to all nodes with these fixed bytes behind type and code, and options.
    fn message(source: Ipv6Addr, kind: u8, rest: &[u8]) -> Vec<u8> {
        let all: Ipv6Addr = "ff02::1".parse().unwrap();
        let mut bytes = [&[kind, 0, 0, 0][..], rest].concat();
        let sum = checksum(source, all, &bytes);
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        let length = (bytes.len() as u16).to_be_bytes();
        let header = [&[0x60, 0, 0, 0][..], &length, &ICMPV6_OF_NEIGHBOUR];
        [&header.concat()[..], &source.octets(), &all.octets(), &bytes].concat()
    }

    #[test]
    fn stations_state_their_addresses() {
        let own = link_local(CARD);
        let stated = |frame: &[u8]| statement(&frame[HEADER..], CARD);
        assert_eq!(stated(&solicitation(CARD, gateway())), Some((Some(own), None)));
        let none = Ipv6Addr::UNSPECIFIED;
        let check = message(none, SOLICITATION, &[&[0; 4][..], &gateway().octets()].concat());
        assert_eq!(statement(&check, CARD), Some((Some(gateway()), None)), "it is going to have it");
        for is_router in [true, false] {
            let frame = advertisement(CARD, gateway(), is_router);
            assert_eq!(stated(&frame), Some((Some(gateway()), Some(is_router))));
        }
        let shared = frame(CARD, (gateway(), own), [ADVERTISEMENT, SOLICITED], gateway(), TARGET_ADDRESS);
        assert_eq!(stated(&shared), Some((None, Some(false))), "others may have the address, too");
        assert_eq!(
            statement(&message(own, ROUTER_SOLICITATION, &[0; 4]), CARD),
            Some((Some(own), Some(false)))
        );
        assert_eq!(statement(&message(none, ROUTER_SOLICITATION, &[0; 4]), CARD), Some((None, Some(false))));
        let router = message(own, ROUTER_ADVERTISEMENT, &[0; 12]);
        assert_eq!(statement(&router, CARD), Some((Some(own), Some(true))));
    }

    #[test]
    fn statements_of_others_and_broken_ones_are_none() {
        let frame = advertisement(CARD, gateway(), false);
        let packet = &frame[HEADER..];
        assert_eq!(statement(packet, STATION), None, "the option names another station");
        for len in 0..packet.len() {
            assert_eq!(statement(&packet[..len], CARD), None, "{len}");
        }
        for at in 4..packet.len() {
            let mut strange = packet.to_vec();
            strange[at] ^= 0x40;
            assert_eq!(statement(&strange, CARD), None, "byte {at}");
        }
        let own = link_local(CARD);
        // An option without a length, one beyond the end, and an address of 14 bytes.
        for option in [[1, 0, 0, 0, 0, 0, 0, 0], [5, 2, 0, 0, 0, 0, 0, 0]] {
            let rest = [&[0; 4][..], &option].concat();
            assert_eq!(statement(&message(own, ROUTER_SOLICITATION, &rest), CARD), None, "{option:?}");
        }
        let long = [&[0; 4][..], &[SOURCE_ADDRESS, 2], &CARD, &[0; 8]].concat();
        assert_eq!(statement(&message(own, ROUTER_SOLICITATION, &long), CARD), None);
        for kind in [ROUTER_ADVERTISEMENT, SOLICITATION, ADVERTISEMENT] {
            assert_eq!(statement(&message(own, kind, &[0; 4]), CARD), None, "{kind} is too short");
        }
        assert_eq!(statement(&message(own, 128, &[0; 4]), CARD), None, "an echo request");
    }
}
