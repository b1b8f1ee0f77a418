//! Sessions that outlive the fabric process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use taut_api::fabric::PortId;
use taut_api::link::Link;
use vhost::vhost_user::message::FrontendReq;

use super::fabric::{Fabric, mac, vnic};
use super::frames::frame;
use super::guest::{FORMATS, Guest, LINUX, Model, NO_OFFLOADS, Window};
use super::traffic::guests;

/// The features of drivers with all offloads in each ring format, and of one without any.
fn formats() -> impl Iterator<Item = u64> {
    FORMATS.into_iter().map(|format| LINUX | format).chain([NO_OFFLOADS])
}

fn resume_both(fabric: &mut Fabric) {
    fabric.configure(vec![vnic(0, 1), vnic(1, 1)]);
    fabric.resume();
    fabric.until_link(PortId(0), Link::Up);
    fabric.until_link(PortId(1), Link::Up);
}

pub(crate) fn exchange(a: &mut Guest, b: &mut Guest, mark: u8) {
    let sent = frame(mac(1), mac(0), mark, 200);
    a.send(&sent);
    assert!(b.receive().1 == sent);
    let sent = frame(mac(0), mac(1), mark, 1000);
    b.send(&sent);
    assert!(a.receive().1 == sent);
}

#[test]
fn a_killed_fabric_is_replaced_under_running_guests() {
    for features in formats() {
        let mut fabric = Fabric::start();
        let [mut a, mut b] = guests(&mut fabric, Model { features, ..Model::default() });
        for mark in 0..20 {
            exchange(&mut a, &mut b, mark);
        }
        for round in 0..3 {
            // Frames that were not returned to the guest are sent again.
            a.drain();
            b.drain();
            fabric = fabric.kill_and_replace();
            // A frame sent while there is no fabric waits in the ring, and its kick in the eventfd.
            let waiting = frame(mac(1), mac(0), 100 + round, 300);
            a.send(&waiting);
            resume_both(&mut fabric);
            assert_eq!(b.receive().1, waiting);
            for mark in 0..50 {
                exchange(&mut a, &mut b, mark);
            }
        }
        assert!(a.front_end.ask(FrontendReq::GET_STATUS) & 4 != 0, "the device forgot that its driver runs");
    }
}

#[test]
fn frames_in_flight_when_the_fabric_is_killed_arrive_at_least_once_and_in_order() {
    FORMATS.into_iter().for_each(frames_under_way_arrive);
}

fn frames_under_way_arrive(format: u64) {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = guests(&mut fabric, Model { features: LINUX | format, ..Model::default() });
    let count = 30_000_u32;
    // Half a ring leaves room for frames that a successor delivers a second time.
    let window = Window::new(100);
    let sender_window = Arc::clone(&window);
    let sender = std::thread::spawn(move || {
        for number in 0..count {
            sender_window.wait_for(number);
            let mut sent = frame(mac(1), mac(0), 0, 64);
            sent[20..24].copy_from_slice(&number.to_be_bytes());
            a.send(&sent);
        }
        a.drain();
        a
    });
    let receiver = std::thread::spawn(move || {
        let mut next = 0;
        while next < count {
            let (_, got) = b.receive();
            let number = u32::from_be_bytes(got[20..24].try_into().unwrap());
            assert!(number <= next, "frame {next} is missing, {number} came");
            if number == next {
                next += 1;
                window.advance(next);
            }
        }
        b
    });
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(15));
        fabric = fabric.kill_and_replace();
        resume_both(&mut fabric);
    }
    sender.join().unwrap();
    receiver.join().unwrap();
}

#[test]
fn a_fabric_that_is_asked_to_quit_ends_after_its_last_message() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = guests(&mut fabric, Model::default());
    exchange(&mut a, &mut b, 1);
    assert!(fabric.quit().success());
    assert_eq!(fabric.sessions.len(), 2);
    let mut next = fabric.replacement();
    resume_both(&mut next);
    exchange(&mut a, &mut b, 2);
}

#[test]
fn a_tautd_that_reconnects_gets_all_sessions_and_states_again() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = guests(&mut fabric, Model::default());
    fabric.reconnect();
    fabric.until_link(PortId(0), Link::Up);
    fabric.until_link(PortId(1), Link::Up);
    assert_eq!(fabric.sessions.len(), 2);
    exchange(&mut a, &mut b, 1);
    a.drain();
    b.drain();
    let mut fabric = fabric.kill_and_replace();
    resume_both(&mut fabric);
    exchange(&mut a, &mut b, 2);
}

#[test]
fn a_record_with_a_wrong_number_of_descriptors_is_refused_with_the_reason() {
    let mut fabric = Fabric::start();
    let [_a, _b] = guests::<2>(&mut fabric, Model::default());
    let mut fabric = fabric.kill_and_replace();
    fabric.configure(vec![vnic(0, 1), vnic(1, 1)]);
    fabric.sessions.get_mut(&PortId(0)).unwrap().1.pop();
    fabric.resume();
    fabric.until_link(PortId(1), Link::Up);
    let state = fabric.until_link(PortId(0), Link::Down);
    assert!(!state.attached);
    let reason = state.reason.as_deref().unwrap();
    assert_eq!(reason, "the session to resume has 5 descriptors instead of 6");
}

/// Sends numbered frames from `a` to `b` while `events` runs. Each must arrive exactly once, in
/// order and whole.
pub(crate) fn exactly_once(
    fabric: Fabric,
    mut a: Guest,
    mut b: Guest,
    events: impl FnOnce(Fabric) -> Fabric,
) {
    let window = Window::new(200);
    let sender_window = Arc::clone(&window);
    let over = Arc::new(AtomicBool::new(false));
    let sender_over = Arc::clone(&over);
    let sender = std::thread::spawn(move || {
        let mut number = 0_u32;
        while !sender_over.load(Ordering::Relaxed) {
            sender_window.wait_for(number);
            let mut sent = frame(mac(1), mac(0), number as u8, 60 + number as usize % 1400);
            sent[14..18].copy_from_slice(&number.to_be_bytes());
            a.send(&sent);
            number += 1;
        }
        let last = frame(mac(1), mac(0), 0, 14);
        a.send(&last);
        a.drain();
        number
    });
    let (tell, begun) = mpsc::channel();
    let receiver = std::thread::spawn(move || {
        let mut next = 0_u32;
        loop {
            let (_, got) = b.receive();
            // Tells the thread that waits for the first frame. Later, nobody listens.
            let _ = tell.send(());
            if got.len() == 14 {
                return next;
            }
            let mut whole = frame(mac(1), mac(0), next as u8, 60 + next as usize % 1400);
            whole[14..18].copy_from_slice(&next.to_be_bytes());
            assert!(got == whole, "frame {next} is not the one that came: {:?}", &got[14..18]);
            next += 1;
            window.advance(next);
        }
    });
    // On a busy machine, the events may be over before the first frame is there.
    begun.recv().unwrap();
    drop(begun);
    let _fabric = events(fabric);
    over.store(true, Ordering::Relaxed);
    let sent = sender.join().unwrap();
    assert_eq!(receiver.join().unwrap(), sent);
}

#[test]
fn an_upgrade_under_load_neither_loses_nor_repeats_nor_changes_a_frame() {
    for features in formats() {
        let mut fabric = Fabric::start();
        let [a, b] = guests(&mut fabric, Model { features, ..Model::default() });
        exactly_once(fabric, a, b, |mut fabric| {
            for _ in 0..5 {
                fabric = fabric.upgrade(vec![vnic(0, 1), vnic(1, 1)]);
                fabric.until_link(PortId(0), Link::Up);
                fabric.until_link(PortId(1), Link::Up);
            }
            fabric
        });
    }
}

#[test]
fn a_fabric_in_standby_touches_no_ring_and_ends_with_its_tautd() {
    let mut fabric = Fabric::start();
    let [mut a, mut b] = guests(&mut fabric, Model::default());
    let mut next = fabric.beside();
    next.stand_by_for(&fabric, |next| next.configure(vec![vnic(0, 1), vnic(1, 1)]));
    for mark in 0..50 {
        exchange(&mut a, &mut b, mark);
    }
    assert!(next.states.is_empty(), "the process in standby reported ports: {:?}", next.states);
    next.hang_up();
    exchange(&mut a, &mut b, 77);
}
