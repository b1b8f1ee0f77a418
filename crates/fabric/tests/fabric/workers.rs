//! Several workers: sources move between them under traffic without an effect on frames.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use taut_api::MacAddr;
use taut_api::fabric::PortId;
use taut_api::fabric::config::{WorkerConfig, WorkerMode};
use taut_api::fabric::counters::WorkerWord;
use taut_api::link::Link;

use super::fabric::{Fabric, mac, vnic};
use super::frames::frame;
use super::guest::{Guest, Model, Window};

/// Configures `count` workers. Several share a pCPU if there are too few.
fn workers(count: usize, mode: WorkerMode) -> WorkerConfig {
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    let cpus = cpus.iter().cycle().take(count).map(|&cpu| cpu as u32);
    WorkerConfig { mode, cpus: cpus.collect(), near: Vec::new() }
}

/// The mark of a sender's last frame: byte 14 is 1.
const LAST: u8 = 15;

const ADAPTIVE: WorkerMode = WorkerMode::Adaptive { poll_us: 10 };

/// Starts guests on ports 0, 1, … of one segment.
fn guests<const N: usize>(fabric: &mut Fabric, workers: &WorkerConfig, model: Model) -> [Guest; N] {
    fabric.configure_with((0..N as u16).map(|id| vnic(id, 1)).collect(), workers.clone());
    std::array::from_fn(|id| {
        let guest = Guest::start(fabric.connect(PortId(id as u16)), model);
        fabric.until_link(PortId(id as u16), Link::Up);
        guest
    })
}

/// Sends numbered frames from port `from` to port `to` until told to stop, and returns their
/// number.
fn send_until(
    stop: &Arc<AtomicBool>,
    mut guest: Guest,
    [from, to]: [u16; 2],
    window: &Arc<Window>,
) -> JoinHandle<(Guest, u32)> {
    let (stop, window) = (Arc::clone(stop), Arc::clone(window));
    std::thread::spawn(move || {
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            window.wait_for(number);
            let mut sent = frame(mac(to), mac(from), 0, 64 + number as usize % 500);
            sent[20..24].copy_from_slice(&number.to_be_bytes());
            guest.send(&sent);
            number += 1;
        }
        // Mark the last frame.
        window.wait_for(number);
        let mut last = frame(mac(to), mac(from), 1, 64);
        last[20..24].copy_from_slice(&number.to_be_bytes());
        guest.send(&last);
        guest.drain();
        (guest, number + 1)
    })
}

/// Receives from one sender per window. The frames of each must come in order and without a gap.
fn receive_all(mut guest: Guest, windows: Vec<(u16, Arc<Window>)>) -> JoinHandle<(Guest, u64)> {
    std::thread::spawn(move || {
        let mut next = vec![0_u32; windows.len()];
        let mut open = windows.len();
        while open > 0 {
            let (_, got) = guest.receive();
            let sender = windows.iter().position(|(from, _)| got[6..12] == mac(*from).0).unwrap();
            let number = u32::from_be_bytes(got[20..24].try_into().unwrap());
            assert_eq!(number, next[sender], "of sender {sender}");
            next[sender] += 1;
            windows[sender].1.advance(next[sender]);
            open -= usize::from(got[14] == LAST);
        }
        (guest, next.iter().map(|&count| u64::from(count)).sum())
    })
}

#[test]
fn sources_change_workers_under_traffic_and_no_frame_is_lost_or_reordered() {
    let mut fabric = Fabric::start();
    // Four guests send, three of them to one receiver, which gets frames from several workers at
    // once.
    let model = Model { queue_size: 64, ..Model::default() };
    let [one, two, three, four, many, single] = guests(&mut fabric, &workers(1, ADAPTIVE), model);
    let ports: Vec<_> = (0..6).map(|id| vnic(id, 1)).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let windows: Vec<_> = (0..4).map(|_| Window::new(20)).collect();
    let senders: Vec<_> = [one, two, three, four]
        .into_iter()
        .zip([[0, 4], [1, 4], [2, 4], [3, 5]])
        .zip(&windows)
        .map(|((guest, from_to), window)| send_until(&stop, guest, from_to, window))
        .collect();
    let of = |sender: u16| (sender, Arc::clone(&windows[usize::from(sender)]));
    let receivers = [receive_all(many, vec![of(0), of(1), of(2)]), receive_all(single, vec![of(3)])];
    let mut passed = 0;
    for round in 0..60 {
        let mode = match round % 7 {
            0 => WorkerMode::Interrupt,
            1 => WorkerMode::Polling,
            _ => ADAPTIVE,
        };
        fabric.configure_with(ports.clone(), workers(1 + round % 3, mode));
        // Let some frames pass with these workers.
        passed += 200;
        while fabric.counters(PortId(4)).rx_frames < passed {
            std::thread::yield_now();
        }
    }
    stop.store(true, Ordering::Relaxed);
    let sent: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap().1).collect();
    let received: Vec<_> = receivers.into_iter().map(|receiver| receiver.join().unwrap().1).collect();
    assert_eq!(received[0], u64::from(sent[0] + sent[1] + sent[2]));
    assert_eq!(received[1], u64::from(sent[3]));
    for id in 0..6 {
        let counters = fabric.counters(PortId(id));
        assert!(counters.rx_drops.is_empty() && counters.tx_drops.is_empty(), "{counters:?}");
    }
    assert_eq!(fabric.counters(PortId(4)).rx_frames, received[0]);
}

#[test]
fn an_overloaded_worker_gives_a_source_away() {
    let mut fabric = Fabric::start();
    // Broadcasts to many ports without guests cost the fabric much more than their senders.
    let ports = (0..64).map(|id| vnic(id, 1)).collect();
    fabric.configure_with(ports, workers(2, ADAPTIVE));
    let stop = Arc::new(AtomicBool::new(false));
    // Sources are spread in turn, so these two begin on one worker; no other source is busy.
    let senders = [0, 2].map(|id| {
        let mut guest = Guest::start(fabric.connect(PortId(id)), Model::default());
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let broadcast = frame(MacAddr::BROADCAST, mac(id), 0, 64);
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                guest.send(&broadcast);
                guest.take_received();
                sent += 1;
            }
            guest.drain();
            sent
        })
    });
    while fabric.worker(0, WorkerWord::Given) == 0 {
        assert!(!senders.iter().any(JoinHandle::is_finished), "a sender gave up");
        std::thread::yield_now();
    }
    let bursts = fabric.worker(1, WorkerWord::Bursts);
    while fabric.worker(1, WorkerWord::Bursts) == bursts {
        assert!(!senders.iter().any(JoinHandle::is_finished), "a sender gave up");
        std::thread::yield_now();
    }
    stop.store(true, Ordering::Relaxed);
    for (id, sender) in [0, 2].into_iter().zip(senders) {
        let sent: u64 = sender.join().unwrap();
        assert_eq!(fabric.counters(PortId(id)).tx_frames, sent);
    }
}

#[test]
fn senders_wait_for_a_full_receiver_of_another_worker_until_it_announces_room() {
    let mut fabric = Fabric::start();
    let model = Model { queue_size: 8, ..Model::default() };
    // One worker handles the receiver's kicks, and senders wait on both.
    let [mut a, mut b, mut c] = guests(&mut fabric, &workers(2, WorkerMode::Interrupt), model);
    let dealt_with = |fabric: &Fabric| {
        let counters = fabric.counters(PortId(2));
        counters.rx_frames + counters.rx_drops.iter().map(|(_, count)| count).sum::<u64>()
    };
    let mut received = 0;
    for round in 1..=200 {
        for mark in 0..8 {
            a.send(&frame(mac(2), mac(0), mark, 60));
            b.send(&frame(mac(2), mac(1), mark, 60));
        }
        // Frames wait for room. Those that wait too long, if this test gets no CPU, are counted.
        while dealt_with(&fabric) < round * 16 {
            received += c.take_received();
        }
        a.drain();
        b.drain();
    }
    received += c.take_received();
    let counters = fabric.counters(PortId(2));
    let dropped: u64 = counters.rx_drops.iter().map(|(_, count)| count).sum();
    assert_eq!((counters.rx_frames, counters.rx_frames + dropped), (received, 200 * 16));
    assert!(counters.rx_waits > 0);
}

#[test]
fn an_impossible_worker_configuration_leaves_the_ports_served() {
    let mut fabric = Fabric::start();
    let nowhere = WorkerConfig { mode: ADAPTIVE, cpus: vec![0, 100_000], near: Vec::new() };
    let [mut a, mut b] = guests(&mut fabric, &nowhere, Model::default());
    for mark in 0..10 {
        let sent = frame(mac(1), mac(0), mark, 100);
        a.send(&sent);
        assert_eq!(b.receive().1, sent);
    }
    let too_many = WorkerConfig { mode: ADAPTIVE, cpus: vec![0; 65], near: Vec::new() };
    fabric.configure_with((0..2).map(|id| vnic(id, 1)).collect(), too_many);
    for mark in 0..10 {
        let sent = frame(mac(0), mac(1), mark, 100);
        b.send(&sent);
        assert_eq!(a.receive().1, sent);
    }
}

/// Ends other threads when the test ends, also by a panic.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_polling_worker_sleeps_while_others_want_its_cpu() {
    let mut fabric = Fabric::start();
    let patient = workers(1, WorkerMode::Adaptive { poll_us: 10_000_000 });
    let cpu = patient.cpus[0] as usize;
    let [mut a, mut b] = guests(&mut fabric, &patient, Model::default());
    let mut pass_one = || {
        a.send(&frame(mac(1), mac(0), 0, 64));
        b.receive();
    };
    pass_one();
    let begin = Instant::now();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        let wanting = || {
            let mut own = CpuSet::new();
            own.set(cpu);
            sched_setaffinity(None, &own).unwrap();
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        (0..2).for_each(|_| drop(scope.spawn(wanting)));
        let sleeps = |fabric: &Fabric| fabric.worker(0, WorkerWord::Sleeps);
        let before = sleeps(&fabric);
        while sleeps(&fabric) == before && begin.elapsed() < Duration::from_secs(9) {
            std::thread::sleep(Duration::from_millis(10));
            // A sleep is counted when it ends.
            pass_one();
        }
        assert!(sleeps(&fabric) > before, "it polls for ten seconds if nobody wants its CPU");
    });
}
