//! Guest memory that changes or disappears under traffic.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use taut_api::fabric::PortId;
use taut_api::link::Link;
use taut_virtq::driver::Ram;
use vhost::vhost_user::message::FrontendReq;

use super::fabric::{Fabric, mac, vnic};
use super::frames::frame;
use super::guest::{FORMATS, FrontEnd, Guest, LINUX, Model};
use super::handover::{exactly_once, exchange};
use super::traffic::guests;

/// Number of repetitions.
const TIMES: usize = 60;

/// The front end of a guest whose rings another thread drives.
struct Manager {
    front_end: FrontEnd,
    /// The body of `SET_MEM_TABLE`, and its file.
    table: Vec<u8>,
    file: std::os::fd::OwnedFd,
    /// Another memory file.
    bank: Ram,
}

impl Manager {
    fn of(guest: &Guest) -> Self {
        let spec = guest.ram.spec();
        let words = [1, spec.guest_addr, spec.size, spec.user_addr, spec.file_offset];
        Self {
            front_end: FrontEnd { socket: guest.front_end.socket.try_clone().unwrap() },
            table: words.map(u64::to_ne_bytes).concat(),
            file: guest.ram.file().try_clone_to_owned().unwrap(),
            bank: Ram::new(1 << 20).unwrap(),
        }
    }

    fn set_table(&mut self) {
        self.front_end.tell(FrontendReq::SET_MEM_TABLE, &self.table, &[self.file.as_fd()]);
    }

    /// Adds a region at `at`, and removes it again.
    fn plug_and_unplug(&mut self, at: u64) {
        let region = [0, at, self.bank.spec().size, at, 0].map(u64::to_ne_bytes).concat();
        self.front_end.tell(FrontendReq::ADD_MEM_REG, &region, &[self.bank.file()]);
        self.front_end.tell(FrontendReq::REM_MEM_REG, &region, &[]);
    }
}

#[test]
fn a_sender_whose_memory_is_remapped_loses_no_frame() {
    for format in FORMATS {
        let mut fabric = Fabric::start();
        let [a, b] = guests(&mut fabric, Model { features: LINUX | format, ..Model::default() });
        let mut manager = Manager::of(&a);
        exactly_once(fabric, a, b, |mut fabric| {
            for round in 0..TIMES {
                manager.set_table();
                manager.plug_and_unplug(1 << 32 | (round as u64) << 21);
                fabric.hear();
            }
            fabric
        });
    }
}

#[test]
fn a_receiver_whose_memory_is_remapped_gets_frames_in_order_and_lost_ones_are_counted() {
    for format in FORMATS {
        let mut fabric = Fabric::start();
        let [mut a, mut b] = guests(&mut fabric, Model { features: LINUX | format, ..Model::default() });
        let mut manager = Manager::of(&b);
        let (over, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (sender_over, receiver_ended) = (Arc::clone(&over), Arc::clone(&ended));
        let sender = std::thread::spawn(move || {
            let mut number = 0_u32;
            while !sender_over.load(Ordering::Relaxed) {
                let mut sent = frame(mac(1), mac(0), number as u8, 60 + number as usize % 1400);
                sent[14..18].copy_from_slice(&number.to_be_bytes());
                a.send(&sent);
                number += 1;
            }
            while !ended.load(Ordering::Relaxed) {
                a.send(&frame(mac(1), mac(0), 0, 14));
                a.drain();
            }
            number
        });
        let (tell, begun) = mpsc::channel();
        let receiver = std::thread::spawn(move || {
            let (mut next, mut missing) = (0, 0);
            loop {
                let (_, got) = b.receive();
                // Tells the thread that waits for the first frame. Later, nobody listens.
                let _ = tell.send(());
                if got.len() == 14 {
                    receiver_ended.store(true, Ordering::Relaxed);
                    return (next, missing);
                }
                let number = u32::from_be_bytes(got[14..18].try_into().unwrap());
                let mut whole = frame(mac(1), mac(0), number as u8, 60 + number as usize % 1400);
                whole[14..18].copy_from_slice(&number.to_be_bytes());
                assert!(got == whole && number >= next, "{number} after {next}");
                missing += u64::from(number - next);
                next = number + 1;
            }
        });
        // On a busy machine, the changes may be over before the first frame is there.
        begun.recv().unwrap();
        drop(begun);
        for round in 0..TIMES {
            manager.set_table();
            manager.plug_and_unplug(1 << 32 | (round as u64) << 21);
            fabric.hear();
        }
        over.store(true, Ordering::Relaxed);
        let (next, mut missing) = receiver.join().unwrap();
        missing += u64::from(sender.join().unwrap() - next);
        let dropped: u64 = fabric.counters(PortId(1)).rx_drops.iter().map(|(_, count)| count).sum();
        assert!(missing <= dropped, "{missing} are missing, {dropped} were counted");
    }
}

/// Sends to `port` until `over` is set, whether or not a guest is there.
fn flood(mut guest: Guest, from: u16, port: u16, over: Arc<AtomicBool>) -> std::thread::JoinHandle<Guest> {
    std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            guest.send(&frame(mac(port), mac(from), 1, 900));
        }
        guest.drain();
        guest
    })
}

#[test]
fn a_guest_that_reboots_under_traffic_receives_again_each_time() {
    for format in FORMATS {
        let model = Model { features: LINUX | format, ..Model::default() };
        let mut fabric = Fabric::start();
        let [mut a, b, mut c] = guests(&mut fabric, model);
        let over = Arc::new(AtomicBool::new(false));
        let flooder = flood(b, 1, 0, Arc::clone(&over));
        for round in 0..TIMES {
            a = a.reboot(model);
            fabric.hear();
            let sent = frame(mac(2), mac(0), round as u8, 300);
            a.send(&sent);
            assert!(c.receive().1 == sent);
            // The flood reaches it again.
            a.receive();
        }
        over.store(true, Ordering::Relaxed);
        let mut b = flooder.join().unwrap();
        exchange_between(&mut b, &mut c, 1, 2);
        assert!(fabric.is_alive());
    }
}

#[test]
fn a_front_end_that_leaves_under_traffic_does_not_affect_others() {
    let model = Model::default();
    let mut fabric = Fabric::start();
    fabric.configure((0..3).map(|id| vnic(id, 1)).collect());
    let start = |fabric: &mut Fabric, id: u16| {
        let guest = Guest::start(fabric.connect(PortId(id)), model);
        fabric.until_link(PortId(id), Link::Up);
        guest
    };
    let b = start(&mut fabric, 1);
    let mut c = start(&mut fabric, 2);
    let over = Arc::new(AtomicBool::new(false));
    let flooder = flood(b, 1, 0, Arc::clone(&over));
    for mark in 0..TIMES as u8 {
        let mut a = start(&mut fabric, 0);
        a.receive();
        let sent = frame(mac(2), mac(0), mark, 300);
        a.send(&sent);
        assert!(c.receive().1 == sent);
        drop(a);
        fabric.until_link(PortId(0), Link::Down);
    }
    over.store(true, Ordering::Relaxed);
    let mut b = flooder.join().unwrap();
    exchange_between(&mut b, &mut c, 1, 2);
    let mut a = start(&mut fabric, 0);
    exchange(&mut a, &mut b, 9);
}

fn exchange_between(a: &mut Guest, b: &mut Guest, from: u16, to: u16) {
    let sent = frame(mac(to), mac(from), 5, 400);
    a.send(&sent);
    assert!(b.receive().1 == sent);
}
