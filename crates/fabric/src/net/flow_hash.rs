//! Flow hashes: the choice of a receiver's queue pair for a frame.
//!
//! Frames of one flow go to one queue, so that they stay in order; flows spread over all running
//! queues. A flow is given by addresses and ports, as far as they lie within a frame's private
//! first bytes: IPv4 and IPv6 behind up to two VLAN tags, and the ports of TCP and UDP. Fragments
//! go by addresses alone, because only the first fragment has ports.

use super::queue::PairIdx;

/// Length in bytes of the two addresses of an Ethernet header.
const ADDRESSES: usize = 12;

/// Chooses the pair for a frame that begins with `head`, among those whose bits are set in
/// `running`.
///
/// If no pair is running, the first one is chosen.
#[inline]
pub fn choose(running: u8, head: &[u8]) -> PairIdx {
    match running.count_ones() {
        0 => PairIdx::FIRST,
        1 => PairIdx(running.trailing_zeros()),
        count => nth(running, ((u64::from(hash(head)) * u64::from(count)) >> 32) as u32),
    }
}

/// Position of the `n`-th set bit.
fn nth(mut bits: u8, n: u32) -> PairIdx {
    for _ in 0..n {
        bits &= bits - 1;
    }
    PairIdx(bits.trailing_zeros())
}

/// A hash of the frame's flow.
fn hash(head: &[u8]) -> u32 {
    let mut state = Mixer(0);
    let mut at = ADDRESSES;
    let mut ether_type = short(head, at);
    for _ in 0..2 {
        if matches!(ether_type, Some(0x8100 | 0x88a8)) {
            at += 4;
            ether_type = short(head, at);
        }
    }
    at += 2;
    let ports = match ether_type {
        Some(0x0800) => ipv4(head.get(at..).unwrap_or_default(), &mut state),
        Some(0x86dd) => ipv6(head.get(at..).unwrap_or_default(), &mut state),
        _ => None,
    };
    match ports {
        Some(ports) => state.mix(ports),
        None if state.0 == 0 => state.mix(head.get(..ADDRESSES).unwrap_or(head)),
        None => {}
    }
    state.finish()
}

/// Mixes in both addresses of IPv4, and returns the ports if there are any.
fn ipv4<'a>(packet: &'a [u8], state: &mut Mixer) -> Option<&'a [u8]> {
    let header = usize::from(packet.first()? & 15) * 4;
    state.mix(packet.get(12..20)?);
    // Two other flags precede "more fragments" and the fragment offset.
    let whole = short(packet, 6)? << 2 == 0;
    let has_ports = whole && matches!(packet.get(9), Some(6 | 17));
    packet.get(header..header + 4).filter(|_| has_ports)
}

/// Mixes in both addresses of IPv6, and returns the ports if there are any.
fn ipv6<'a>(packet: &'a [u8], state: &mut Mixer) -> Option<&'a [u8]> {
    state.mix(packet.get(8..40)?);
    let has_ports = matches!(packet.get(6), Some(6 | 17));
    packet.get(40..44).filter(|_| has_ports)
}

/// Reads 16 bits in network order.
fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// A multiply-and-fold hash: cheap, and each bit of the result depends on each bit of the input.
struct Mixer(u64);

impl Mixer {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn mix(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let product = u128::from((self.0 ^ u64::from_le_bytes(word)).wrapping_add(Self::FACTOR))
                * u128::from(Self::FACTOR);
            self.0 = product as u64 ^ (product >> 64) as u64;
        }
    }

    fn finish(&self) -> u32 {
        let product = u128::from(self.0) * u128::from(Self::FACTOR);
        ((product as u64 ^ (product >> 64) as u64) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair(running: u8, head: &[u8]) -> usize {
        choose(running, head).index()
    }

    fn udp(src: [u8; 4], ports: [u16; 2], fragment: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 60, 0, 0]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, 17, 0, 0]);
        frame.extend(src);
        frame.extend([10, 0, 0, 1]);
        frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        frame.resize(64, 0);
        frame
    }

    fn tagged(frame: &[u8], tags: usize) -> Vec<u8> {
        let mut tagged = frame[..12].to_vec();
        tagged.extend([0x81, 0, 0, 5].repeat(tags));
        tagged.extend(&frame[12..]);
        tagged.truncate(64);
        tagged
    }

    #[test]
    fn flows_spread_evenly_over_the_running_queues() {
        for running in [0b11_u8, 0b1111_1111, 0b1010_0110] {
            let mut counts = [0; 8];
            for flow in 0..4096_u16 {
                let [high, low] = flow.to_be_bytes();
                counts[pair(running, &udp([10, 0, high, low], [1000, 2000], 0))] += 1;
                counts[pair(running, &udp([10, 0, 0, 2], [1000 + flow, 80], 0))] += 1;
            }
            let share = 8192 / running.count_ones().cast_signed();
            for (pair, count) in counts.into_iter().enumerate() {
                let wanted = if running >> pair & 1 == 1 { share } else { 0 };
                assert!((count - wanted).abs() <= wanted / 5, "{running:b}: {counts:?}");
            }
        }
    }

    #[test]
    fn fragments_of_a_datagram_share_a_hash_and_tags_do_not_matter() {
        let whole = udp([10, 0, 0, 2], [1000, 2000], 0);
        let first = udp([10, 0, 0, 2], [1000, 2000], 0x2000);
        let later = udp([10, 0, 0, 2], [4711, 9], 185);
        assert_eq!(hash(&first), hash(&later));
        assert_ne!(hash(&first), hash(&whole));
        assert_eq!(hash(&tagged(&whole, 1)), hash(&whole));
        assert_eq!(hash(&tagged(&whole, 2)), hash(&whole));
    }

    #[test]
    fn a_frame_that_is_not_ip_is_hashed_by_its_mac_addresses() {
        let frame = |src: u8| [&[2; 6][..], &[2, 0, 0, 0, 0, src], &[0x88, 0xb5], &[src; 50]].concat();
        assert_ne!(hash(&frame(1)), hash(&frame(2)));
        let mut other_payload = frame(1);
        other_payload[20] = 99;
        assert_eq!(hash(&frame(1)), hash(&other_payload));
    }

    proptest! {
        /// For any first bytes: the choice is a running pair, is the same each time, and does not
        /// depend on bytes behind the ports.
        #[test]
        fn the_chosen_pair_is_running_and_the_choice_is_stable(mut head in prop::collection::vec(any::<u8>(), 0..=64), running in 1_u8..) {
            let chosen = pair(running, &head);
            prop_assert_eq!(running >> chosen & 1, 1);
            prop_assert_eq!(pair(running, &head), chosen);
            if head.len() >= 14 {
                head[12..14].copy_from_slice(&[0x86, 0xdd]);
                let before = hash(&head);
                if let Some(behind) = head.get_mut(58..) {
                    behind.fill(0);
                }
                prop_assert_eq!(hash(&head), before);
            }
        }
    }
}
