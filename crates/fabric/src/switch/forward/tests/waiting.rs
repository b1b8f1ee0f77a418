//! Tests of frames that find no room: waiting, resuming and giving up.

use super::*;

#[test]
fn a_full_receiver_delays_its_sender_once_and_then_loses_frames_until_it_has_room() {
    let mut rig = Rig::new();
    for _ in 0..BUFFERS {
        assert_eq!(rig.send_plain(0, mac(1)), Verdict::Done);
    }
    assert_eq!(rig.send_plain(10, mac(1)), rig.waits_until(10 + WAIT_MS));
    assert_eq!(rig.send_plain(10 + WAIT_MS - 1, mac(1)), rig.waits_until(10 + WAIT_MS));
    for ms in [0, 1, 100] {
        assert_eq!(rig.send_plain(10 + WAIT_MS + ms, mac(1)), Verdict::Done);
    }
    let counters = rig.counters(1);
    assert_eq!(counters.rx_drops, [(DropReason::RingFull, 3)]);
    assert_eq!(counters.rx_waits, 1);
    assert_eq!(rig.counters(0).tx_frames, u64::from(BUFFERS) + 3, "a waiting frame is not counted");

    assert_eq!(rig.received(1).len(), usize::from(BUFFERS));
    for _ in 0..BUFFERS {
        assert_eq!(rig.send_plain(200, mac(1)), Verdict::Done);
    }
    assert_eq!(rig.send_plain(200, mac(1)), rig.waits_until(200 + WAIT_MS), "room again, patience again");
    assert_eq!(rig.counters(1).rx_waits, 2);
}

/// Lets port 0 send to slow guests in turn as fast as it can, and returns the part of two seconds
/// in which its queue stands still. The guests post a buffer each four milliseconds.
fn standstill(rig: &mut Rig, guests: &[u16]) -> f64 {
    for &guest in guests {
        (0..BUFFERS).for_each(|_| assert_eq!(rig.send_plain(0, mac(guest)), Verdict::Done));
        rig.receive_some(guest, usize::from(BUFFERS) - 1);
    }
    let mut receivers = guests.iter().cycle();
    let mut to = *receivers.next().unwrap();
    let mut waited = Duration::ZERO;
    for ms in 1..=2000 {
        if ms % 4 == 0 {
            for &guest in guests {
                rig.receive_some(guest, 1);
            }
        }
        for _ in 0..20 {
            if let Verdict::Wait(until) = rig.send_plain(ms, mac(to)) {
                let now = rig.start + Duration::from_millis(ms);
                waited += until.saturating_duration_since(now).min(Duration::from_millis(1));
                break;
            }
            to = *receivers.next().unwrap();
        }
    }
    waited.as_secs_f64() / 2.0
}

#[test]
fn slow_guests_hold_an_uplink_for_a_small_share_of_the_time() {
    let mut rig = Rig::new();
    let part = standstill(&mut rig, &[1]);
    assert!(part > 0.9, "{part}: a sender that is no uplink waits for its receiver");
    let all: Vec<u16> = (1..=16).collect();
    for (guests, least, most) in [(1, 0.02, 1.0 / 16.0), (2, 0.04, 2.0 / 16.0), (16, 0.15, 1.0 / 4.0)] {
        let mut rig = Rig::on(&["0"; 17]);
        rig.uplink = Some(UplinkBudget::default());
        let part = standstill(&mut rig, &all[..guests]);
        assert!((least..=most + 0.01).contains(&part), "{part} of the time for {guests} guests");
    }
}

#[test]
fn a_sender_that_is_no_uplink_uses_up_no_budget_of_its_receiver() {
    let mut rig = Rig::new();
    (0..BUFFERS).for_each(|_| assert_eq!(rig.send_plain(0, mac(1)), Verdict::Done));
    assert_eq!(rig.send_plain(1, mac(1)), rig.waits_until(1 + WAIT_MS));
    rig.received(1);
    assert_eq!(rig.send_plain(4, mac(1)), Verdict::Done);
    let slot = rig.switch.segments[0].members[1].port.rx(PairIdx::FIRST);
    assert_eq!(slot.waits.left(rig.start + Duration::from_millis(4)), LONGEST_WAIT);
}

#[test]
fn a_guest_gets_no_new_budget_by_a_new_ring() {
    let mut rig = Rig::new();
    rig.uplink = Some(UplinkBudget::default());
    rig.switch.segments[0].members[1].port.stop_ring(QueueIdx(0));
    assert_eq!(rig.send_plain(5, mac(1)), rig.waits_until(5 + WAIT_MS));
    assert_eq!(rig.send_plain(5 + WAIT_MS, mac(1)), Verdict::Done, "it is dropped");
    let port = &rig.switch.segments[0].members[1].port;
    port.stop_ring(QueueIdx(0));
    let spent = rig.start + Duration::from_millis(5 + WAIT_MS);
    assert_eq!(port.rx(PairIdx::FIRST).waits.left(spent), Duration::ZERO);
}

#[test]
fn copies_for_many_never_wait() {
    let mut rig = Rig::new();
    for _ in 0..BUFFERS {
        rig.send_plain(0, mac(1));
    }
    assert_eq!(rig.send_plain(0, MacAddr::BROADCAST), Verdict::Done);
    assert_eq!(rig.counters(1).rx_drops, [(DropReason::RingFull, 1)]);
    assert_eq!(rig.received(2).len(), 1);
}

#[test]
fn a_port_without_rings_delays_its_sender_only_once() {
    let mut rig = Rig::new();
    rig.switch.segments[0].members[1].port.stop_ring(QueueIdx(0));
    assert_eq!(rig.send_plain(5, mac(1)), rig.waits_until(5 + WAIT_MS));
    assert_eq!(rig.send_plain(5 + WAIT_MS, mac(1)), Verdict::Done);
    assert_eq!(rig.send_plain(6 + WAIT_MS, mac(1)), Verdict::Done);
    assert_eq!(rig.counters(1).rx_drops, [(DropReason::PortDown, 2)]);
}

#[test]
fn a_segmented_frame_resumes_at_the_segment_that_found_no_room() {
    let mut rig = Rig::new();
    let payload = 20_000_usize;
    let mut frame = [&mac(1).0[..], &mac(0).0[..], &[0x08, 0x00, 0x45, 0]].concat();
    frame.extend(((40 + payload) as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0; 12]);
    frame.extend([0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    frame.extend((0..payload).map(|at| (at % 249) as u8));
    let header = NetHeader {
        flags: NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 16,
        ..NO_OFFLOADS
    };
    let mut got = Vec::new();
    let mut rounds = 0;
    while rig.send(rounds, &header, &frame) != Verdict::Done {
        got.extend(rig.received(1));
        rounds += 1;
    }
    got.extend(rig.received(1));
    assert_eq!(rounds, 2, "20 segments into 8 buffers");
    assert_eq!(got.len(), 20);
    assert_eq!(got.iter().flat_map(|segment| &segment[54..]).copied().collect::<Vec<_>>(), frame[54..]);
    assert_eq!(rig.pieces_done, 0);
    assert_eq!((rig.counters(0).tx_frames, rig.counters(1).rx_frames), (1, 20));
}

#[test]
fn a_delayed_interrupt_is_sent_in_time_or_when_the_guest_must_make_room() {
    let mut rig = Rig::new();
    let port = Arc::clone(&rig.switch.segments[0].members[1].port);
    port.moderate(Coalescing::Rbc { rate: 100 });

    // The first interrupt is sent at once, the next one at its time.
    rig.send_plain(0, mac(1));
    assert_eq!(rig.counters(1).interrupts, 1);
    rig.send_plain(1, mac(1));
    assert_eq!(rig.counters(1).interrupts, 1);
    let due = rig.start + Duration::from_millis(10);
    assert_eq!(rig.timers.next(), Some(due));
    for (ms, interrupts) in [(9, 1), (10, 2), (20, 2)] {
        let now = rig.start + Duration::from_millis(ms);
        port.rx_due(PairIdx::FIRST, due, now, &mut rig.timers);
        assert_eq!(rig.counters(1).interrupts, interrupts, "{ms} ms");
    }
    rig.received(1);

    // Half a ring, and a full ring, end the delay: the guest must make room.
    rig.send_plain(30, mac(1));
    assert_eq!(rig.counters(1).interrupts, 3);
    for (frame, interrupts) in [(2, 3), (3, 3), (4, 3), (5, 4), (6, 4), (7, 4), (8, 4), (9, 5)] {
        rig.send_plain(31, mac(1));
        assert_eq!(rig.counters(1).interrupts, interrupts, "frame {frame}");
    }
    rig.pieces_done = 0;
    rig.received(1);

    // A change of the scheme, and the stop of the ring, end the delay.
    rig.send_plain(32, mac(1));
    assert_eq!(rig.counters(1).interrupts, 5);
    port.moderate(Coalescing::Disabled);
    port.rx_due(PairIdx::FIRST, rig.start, rig.start + Duration::from_millis(32), &mut rig.timers);
    assert_eq!(rig.counters(1).interrupts, 6);
    port.moderate(Coalescing::Static { packets: 64 });
    rig.send_plain(33, mac(1));
    assert_eq!(rig.counters(1).interrupts, 6);
    port.stop_ring(QueueIdx(0));
    assert_eq!(rig.counters(1).interrupts, 7);
}
