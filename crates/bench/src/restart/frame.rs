//! Numbered frames with a checksum, from which loss, repetition and damage can be counted.

/// Bytes before the payload: addresses, EtherType, sender, length, number.
const HEAD: usize = 14 + 2 + 2 + 8;
/// Bytes of the checksum behind the payload.
const TAIL: usize = 8;
/// Bytes of the shortest frame.
const SHORTEST: usize = 60;
/// Range of additional lengths: a prime, so that lengths do not repeat in step with anything else.
const LONGER: usize = 1399;

/// Returns the MAC address of a port.
pub(super) fn mac(port: usize) -> [u8; 6] {
    [2, 0x11, 0, 0, (port >> 8) as u8, port as u8]
}

/// Writes frame `number` from `port` to `to`. The number determines its length.
pub(super) fn write(frame: &mut Vec<u8>, port: usize, to: usize, number: u64) {
    let len = SHORTEST + (number.wrapping_mul(31) % LONGER as u64) as usize;
    frame.clear();
    frame.extend(mac(to));
    frame.extend(mac(port));
    frame.extend([0x88, 0xb5]);
    frame.extend((port as u16).to_le_bytes());
    frame.extend((len as u16).to_le_bytes());
    frame.extend(number.to_le_bytes());
    let mut word = number ^ 0x9e37_79b9_7f4a_7c15;
    while frame.len() < len - TAIL {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let left = len - TAIL - frame.len();
        frame.extend(&word.to_le_bytes()[..left.min(8)]);
    }
    frame.extend(checksum(frame).to_le_bytes());
}

/// Returns the number of a frame from `port`; none if the frame is not as it was sent.
pub(super) fn read(frame: &[u8], port: usize) -> Option<u64> {
    let (body, sum) = frame.split_last_chunk::<TAIL>()?;
    let (head, _) = body.split_first_chunk::<HEAD>()?;
    let sender = u16::from_le_bytes([head[14], head[15]]);
    let len = u16::from_le_bytes([head[16], head[17]]);
    let right = usize::from(sender) == port
        && usize::from(len) == frame.len()
        && u64::from_le_bytes(*sum) == checksum(body);
    right.then(|| u64::from_le_bytes(head[18..].try_into().expect("eight bytes")))
}

/// FNV-1a over words of eight bytes.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    let sum = words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, &byte| mix(sum, byte.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_back_and_a_changed_one_is_not() {
        let mut frame = Vec::new();
        for number in [0, 1, 77, u64::MAX] {
            write(&mut frame, 5, 4, number);
            assert!((SHORTEST..SHORTEST + LONGER).contains(&frame.len()));
            assert_eq!(read(&frame, 5), Some(number));
            assert_eq!(read(&frame, 4), None);
            for at in [0, 20, 30, frame.len() - 1] {
                let mut changed = frame.clone();
                changed[at] ^= 1;
                assert_eq!(read(&changed, 5), None, "byte {at}");
            }
            assert_eq!(read(&frame[..frame.len() - 1], 5), None);
        }
    }
}
