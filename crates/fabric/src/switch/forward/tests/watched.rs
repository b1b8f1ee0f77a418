//! Tests of captures and mirrors.

use super::*;

/// Returns the frames that a capture has recorded since the last call.
fn recorded(reader: &OwnedFd) -> Vec<(Direction, Option<DropReason>, Vec<u8>)> {
    let mut packet = vec![0; HEADER + MAX_SNAPLEN as usize];
    let mut frames = Vec::new();
    while let Ok((got, _)) = recv(reader, &mut packet[..], RecvFlags::DONTWAIT) {
        let message = Message::parse(&packet[..got]);
        let Ok(Message::Frame(Record { direction, dropped, bytes, lost: 0, .. })) = message else {
            panic!("{message:?}");
        };
        frames.push((direction, dropped, bytes.to_vec()));
    }
    frames
}

#[test]
fn a_capture_has_each_frame_once_as_its_port_has_it() {
    use Direction::{Rx, Tx};
    let mut rig = Rig::on(&["10", "10-20", "10"]);
    let (sender, trunk) = (rig.capture(0), rig.capture(1));
    for len in [18, 64, 68, 70, 1500] {
        let tagged = in_vlan_10(len);
        let plain = [&tagged[..12], &tagged[16..]].concat();
        rig.send(0, &NO_OFFLOADS, &plain);
        assert_eq!(rig.received(1), std::slice::from_ref(&tagged));
        assert_eq!(recorded(&sender), [(Tx, None, plain)]);
        assert_eq!(recorded(&trunk), [(Rx, None, tagged)]);
    }
    let forged = [&mac(1).0[..], &mac(9).0[..], &[0x88, 0xb5], &[0; 46]].concat();
    rig.send(0, &NO_OFFLOADS, &forged);
    rig.send(0, &NO_OFFLOADS, &[1; 13]);
    let dropped = [(Tx, Some(DropReason::ForgedTransmit), forged), (Tx, Some(DropReason::Runt), vec![1; 13])];
    assert_eq!(recorded(&sender), dropped);
    // Frames between others are not recorded.
    rig.send_plain(0, mac(2));
    assert_eq!((recorded(&sender).len(), recorded(&trunk).len()), (1, 0));
    rig.send_plain(0, MacAddr::BROADCAST);
    assert_eq!((recorded(&sender).len(), recorded(&trunk).len()), (1, 1));
}

#[test]
fn a_frame_that_waits_for_room_is_recorded_when_its_fate_is_known() {
    let mut rig = Rig::new();
    let (sender, receiver) = (rig.capture(0), rig.capture(1));
    for _ in 0..BUFFERS {
        rig.send_plain(0, mac(1));
    }
    assert_eq!(recorded(&sender).len(), usize::from(BUFFERS));
    assert_eq!(recorded(&receiver).len(), usize::from(BUFFERS));
    assert_eq!(rig.send_plain(10, mac(1)), rig.waits_until(10 + WAIT_MS));
    assert_eq!((recorded(&sender).len(), recorded(&receiver).len()), (0, 0), "it waits");
    assert_eq!(rig.send_plain(10 + WAIT_MS, mac(1)), Verdict::Done);
    let dropped = recorded(&receiver);
    assert_eq!((dropped.len(), dropped[0].1), (1, Some(DropReason::RingFull)));
    // The drop is counted at the receiver.
    let sent = recorded(&sender);
    assert_eq!((sent.len(), sent[0].1), (1, None));
    // A reader that has gone delays nobody.
    rig.received(1);
    assert_eq!(rig.send_plain(200, mac(1)), Verdict::Done);
    drop((sender, receiver));
    assert_eq!(rig.send_plain(201, mac(1)), Verdict::Done);
    assert_eq!(rig.received(1).len(), 2);
}

#[test]
fn a_mirror_has_copies_of_what_its_sources_send_and_receive_whatever_its_vlan() {
    let mut rig = Rig::on(&["10", "10-20", "30"]);
    let mirror = |directions| vec![PortMirror { to: PortId(2), directions }];
    rig.configs[0].mirrors = mirror(Directions::Tx);
    rig.configs[1].mirrors = mirror(Directions::Rx);
    rig.reconfigure();
    let seen = rig.capture(2);
    let tagged = in_vlan_10(100);
    let plain = [&tagged[..12], &tagged[16..]].concat();
    rig.send(0, &NO_OFFLOADS, &plain);
    assert_eq!(rig.received(1), std::slice::from_ref(&tagged));
    assert_eq!(rig.received(2), [tagged.clone(), plain.clone()]);
    let copies = [(Direction::Rx, None, tagged), (Direction::Rx, None, plain)];
    assert_eq!(recorded(&seen), copies);
    // A frame that the policy refuses is not copied.
    rig.send(0, &NO_OFFLOADS, &[&mac(1).0[..], &mac(9).0[..], &[0x88, 0xb5], &[0; 46]].concat());
    assert!(rig.received(1).is_empty() && rig.received(2).is_empty());
    // A destination without room loses copies, and nobody waits for it.
    let buffers = usize::from(BUFFERS);
    for _ in 0..buffers {
        assert_eq!(rig.send_plain(0, mac(1)), Verdict::Done);
    }
    assert_eq!(rig.counters(2).rx_drops, [(DropReason::RingFull, u64::from(BUFFERS))]);
    assert_eq!((rig.received(1).len(), rig.received(2).len()), (buffers, buffers));
    rig.configs[0].mirrors.clear();
    rig.configs[1].mirrors.clear();
    rig.reconfigure();
    rig.send_plain(0, mac(1));
    assert_eq!((rig.received(1).len(), rig.received(2).len()), (1, 0));
}
