//! Faults of a front end or a guest, which must not affect others.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::fs::{
    MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create,
};
use taut_api::Bytes;
use taut_api::fabric::PortId;
use taut_api::fabric::config::{FrontEndRules, PortConfig};
use taut_api::link::Link;
use taut_virtq::Part;
use vhost::vhost_user::message::FrontendReq;

use super::fabric::{Fabric, mac, vnic};
use super::frames::frame;
use super::guest::{FORMATS, FrontEnd, Guest, LINUX, Model, negotiate};
use super::traffic::guests;

fn assert_passes(a: &mut Guest, b: &mut Guest) {
    let sent = frame(mac(1), mac(0), 1, 100);
    a.send(&sent);
    assert_eq!(b.receive().1, sent);
}

/// Sets the available index of a guest's transmit ring to an impossible value.
fn break_transmit_ring(guest: &mut Guest) {
    let index = guest.layouts[1].avail + 2;
    guest.ram.memory().write(index, &9999_u16.to_le_bytes()).unwrap();
    guest.kick();
}

#[test]
fn a_broken_ring_takes_down_only_its_own_port_and_a_reset_revives_it() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, mut c] = guests(&mut fabric, Model::default());
    break_transmit_ring(&mut c);
    let state = fabric.until_link(PortId(2), Link::Broken);
    assert!(state.attached);
    let reason = state.reason.unwrap();
    assert!(reason.contains("available index jumped from 0 to 9999"), "{reason}");
    assert!(
        reason.ends_with("; hint: load the card's driver in the guest again, or restart the VM"),
        "{reason}"
    );
    assert_passes(&mut a, &mut b);

    // The driver resets the device, which QEMU reports, and sets it up again.
    assert_eq!(c.stop_ring(0), 0);
    assert_eq!(c.stop_ring(1), 0);
    let index = c.layouts[1].avail + 2;
    c.ram.memory().write(index, &0_u16.to_le_bytes()).unwrap();
    for queue in 0..2 {
        c.set_up_ring(queue, 0);
    }
    fabric.until_link(PortId(2), Link::Up);
    let sent = frame(mac(0), mac(2), 1, 100);
    c.send(&sent);
    assert_eq!(a.receive().1, sent);
}

#[test]
fn a_broken_receive_ring_is_found_by_the_next_frame_to_it() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, c] = guests(&mut fabric, Model::default());
    // Every receive buffer lies outside guest memory.
    for descriptor in 0..u64::from(c.layouts[0].size) {
        let at = c.layouts[0].desc + 16 * descriptor;
        c.ram.memory().write(at, &0xdead_0000_0000_u64.to_le_bytes()).unwrap();
    }
    a.send(&frame(mac(2), mac(0), 1, 100));
    let reason = fabric.until_link(PortId(2), Link::Broken).reason.unwrap();
    assert!(reason.contains("0xdead00000000"), "{reason}");
    assert_passes(&mut a, &mut b);
}

#[test]
fn a_ring_outside_memory_is_reported_when_it_is_set_up() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, mut c] = guests(&mut fabric, Model::default());
    c.stop_ring(1);
    c.layouts[1].desc = 0xffff_0000;
    c.set_up_ring(1, 0);
    let reason = fabric.until_link(PortId(2), Link::Broken).reason.unwrap();
    assert!(reason.contains("descriptor table"), "{reason}");
    assert_passes(&mut a, &mut b);
}

#[test]
fn memory_that_cannot_be_mapped_ends_the_session_with_a_hint_at_the_cause() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![vnic(0, 1)]);
    let mut front_end = FrontEnd { socket: fabric.connect(PortId(0)) };
    negotiate(&mut front_end, LINUX);
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
    let body = [1, 0, 4096, 0, 0_u64].map(u64::to_ne_bytes).concat();
    front_end.send(FrontendReq::SET_MEM_TABLE, &body, &[event.as_fd()], true);
    assert!(front_end.is_closed());
    fabric.until(|fabric| !fabric.ended.is_empty());
    let reason = &fabric.ended[0].1;
    assert!(reason.contains("; hint: QEMU needs memory-backend-memfd with share=on"), "{reason}");
    fabric.until(|fabric| fabric.states[&PortId(0)].reason.as_ref() == Some(&fabric.ended[0].1));
    assert!(!fabric.states[&PortId(0)].attached);
}

/// Memory of `size` bytes, and the body of the request that announces it as one region.
fn memory(size: u64, seals: SealFlags) -> (OwnedFd, Vec<u8>) {
    let file = memfd_create("memory", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, size).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    (file, [1, 0x1000, size, 0x1000, 0].map(u64::to_ne_bytes).concat())
}

#[test]
fn only_a_trusted_front_end_brings_memory_that_may_shrink_and_other_descriptors_than_eventfds() {
    let (unsealed, table) = memory(1 << 20, SealFlags::empty());
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    let first = 0_u64.to_ne_bytes().to_vec();
    let no_eventfd = "an event descriptor that is no eventfd; hint: ";
    let acts = [
        (FrontendReq::SET_MEM_TABLE, &table, &unsealed, "0x1000 is not sealed against shrinking; hint: "),
        (FrontendReq::SET_VRING_KICK, &first, &pipe, no_eventfd),
        (FrontendReq::SET_VRING_CALL, &first, &pipe, no_eventfd),
        (FrontendReq::SET_VRING_ERR, &first, &pipe, no_eventfd),
    ];
    let mut fabric = Fabric::start();
    fabric.configure(vec![vnic(0, 1)]);
    for (count, (request, body, fd, reason)) in acts.into_iter().enumerate() {
        let mut front_end = FrontEnd { socket: fabric.connect(PortId(0)) };
        negotiate(&mut front_end, LINUX);
        front_end.send(request, body, &[fd.as_fd()], true);
        assert!(front_end.is_closed());
        fabric.until(|fabric| fabric.ended.len() > count);
        let told = &fabric.ended[count].1;
        assert!(told.contains(reason), "{told}");
    }
    let front_end = FrontEndRules { trusted: true, ..FrontEndRules::default() };
    fabric.configure(vec![PortConfig { front_end, ..vnic(0, 1) }]);
    let mut front_end = FrontEnd { socket: fabric.connect(PortId(0)) };
    negotiate(&mut front_end, LINUX);
    for (request, body, fd, _) in acts {
        front_end.tell(request, body, &[fd.as_fd()]);
    }
}

#[test]
fn a_front_end_brings_no_more_memory_than_its_guest_has() {
    let mut fabric = Fabric::start();
    let front_end = FrontEndRules { memory: Some(Bytes::mib(100)), trusted: false };
    fabric.configure(vec![PortConfig { front_end, ..vnic(0, 1) }]);
    let mut ask = |mib: u64| {
        let (file, table) = memory(mib << 20, SealFlags::SHRINK);
        let mut front_end = FrontEnd { socket: fabric.connect(PortId(0)) };
        negotiate(&mut front_end, LINUX);
        front_end.send(FrontendReq::SET_MEM_TABLE, &table, &[file.as_fd()], true);
        if front_end.is_closed() {
            let count = fabric.ended.len();
            fabric.until(|fabric| fabric.ended.len() > count);
            return Some(fabric.ended[count].1.clone());
        }
        None
    };
    let told = ask(1 << 20).unwrap();
    assert!(told.contains("brings 1TiB of guest memory; its guest has 100MiB; hint: "), "{told}");
    assert!(ask(165).is_some());
    assert_eq!(ask(164), None, "firmware and devices have memory too");
}

/// Fills up an eventfd and makes it blocking. The fabric has a duplicate of it, which shares both.
fn make_blocking(event: &OwnedFd) {
    // It may have been signalled.
    let _ = rustix::io::read(event, &mut [0; 8]);
    rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    fcntl_setfl(event, fcntl_getfl(event).unwrap() - OFlags::NONBLOCK).unwrap();
}

#[test]
fn a_front_end_that_blocks_a_worker_is_shut_out_and_delays_others_for_a_moment_only() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, mut c] = guests(&mut fabric, Model::default());
    make_blocking(&c.events[0].call);
    a.send(&frame(mac(2), mac(0), 1, 100));
    let begun = Instant::now();
    assert_passes(&mut a, &mut b);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    fabric.until(|fabric| fabric.quarantined == [PortId(2)]);
    let reason = &fabric.ended[0].1;
    assert!(reason.contains("made it blocking") && reason.contains("; hint: restart the VM"), "{reason}");
    assert!(c.front_end.is_closed());
    let state = fabric.until_link(PortId(2), Link::Down);
    assert!(!state.attached);
    assert_passes(&mut a, &mut b);
}

#[test]
fn memory_that_is_taken_away_ends_its_own_session_only() {
    let mut fabric = Fabric::start();
    let front_end = FrontEndRules { trusted: true, ..FrontEndRules::default() };
    fabric.configure(vec![vnic(0, 1), vnic(1, 1), PortConfig { front_end, ..vnic(2, 1) }]);
    let pid = fabric.pid();
    let [mut a, mut b] = [0, 1].map(|id| Guest::start(fabric.connect(PortId(id)), Model::default()));
    let mut c = Guest::start(fabric.connect(PortId(2)), Model::default());
    for id in 0..3 {
        fabric.until_link(PortId(id), Link::Up);
    }
    // The guest announces other memory, with rings at the same addresses, and cuts it off.
    let (file, _) = memory(c.ram.spec().size, SealFlags::empty());
    let spec = c.ram.spec();
    let words = [1, spec.guest_addr, spec.size, spec.user_addr, spec.file_offset];
    c.front_end.tell(FrontendReq::SET_MEM_TABLE, &words.map(u64::to_ne_bytes).concat(), &[file.as_fd()]);
    ftruncate(&file, 0).unwrap();
    a.send(&frame(mac(2), mac(0), 1, 100));
    fabric.until(|fabric| fabric.quarantined == [PortId(2)]);
    let reason = &fabric.ended.last().unwrap().1;
    assert!(reason.contains("memory have vanished"), "{reason}");
    assert_passes(&mut a, &mut b);
    assert!(fabric.is_alive());
    assert_eq!(fabric.pid(), pid);
}

#[test]
fn a_front_end_that_blocks_the_control_thread_is_shut_out() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, mut c] = guests(&mut fabric, Model::default());
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
    c.front_end.tell(FrontendReq::SET_VRING_ERR, &1_u64.to_ne_bytes(), &[event.as_fd()]);
    make_blocking(&event);
    break_transmit_ring(&mut c);
    fabric.until(|fabric| fabric.quarantined == [PortId(2)]);
    assert_passes(&mut a, &mut b);
}

#[test]
fn a_protocol_error_ends_the_session_with_a_named_reason() {
    type Wrong = (FrontendReq, Vec<u8>, &'static str);
    let wrong: Vec<Wrong> = vec![
        (FrontendReq::SET_LOG_BASE, vec![0; 16], "SET_LOG_BASE was not offered"),
        (FrontendReq::GET_CONFIG, vec![0; 12], "GET_CONFIG was not offered"),
        (FrontendReq::SET_VRING_NUM, FrontEnd::state(7, 256), "queue 7; this port has 2"),
        (FrontendReq::SET_VRING_NUM, FrontEnd::state(0, 100), "queue 0 cannot have 100 entries"),
        (FrontendReq::SET_FEATURES, (1_u64 << 17).to_ne_bytes().to_vec(), "features 0x20000"),
        (FrontendReq::SET_FEATURES, vec![0; 4], "4 bytes instead of 8"),
        (FrontendReq::REM_MEM_REG, [0, 4096, 4096, 0, 0_u64].map(u64::to_ne_bytes).concat(), "0x1000"),
    ];
    let mut fabric = Fabric::start();
    fabric.configure(vec![vnic(0, 1)]);
    for (count, (request, body, reason)) in wrong.into_iter().enumerate() {
        let mut front_end = FrontEnd { socket: fabric.connect(PortId(0)) };
        front_end.send(request, &body, &[], false);
        assert!(front_end.is_closed());
        fabric.until(|fabric| fabric.ended.len() > count);
        let told = &fabric.ended[count].1;
        assert!(told.contains(reason) && told.contains("; hint: "), "{told}");
    }
    // The port still works.
    let _guest = Guest::start(fabric.connect(PortId(0)), Model::default());
    fabric.until_link(PortId(0), Link::Up);
}

#[test]
fn a_call_descriptor_set_before_all_else_is_kept() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![vnic(0, 1)]);
    let front_end = FrontEnd { socket: fabric.connect(PortId(0)) };
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
    front_end.send(FrontendReq::SET_VRING_CALL, &0_u64.to_ne_bytes(), &[event.as_fd()], false);
    fabric.until(|fabric| fabric.sessions.get(&PortId(0)).is_some_and(|(session, _)| session.queues[0].call));
}

#[test]
fn descriptor_chains_of_any_shape_pass_or_break_only_their_own_port() {
    let mut fabric = Fabric::start();
    let [mut a, mut b, mut c] = guests(&mut fabric, Model::default());
    // A loop: the descriptor is its own successor.
    let part = Part { addr: c.ram.spec().guest_addr, len: 64, writable: false };
    let head = c.tx.ring().add(std::iter::once(part)).unwrap();
    let at = c.layouts[1].desc + 16 * u64::from(head) + 12;
    let next_is_itself = [1_u16.to_le_bytes(), head.to_le_bytes()].concat();
    c.ram.memory().write(at, &next_is_itself).unwrap();
    c.tx.ring().publish();
    c.kick();
    let reason = fabric.until_link(PortId(2), Link::Broken).reason.unwrap();
    assert!(reason.contains("loop") || reason.contains("more than"), "{reason}");
    assert_passes(&mut a, &mut b);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Arbitrary bytes on the socket of one port do not affect the others.
    #[test]
    fn noise_on_a_socket_ends_at_most_that_session(
        messages in prop::collection::vec(
            (0_u32..46, any::<bool>(), prop::collection::vec(any::<u8>(), 0..64), any::<u8>()),
            1..12,
        ),
    ) {
        let mut fabric = Fabric::start();
        let [mut a, mut b] = guests(&mut fabric, Model::default());
        fabric.configure((0..3).map(|id| vnic(id, 1)).collect());
        let mut noisy = fabric.connect(PortId(2));
        for (request, ack, body, queue) in messages {
            let flags: u32 = if ack { 9 } else { 1 };
            let mut bytes = [request, flags, body.len() as u32].map(u32::to_ne_bytes).concat();
            let mut body = body;
            if let Some(first) = body.first_mut() {
                *first = queue % 3;
            }
            bytes.extend(body);
            if noisy.write_all(&bytes).is_err() {
                break;
            }
        }
        assert_passes(&mut a, &mut b);
        prop_assert!(fabric.is_alive());
    }

    /// Arbitrary bytes in the rings of one guest that keeps kicking do not affect the others.
    #[test]
    fn garbage_in_a_guests_rings_is_its_own_affair(
        garbage in prop::collection::vec((any::<prop::sample::Index>(), any::<u16>()), 1..200),
        format in prop::sample::select(FORMATS.as_slice()),
    ) {
        let mut fabric = Fabric::start();
        let model = Model { features: LINUX | format, queue_size: 16, ..Model::default() };
        let [mut a, mut b, c] = guests(&mut fabric, model);
        let start = c.ram.spec().guest_addr;
        // Both rings lie at the start of guest memory.
        let span = c.layouts[1].used + 256 - start;
        for (at, word) in garbage {
            let at = start + at.index(span as usize / 2) as u64 * 2;
            c.ram.memory().write(at, &word.to_le_bytes()).unwrap();
            c.kick();
        }
        a.send(&frame(mac(2), mac(0), 1, 100));
        assert_passes(&mut a, &mut b);
        prop_assert!(fabric.is_alive());
    }
}
