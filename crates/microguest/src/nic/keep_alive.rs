//! Makes smoltcp's keep-alives harmless.

use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, TcpPacket};

/// Bytes of an Ethernet frame with a keep-alive: three headers without options, and one byte.
const FRAME: usize = 14 + 20 + 20 + 1;
/// How far a keep-alive is moved back, in sequence numbers. No window is longer, so its byte is
/// older than all that a peer still accepts.
const BACK: usize = 1 << 30;

/// Moves the byte of a keep-alive to a place that the peer has behind it.
///
/// A keep-alive of smoltcp 0.14 carries one zero byte, at the place of the last byte that was sent.
/// If that byte was lost, the peer takes the zero for it, and the stream is wrong. A byte outside
/// of the window is answered by an acknowledgement (RFC 9293, section 3.10.7.4), which is all that
/// a keep-alive is for.
///
/// A single zero byte with more behind it looks the same. It counts as lost if it was data, and
/// smoltcp sends it again; a probe of a window of zero bytes gets the same answer here and there.
pub(super) fn make_harmless(frame: &mut [u8]) {
    if frame.len() != FRAME {
        return;
    }
    let Ok(mut ethernet) = EthernetFrame::new_checked(frame) else { return };
    if ethernet.ethertype() != EthernetProtocol::Ipv4 {
        return;
    }
    let Ok(mut ip) = Ipv4Packet::new_checked(ethernet.payload_mut()) else { return };
    if ip.next_header() != IpProtocol::Tcp {
        return;
    }
    let (from, to) = (ip.src_addr().into(), ip.dst_addr().into());
    let Ok(mut segment) = TcpPacket::new_checked(ip.payload_mut()) else { return };
    if segment.payload_mut() != [0] || segment.psh() || segment.fin() || segment.syn() || segment.rst() {
        return;
    }
    segment.set_seq_number(segment.seq_number() - BACK);
    segment.fill_checksum(&from, &to);
}

#[cfg(test)]
mod tests {
    use smoltcp::phy::ChecksumCapabilities;
    use smoltcp::wire::{
        EthernetAddress, EthernetRepr, IpRepr, Ipv4Address, TcpControl, TcpRepr, TcpSeqNumber,
        TcpTimestampRepr,
    };

    use super::*;

    const FROM: Ipv4Address = Ipv4Address::new(10, 0, 0, 1);
    const TO: Ipv4Address = Ipv4Address::new(10, 0, 0, 2);

    fn frame(control: TcpControl, payload: &[u8], timestamp: Option<TcpTimestampRepr>) -> Vec<u8> {
        let tcp = TcpRepr {
            src_port: 1,
            dst_port: 2,
            control,
            seq_number: TcpSeqNumber(1000),
            ack_number: Some(TcpSeqNumber(2000)),
            window_len: 100,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp,
            payload,
        };
        let ip = IpRepr::new(FROM.into(), TO.into(), IpProtocol::Tcp, tcp.buffer_len(), 64);
        let mut bytes = vec![0; 14 + ip.buffer_len()];
        let mut ethernet = EthernetFrame::new_unchecked(&mut bytes);
        EthernetRepr {
            src_addr: EthernetAddress::default(),
            dst_addr: EthernetAddress::default(),
            ethertype: EthernetProtocol::Ipv4,
        }
        .emit(&mut ethernet);
        let checksums = ChecksumCapabilities::default();
        ip.emit(ethernet.payload_mut(), &checksums);
        let mut packet = TcpPacket::new_unchecked(&mut ethernet.payload_mut()[20..]);
        tcp.emit(&mut packet, &FROM.into(), &TO.into(), &checksums);
        bytes
    }

    #[test]
    fn a_keep_alive_is_moved_out_of_the_window_and_keeps_a_right_checksum() {
        let mut bytes = frame(TcpControl::None, &[0], None);
        make_harmless(&mut bytes);
        let segment = TcpPacket::new_checked(&bytes[34..]).unwrap();
        assert_eq!(segment.seq_number(), TcpSeqNumber(1000) - BACK);
        assert_eq!((segment.ack_number(), segment.payload()), (TcpSeqNumber(2000), &[0][..]));
        assert!(segment.verify_checksum(&FROM.into(), &TO.into()));
    }

    #[test]
    fn other_frames_are_left_alone() {
        let stamp = Some(TcpTimestampRepr::new(1, 2));
        let others = [
            (TcpControl::None, &[1][..], None),
            (TcpControl::None, &[0, 0], None),
            (TcpControl::None, &[], None),
            (TcpControl::Psh, &[0], None),
            (TcpControl::Fin, &[0], None),
            (TcpControl::None, &[0], stamp),
        ];
        for (control, payload, timestamp) in others {
            let mut bytes = frame(control, payload, timestamp);
            let before = bytes.clone();
            make_harmless(&mut bytes);
            assert_eq!(bytes, before, "{control:?} {payload:?}");
        }
        for mut bytes in [vec![0; FRAME], vec![0xff; FRAME]] {
            let before = bytes.clone();
            make_harmless(&mut bytes);
            assert_eq!(bytes, before);
        }
    }
}
