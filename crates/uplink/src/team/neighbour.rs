//! Neighbour Discovery of IPv6 (RFC 4861): a question for an address, its answer, and an
//! advertisement to all nodes.

use std::net::Ipv6Addr;

use super::frame::header;

/// Type of IPv6 packets.
pub(super) const IPV6: u16 = 0x86dd;
/// Number of ICMPv6 in an IPv6 header, and the hop limit that proves a neighbour.
const ICMPV6_OF_NEIGHBOUR: [u8; 2] = [58, 255];
/// Bytes of an IPv6 header.
const IPV6_HEADER: usize = 40;
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

/// Returns the address of the station that answers a question with this IPv6 packet; `None` if it
/// is anything else. Bytes behind the packet are padding.
pub(super) fn answer(packet: &[u8]) -> Option<Ipv6Addr> {
    let (header, rest) = packet.split_first_chunk::<IPV6_HEADER>()?;
    if header[0] >> 4 != 6 || header[6..8] != ICMPV6_OF_NEIGHBOUR {
        return None;
    }
    let message = rest.get(..u16::from_be_bytes([header[4], header[5]]).into())?;
    // Options have whole units of 8 bytes.
    let fixed = message.first_chunk::<24>().filter(|_| message.len().is_multiple_of(8))?;
    let address = |bytes: &[u8]| Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?));
    let (source, destination) = (address(&header[8..])?, address(&header[24..])?);
    let is_answer = fixed[..2] == [ADVERTISEMENT, 0] && fixed[4] & SOLICITED != 0;
    // A sum over everything with its checksum is all ones.
    if !is_answer || checksum(source, destination, message) != 0 {
        return None;
    }
    address(&fixed[8..])
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
}
