//! Checksum offload: prepares frames for the device to complete.

use std::num::NonZeroU16;

use taut_virtq::header::{self, NetHeader};

const ETHERNET: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Prepares a frame without its transport checksum: stores the sum of the pseudo-header in its
/// place, because the device adds the rest to that.
///
/// `segment` is the payload of each segment if the device is to segment the frame. Frames other
/// than TCP or UDP over IPv4 are left alone.
pub(super) fn leave_to_device(frame: &mut [u8], segment: Option<NonZeroU16>) -> NetHeader {
    transport(frame).map_or_else(NetHeader::default, |transport| transport.prepare(frame, segment))
}

/// Position of the TCP or UDP part in an IPv4 frame.
struct Transport {
    start: usize,
    protocol: u8,
    len: u16,
}

fn transport(frame: &[u8]) -> Option<Transport> {
    let ip = frame.get(ETHERNET..)?;
    if frame[12..14] != [0x08, 0x00] || ip.len() < 20 || !matches!(ip[9], TCP | UDP) {
        return None;
    }
    let ip_header = usize::from(ip[0] & 15) * 4;
    let total = u16::from_be_bytes([ip[2], ip[3]]);
    let len = total.checked_sub(ip_header as u16)?;
    let whole = ip_header >= 20 && len >= 20 && ip.len() >= usize::from(total);
    (whole || ip[9] == UDP && len >= 8).then_some(Transport {
        start: ETHERNET + ip_header,
        protocol: ip[9],
        len,
    })
}

impl Transport {
    fn prepare(&self, frame: &mut [u8], segment: Option<NonZeroU16>) -> NetHeader {
        let addresses = frame[ETHERNET + 12..ETHERNET + 20].chunks_exact(2);
        let sum: u32 = addresses.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let mut sum = sum + u32::from(self.protocol) + u32::from(self.len);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let offset = if self.protocol == TCP { 16 } else { 6 };
        frame[self.start + offset..][..2].copy_from_slice(&(sum as u16).to_be_bytes());
        let mut header = NetHeader {
            flags: header::NEEDS_CSUM,
            csum_start: self.start as u16,
            csum_offset: offset as u16,
            ..NetHeader::default()
        };
        if let Some(size) = segment {
            header.gso_type = header::GSO_TCPV4;
            header.gso_size = size.get();
            header.hdr_len = self.start as u16 + u16::from(frame[self.start + 12] >> 4) * 4;
        }
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let total = 20 + payload.len() as u16;
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(payload);
        frame
    }

    /// Completes a frame as a device does, by `csum_start` and `csum_offset`.
    fn complete(frame: &mut [u8], header: &NetHeader) {
        let start = usize::from(header.csum_start);
        let mut padded = frame[start..].to_vec();
        padded.resize(padded.len().next_multiple_of(2), 0);
        let mut sum: u32 = padded.chunks_exact(2).map(|b| u32::from(u16::from_be_bytes([b[0], b[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        frame[start + usize::from(header.csum_offset)..][..2].copy_from_slice(&(!sum as u16).to_be_bytes());
    }

    #[test]
    fn the_device_completes_the_checksum_that_the_stack_would_compute() {
        use smoltcp::wire::{IpAddress, TcpPacket, UdpPacket};
        let (from, to) = (IpAddress::v4(10, 0, 0, 1), IpAddress::v4(10, 0, 0, 2));
        let mut tcp = vec![7; 33];
        tcp[12] = 5 << 4;
        tcp[16..18].fill(0);
        let mut whole = frame(TCP, &tcp);
        let header = leave_to_device(&mut whole, NonZeroU16::new(5));
        assert_eq!((header.gso_type, header.gso_size, header.hdr_len), (header::GSO_TCPV4, 5, 54));
        complete(&mut whole, &header);
        assert!(TcpPacket::new_unchecked(&whole[34..]).verify_checksum(&from, &to));

        let mut whole = frame(UDP, &[0, 1, 0, 2, 0, 11, 0, 0, 9, 9, 9]);
        let header = leave_to_device(&mut whole, None);
        assert_eq!(header.gso_type, header::GSO_NONE);
        complete(&mut whole, &header);
        assert!(UdpPacket::new_unchecked(&whole[34..]).verify_checksum(&from, &to));
    }

    #[test]
    fn other_frames_are_left_alone() {
        for bytes in [vec![0; 14], vec![0; 60], frame(1, &[8; 30]), frame(TCP, &[0; 10])] {
            let mut after = bytes.clone();
            assert_eq!(leave_to_device(&mut after, None), NetHeader::default());
            assert_eq!(after, bytes);
        }
    }
}
