//! The Internet checksum (RFC 1071).

/// Adds `bytes` to a running sum, as 16-bit words in network order.
///
/// All parts of a sum except the last must have an even length.
pub fn add(sum: u64, bytes: &[u8]) -> u64 {
    let (words, last) = bytes.as_chunks::<2>();
    let words: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    let last = last.first().map_or(0, |&byte| u64::from(byte) << 8);
    sum + words + last
}

/// Folds a sum to 16 bits and complements it: the checksum.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_yields_its_sum() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(add(0, &bytes)), !0xddf2);
        assert_eq!(fold(add(add(0, &bytes[..4]), &bytes[4..])), !0xddf2);
    }

    #[test]
    fn an_odd_last_byte_is_the_high_half_of_a_word() {
        assert_eq!(fold(add(0, &[0x12])), !0x1200);
    }
}
