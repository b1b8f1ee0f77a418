//! Numbers by which a frame chooses an uplink.

/// Places of a frame's source address and of what follows its two addresses.
const SOURCE: std::ops::Range<usize> = 6..12;
const TYPE: usize = 12;
/// Length of a VLAN tag, and the most tags that are looked behind.
const TAG: usize = 4;
const MOST_TAGS: usize = 2;

/// Returns the key of a frame's source address (ESX: `loadbalance_srcmac`).
pub fn mac_key(frame: &[u8]) -> u32 {
    frame.get(SOURCE).and_then(|source| source.try_into().ok()).map_or(0, address_key)
}

/// Returns the key of an Ethernet address.
pub fn address_key(address: [u8; 6]) -> u32 {
    // The last four octets: the others hardly differ between the VMs of a host.
    address.iter().fold(0, |key, octet| key << 8 | u32::from(*octet))
}

/// Returns the key of a frame's IP addresses: their last octets, combined by XOR (ESX:
/// `loadbalance_ip`). Of other frames it uses the octets that lie where an IPv4 packet has these.
pub fn ip_key(frame: &[u8]) -> u32 {
    let two = |at: usize| frame.get(at..at + 2).map(|octets| u16::from_be_bytes([octets[0], octets[1]]));
    let mut at = TYPE;
    for _ in 0..MOST_TAGS {
        if matches!(two(at), Some(0x8100 | 0x88a8)) {
            at += TAG;
        }
    }
    let packet = at + 2;
    let [source, destination] =
        if two(at) == Some(0x86dd) { [packet + 23, packet + 39] } else { [packet + 15, packet + 19] };
    let octet = |at: usize| frame.get(at).copied().unwrap_or(0);
    u32::from(octet(source) ^ octet(destination))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tags: usize, ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 1, 2, 3]);
        frame.extend([0x81, 0, 0, 7].repeat(tags));
        frame.extend(ethertype.to_be_bytes());
        frame.extend(packet);
        frame
    }

    #[test]
    fn the_source_address_is_a_key() {
        assert_eq!(mac_key(&frame(0, 0x0800, &[])), 0x0001_0203);
        assert_eq!(mac_key(&[0; 11]), 0);
    }

    #[test]
    fn last_octets_of_ip_addresses_are_a_key() {
        let mut v4 = [0; 20];
        (v4[15], v4[19]) = (0b1100, 0b1010);
        let mut v6 = [0; 40];
        (v6[23], v6[39]) = (0b1100, 0b1010);
        for tags in 0..3 {
            assert_eq!(ip_key(&frame(tags, 0x0800, &v4)), 0b0110);
            assert_eq!(ip_key(&frame(tags, 0x86dd, &v6)), 0b0110);
        }
        assert_eq!(ip_key(&frame(0, 0x0806, &v4)), 0b0110, "whatever it is");
    }

    #[test]
    fn frames_of_any_length_have_a_key() {
        let long = frame(3, 0x86dd, &[0x81; 60]);
        for length in 0..long.len() {
            mac_key(&long[..length]);
            ip_key(&long[..length]);
        }
        assert_eq!(ip_key(&[0x81, 0].repeat(2000)), 0, "tags to the end");
    }
}
