//! Emulated cards on a stream.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use taut_api::fabric::PortId;
use taut_api::fabric::config::PortKind;
use taut_api::link::Link;

use super::fabric::{Fabric, PATIENCE, mac, vnic};
use super::frames::{frame, tcp_checksum_holds, tcp_payload, tso};
use super::guest::{Guest, Model};

fn with_card() -> (Fabric, Guest, UnixStream) {
    let mut fabric = Fabric::start();
    let mut card = vnic(1, 1);
    card.kind = PortKind::Stream;
    fabric.configure(vec![vnic(0, 1), card]);
    let guest = Guest::start(fabric.connect(PortId(0)), Model::default());
    let stream = fabric.connect(PortId(1));
    fabric.until_link(PortId(1), Link::Up);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (fabric, guest, stream)
}

fn framed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes(), frame].concat()
}

fn receive(stream: &mut UnixStream) -> Vec<u8> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).unwrap();
    frame
}

#[test]
fn frames_pass_in_whatever_pieces_the_stream_delivers_them() {
    let (_fabric, mut guest, mut stream) = with_card();
    let sent: Vec<_> = (0..5).map(|mark| frame(mac(0), mac(1), mark, 1000)).collect();
    let bytes = sent.iter().flat_map(|frame| framed(frame)).collect::<Vec<_>>();
    for piece in bytes.chunks(333) {
        stream.write_all(piece).unwrap();
    }
    for sent in sent {
        assert_eq!(guest.receive().1, sent);
    }
    guest.send(&frame(mac(1), mac(0), 7, 64));
    assert_eq!(receive(&mut stream), frame(mac(1), mac(0), 7, 64));
}

#[test]
fn long_frames_are_segmented_for_a_card_and_stay_whole_for_a_slow_reader() {
    let (_fabric, mut guest, mut stream) = with_card();
    let (header, sent) = tso(mac(1), mac(0), 60_000, 1448);
    // Far more than the socket holds: writes are partial, and frames that do not fit are dropped
    // whole.
    for _ in 0..20 {
        guest.send_with(&header, &sent);
    }
    guest.drain();
    guest.send(&frame(mac(1), mac(0), 7, 64));
    let mut segments = 0;
    loop {
        let got = receive(&mut stream);
        if got == frame(mac(1), mac(0), 7, 64) {
            break;
        }
        assert!(tcp_checksum_holds(&got));
        let payload = tcp_payload(&got);
        assert!(tcp_payload(&sent).windows(payload.len()).any(|window| window == payload));
        segments += 1;
        if segments % 16 == 0 {
            guest.send(&frame(mac(1), mac(0), 7, 64));
        }
    }
    assert!(segments > 42);
}

#[test]
fn an_impossible_length_ends_the_stream_with_a_reason() {
    let (mut fabric, _guest, mut stream) = with_card();
    stream.write_all(&u32::MAX.to_be_bytes()).unwrap();
    let state = fabric.until_link(PortId(1), Link::Down);
    assert!(!state.attached);
    assert_eq!(
        state.reason.as_deref(),
        Some("the stream announced a frame of 4294967295 bytes; at most 65553 are possible")
    );
    assert_eq!(stream.read(&mut [0; 4]).unwrap(), 0, "the fabric keeps the broken stream");
}

#[test]
fn a_closed_stream_is_reported() {
    let (mut fabric, _guest, stream) = with_card();
    drop(stream);
    let state = fabric.until_link(PortId(1), Link::Down);
    assert_eq!(state.reason.as_deref(), Some("the stream's other end closed it"));
    assert!(!state.attached);
}
