//! Makes smoltcp's keep-alives harmless, and lets their answers mend a connection.

use std::collections::VecDeque;

use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Address, Ipv4Packet, TcpPacket};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of an Ethernet frame with a keep-alive: three headers without options, and one byte.
const FRAME: usize = ETHERNET + 20 + 20 + 1;
/// How far a keep-alive is moved back, in sequence numbers. No window is longer, so its byte is
/// older than all that a peer still accepts.
const BACK: usize = 1 << 30;

/// Keep-alives to remember. More connections at once are silent only if the link is down.
const MOST: usize = 64;
/// Times that the stack gets the answer to a keep-alive, see [`KeepAlives::receive`].
const ANSWERS: u8 = 5;

/// A connection: its port here, and the address and port of its peer.
type Connection = (u16, Ipv4Address, u16);

/// Keep-alives that were sent and not yet answered.
#[derive(Debug, Default)]
pub(super) struct KeepAlives {
    sent: VecDeque<Connection>,
    /// The frame that was received last, if it is an answer that the stack gets again.
    answer: Option<Answer>,
}

/// An answer to a keep-alive.
#[derive(Debug)]
struct Answer {
    /// Times that the stack gets it again.
    left: u8,
    /// The window that the peer offered.
    window: u16,
}

impl KeepAlives {
    /// Moves the byte of a keep-alive to a place that the peer has behind it, and remembers the
    /// connection. Leaves other frames alone.
    ///
    /// A keep-alive of smoltcp 0.14 carries one zero byte, at the place of the last byte that was
    /// sent. If that byte was lost, the peer takes the zero for it, and the stream is wrong. A byte
    /// outside of the window is answered by an acknowledgement (RFC 9293, section 3.10.7.4), which
    /// is all that a keep-alive is for.
    ///
    /// A single zero byte with more behind it looks the same. It counts as lost if it was data, and
    /// smoltcp sends it again; a probe of a window of zero bytes gets the same answer here and
    /// there.
    pub(super) fn send(&mut self, frame: &mut [u8]) {
        if frame.len() != FRAME {
            return;
        }
        let Some(mut ip) = ip_packet(frame) else { return };
        let (from, to) = (ip.src_addr(), ip.dst_addr());
        let Ok(mut segment) = TcpPacket::new_checked(ip.payload_mut()) else { return };
        if segment.payload_mut() != [0] || segment.psh() || !is_plain(&segment) {
            return;
        }
        segment.set_seq_number(segment.seq_number() - BACK);
        segment.fill_checksum(&from.into(), &to.into());

        let connection = (segment.src_port(), to, segment.dst_port());
        if !self.sent.contains(&connection) {
            self.sent.truncate(MOST - 1);
            self.sent.push_front(connection);
        }
    }

    /// Looks at a frame that was just received. If it is the answer to a keep-alive, that one is
    /// forgotten, and [`KeepAlives::again`] hands the frame to the stack more often.
    ///
    /// smoltcp repeats a lost segment at once if three acknowledgements of the same byte and with
    /// the same window follow another one. It does not count on from three that it had before. A
    /// peer gives one answer a second at most. So the stack gets the answer [`ANSWERS`] times:
    /// with a smaller window, which lets it count anew, with the right window, which is a change as
    /// well, and three times more.
    pub(super) fn receive(&mut self, frame: &mut [u8]) {
        self.answer = None;
        if self.sent.is_empty() {
            return;
        }
        let Some(mut ip) = ip_packet(frame) else { return };
        let from = ip.src_addr();
        let Ok(mut segment) = TcpPacket::new_checked(ip.payload_mut()) else { return };
        if !segment.payload_mut().is_empty() || !segment.ack() || !is_plain(&segment) {
            return;
        }
        let connection = (segment.dst_port(), from, segment.src_port());
        let window = segment.window_len();
        let Some(place) = self.sent.iter().position(|sent| *sent == connection) else { return };
        self.sent.remove(place);
        self.answer = Some(Answer { left: ANSWERS - 1, window });
        set_window(frame, window.saturating_sub(1));
    }

    /// Returns whether the stack gets the frame that was received last once more.
    pub(super) fn again(&mut self, frame: &mut [u8]) -> bool {
        let Some(answer) = &mut self.answer else { return false };
        if answer.left == ANSWERS - 1 {
            set_window(frame, answer.window);
        }
        answer.left -= 1;
        if answer.left == 0 {
            self.answer = None;
        }
        true
    }
}

/// Sets the window that a segment offers.
fn set_window(frame: &mut [u8], window: u16) {
    let Some(mut ip) = ip_packet(frame) else { return };
    let (from, to) = (ip.src_addr().into(), ip.dst_addr().into());
    let Ok(mut segment) = TcpPacket::new_checked(ip.payload_mut()) else { return };
    segment.set_window_len(window);
    segment.fill_checksum(&from, &to);
}

/// Returns the IPv4 packet of a frame if its payload is TCP.
fn ip_packet(frame: &mut [u8]) -> Option<Ipv4Packet<&mut [u8]>> {
    let ethertype = EthernetFrame::new_checked(&*frame).ok()?.ethertype();
    if ethertype != EthernetProtocol::Ipv4 {
        return None;
    }
    let ip = Ipv4Packet::new_checked(frame.get_mut(ETHERNET..)?).ok()?;
    (ip.next_header() == IpProtocol::Tcp).then_some(ip)
}

/// Returns whether a segment neither opens nor ends a connection.
fn is_plain(segment: &TcpPacket<&mut [u8]>) -> bool {
    !segment.fin() && !segment.syn() && !segment.rst()
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

    fn window(frame: &[u8]) -> u16 {
        let segment = TcpPacket::new_checked(&frame[34..]).unwrap();
        assert!(segment.verify_checksum(&FROM.into(), &TO.into()));
        segment.window_len()
    }

    #[test]
    fn a_keep_alive_is_moved_out_of_the_window_and_keeps_a_right_checksum() {
        let mut bytes = frame(TcpControl::None, &[0], None);
        KeepAlives::default().send(&mut bytes);
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
        let frames = others.map(|(control, payload, timestamp)| frame(control, payload, timestamp));
        for mut bytes in frames.into_iter().chain([vec![0; FRAME], vec![0xff; FRAME]]) {
            let before = bytes.clone();
            let mut keep_alives = KeepAlives::default();
            keep_alives.send(&mut bytes);
            assert_eq!(bytes, before);
            keep_alives.receive(&mut bytes);
            assert_eq!(bytes, before);
            assert!(!keep_alives.again(&mut bytes));
        }
    }

    /// The frames here go from port 1 to port 2 and stand for both directions, so the ports of the
    /// answer are exchanged.
    #[test]
    fn the_answer_to_a_keep_alive_comes_five_times_and_the_first_has_another_window() {
        let mut keep_alives = KeepAlives::default();
        keep_alives.sent.push_front((2, FROM, 1));
        let mut data = frame(TcpControl::None, &[1], None);
        keep_alives.receive(&mut data);
        assert!(!keep_alives.again(&mut data), "data is no answer");

        let mut bytes = frame(TcpControl::None, &[], None);
        keep_alives.receive(&mut bytes);
        let mut windows = vec![window(&bytes)];
        while keep_alives.again(&mut bytes) {
            windows.push(window(&bytes));
        }
        assert_eq!(windows, [99, 100, 100, 100, 100]);

        keep_alives.receive(&mut bytes);
        assert!(!keep_alives.again(&mut bytes), "one keep-alive has one answer");
    }

    #[test]
    fn a_new_frame_ends_the_repetition() {
        let mut keep_alives = KeepAlives::default();
        keep_alives.sent.push_front((2, FROM, 1));
        let mut bytes = frame(TcpControl::None, &[], None);
        keep_alives.receive(&mut bytes);
        assert!(keep_alives.again(&mut bytes));
        keep_alives.receive(&mut frame(TcpControl::None, &[], None));
        assert!(!keep_alives.again(&mut bytes));
    }

    #[test]
    fn remembered_keep_alives_are_bounded() {
        let mut keep_alives = KeepAlives::default();
        for port in 0..1000 {
            let mut bytes = frame(TcpControl::None, &[0], None);
            bytes[34..36].copy_from_slice(&u16::to_be_bytes(port));
            keep_alives.send(&mut bytes);
        }
        assert_eq!(keep_alives.sent.len(), MOST);
        assert_eq!(keep_alives.sent[0], (999, TO, 2));
    }
}
