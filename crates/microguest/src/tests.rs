//! Two microguests with a wire between their rings.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taut_bench::agent::protocol::{AgentError, Configure, Ping, Rr, Serve, Stream};
use taut_bench::agent::{Backend, Run, Stop};
use taut_bench::front_end::{Link, QueueEnds};
use taut_virtq::device::Delivery;
use taut_virtq::driver::{QueueLayout, Ram};
use taut_virtq::features::{
    EVENT_IDX, IN_ORDER, NET_CSUM, NET_GUEST_CSUM, NET_GUEST_TSO4, NET_HOST_TSO4, NET_MRG_RXBUF, RING_PACKED,
    VERSION_1,
};
use taut_virtq::{RxQueue, Start, TxQueue};

use crate::*;

const PLAIN: u64 = VERSION_1 | EVENT_IDX;
const OFFLOADS: u64 = PLAIN | NET_CSUM | NET_GUEST_CSUM | NET_HOST_TSO4 | NET_GUEST_TSO4 | NET_MRG_RXBUF;

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

/// Starts a microguest without back ends.
fn guest(last: u8) -> Agent {
    let (send, commands) = mpsc::channel();
    let doorbell = Event::new().unwrap();
    let to_vcpu = ToVcpu { commands: send, doorbell: Arc::new(doorbell.duplicate().unwrap()) };
    let nic = format!("socket=/absent,mac=02:00:00:00:00:{last:02x},ip={}/24", ip(last));
    let nics = vec![Nic::new(&nic.parse().unwrap())];
    let vcpu = Vcpu { machine: Machine::new(nics, None), commands, doorbell, poll: false };
    thread::spawn(move || vcpu.run());
    Agent::new(format!("micro{last}"), to_vcpu)
}

/// The device end of a vNIC.
struct Port {
    rx: RxQueue,
    tx: TxQueue,
    kicks: [Event; 2],
    calls: [Event; 2],
}

/// Gives a guest a link. Returns the device end.
fn plug(guest: &Agent, features: u64) -> Port {
    let mut ram = Ram::new(8 << 20).unwrap();
    let [rx, tx] = [(); 2].map(|()| {
        let layout = QueueLayout::allocate(&mut ram, 256).unwrap();
        QueueEnds { layout, kick: Event::new().unwrap(), call: Event::new().unwrap() }
    });
    let port = Port {
        rx: RxQueue::new(ram.memory(), &rx.layout.config(features, Start::first(features))).unwrap(),
        tx: TxQueue::new(ram.memory(), &tx.layout.config(features, Start::first(features))).unwrap(),
        kicks: [rx.kick.duplicate().unwrap(), tx.kick.duplicate().unwrap()],
        calls: [rx.call.duplicate().unwrap(), tx.call.duplicate().unwrap()],
    };
    let link = Link { ram, features, config: vec![], rx, tx };
    guest.to_vcpu.send(Command::Connect(DeviceId::Nic(0), Box::new(link))).unwrap();
    port
}

/// Forwards between two ports until dropped.
struct Wire {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

impl Wire {
    fn between(a: Port, b: Port) -> Self {
        Self::with_losses(a, b, None)
    }

    /// A wire that loses each frame towards `b` whose number is a multiple of `loses`.
    fn with_losses(mut a: Port, mut b: Port, loses: Option<usize>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut longest = 0;
            let mut losses = loses.map(|each| Losses { each, until_next: each });
            while !stopped.load(Ordering::Relaxed) {
                let there = forward(&mut a, &mut b, &mut longest, losses.as_mut());
                let moved = there + forward(&mut b, &mut a, &mut longest, None);
                if moved == 0 {
                    rest(&mut a, &mut b);
                }
            }
            longest
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends the forwarding. Returns the length of the longest frame.
    fn cut(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The frames that a wire loses.
struct Losses {
    each: usize,
    until_next: usize,
}

impl Losses {
    /// Counts a frame. Returns whether it is lost.
    fn takes(&mut self) -> bool {
        self.until_next -= 1;
        if self.until_next == 0 {
            self.until_next = self.each;
        }
        self.until_next == self.each
    }
}

fn forward(from: &mut Port, to: &mut Port, longest: &mut usize, mut losses: Option<&mut Losses>) -> usize {
    let count = from.tx.peek().unwrap();
    let mut done = 0;
    while done < count {
        let frame = from.tx.frame(done);
        *longest = frame.len().max(*longest);
        if losses.as_mut().is_some_and(|losses| losses.takes()) {
            done += 1;
            continue;
        }
        match to.rx.deliver(&frame, &frame.header()).unwrap() {
            Delivery::Full => break,
            Delivery::Stored => done += 1,
            Delivery::TooLong => panic!("{} bytes did not fit", frame.len()),
        }
    }
    to.rx.publish();
    from.tx.complete(done);
    if to.rx.needs_interrupt() {
        to.calls[0].raise();
    }
    if from.tx.needs_interrupt() {
        from.calls[1].raise();
    }
    done
}

/// Sleeps until a kick, or for a while, to notice that the wire was cut.
fn rest(a: &mut Port, b: &mut Port) {
    let armed = [a.rx.arm_kicks(), a.tx.arm_kicks(), b.rx.arm_kicks(), b.tx.arm_kicks()];
    if armed.contains(&true) {
        return;
    }
    let kicks = || a.kicks.iter().chain(&b.kicks);
    let mut polled: Vec<_> =
        kicks().map(|kick| PollFd::from_borrowed_fd(kick.as_fd(), PollFlags::IN)).collect();
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 })).unwrap();
    kicks().for_each(Event::clear);
}

/// Keeps a test that makes a pCPU busy apart from one that moves bulk data over TCP: without a free
/// pCPU, smoltcp's retransmissions may wait for longer than the test does.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_run<T>(measure: impl FnOnce(&Run<'_>) -> Result<T, AgentError>) -> T {
    let started = AtomicBool::new(false);
    let result = measure(&Run::new(&Stop::default(), &|| started.store(true, Ordering::Relaxed))).unwrap();
    assert!(started.load(Ordering::Relaxed), "the measurement began");
    result
}

fn ping(to: u8, count: u64) -> Ping {
    Ping { to: ip(to), size: 256, interval_us: 1000, duration_ms: 60_000, count: Some(count) }
}

fn stream(port: u16, sessions: u32) -> Stream {
    let (send_size, receive_size) = (8192, 4096);
    Stream {
        to: ip(2).into(),
        port,
        socket_size: None,
        send_size,
        receive_size,
        check: true,
        sessions,
        duration_ms: 200,
    }
}

#[test]
fn two_microguests_talk_with_and_without_offloads() {
    let _alone = alone();
    let packed = OFFLOADS | RING_PACKED;
    for features in [PLAIN, OFFLOADS, packed, packed | IN_ORDER, PLAIN | IN_ORDER] {
        let (a, b) = (guest(1), guest(2));
        let wire = Wire::between(plug(&a, features), plug(&b, features));

        let echo = with_run(|run| a.ping(&ping(2, 50), run));
        assert_eq!((echo.sent, echo.lost, echo.duplicates), (50, 0, 0));
        assert_eq!(echo.rtt_ns.count(), 50);

        let server = b.serve(&Serve::default()).unwrap();
        let wanted = Rr {
            to: ip(2).into(),
            port: server.port(),
            socket_size: None,
            interval_us: None,
            size: 256,
            duration_ms: 200,
        };
        let rr = with_run(|run| a.rr(&wanted, run));
        assert_eq!(rr.rtt_ns.count(), rr.sent);
        assert_eq!(rr.lost, 0);
        let paced = Rr { interval_us: Some(10_000), duration_ms: 45, ..wanted };
        let paced = with_run(|run| a.rr(&paced, run));
        assert!((1..=6).contains(&paced.rtt_ns.count()), "{}", paced.rtt_ns.count());

        for sessions in [1, 5] {
            let moved = with_run(|run| a.stream(&stream(server.port(), sessions), run));
            assert_eq!(moved.sessions.len(), sessions as usize);
            assert!(moved.bytes > 0, "{:?}", moved.sessions);
            assert_eq!(moved.bytes, moved.sessions.iter().sum::<u64>());
        }
        let longest = wire.cut();
        assert_eq!(longest > 1514, features & OFFLOADS == OFFLOADS, "longest frame: {longest} bytes");
    }
}

#[test]
fn streams_go_on_after_losses_and_full_rings() {
    let _alone = alone();
    let (a, b) = (guest(1), guest(2));
    let _wire = Wire::with_losses(plug(&a, OFFLOADS), plug(&b, OFFLOADS), Some(1000));
    let server = b.serve(&Serve::default()).unwrap();
    for _ in 0..5 {
        let moved = with_run(|run| a.stream(&stream(server.port(), 20), run));
        assert!(moved.sessions.iter().all(|bytes| *bytes > 0), "{:?}", moved.sessions);
    }
}

#[test]
fn connections_survive_a_new_link() {
    let (a, b) = (guest(1), guest(2));
    let wire = Wire::between(plug(&a, OFFLOADS), plug(&b, OFFLOADS));
    let server = b.serve(&Serve::default()).unwrap();
    let rr = Rr {
        to: ip(2).into(),
        port: server.port(),
        socket_size: None,
        interval_us: None,
        size: 1000,
        duration_ms: 1500,
    };
    let result = thread::scope(|scope| {
        let client = scope.spawn(|| with_run(|run| a.rr(&rr, run)));
        thread::sleep(Duration::from_millis(200));
        wire.cut();
        for guest in [&a, &b] {
            guest.to_vcpu.send(Command::Disconnect(DeviceId::Nic(0))).unwrap();
        }
        assert!(!a.addresses().unwrap()[0].carrier);
        // This link has no offloads.
        let _wire = Wire::between(plug(&a, PLAIN), plug(&b, PLAIN));
        client.join().unwrap()
    });
    assert_eq!((result.lost, result.rtt_ns.count()), (0, result.sent), "it went on");
}

#[test]
fn impossible_requests_are_refused() {
    let (a, b) = (guest(1), guest(2));
    let _wire = Wire::between(plug(&a, PLAIN), plug(&b, PLAIN));
    let quiet = || ();
    let stop = Stop::default();
    let run = Run::new(&stop, &quiet);
    let rr = |to: Ipv4Addr, port| Rr {
        to: to.into(),
        port,
        socket_size: None,
        interval_us: None,
        size: 1,
        duration_ms: 10,
    };
    let refused = a.rr(&rr(ip(2), 9), &run).unwrap_err();
    assert!(refused.message.contains("10.0.0.2 port 9 was refused"), "{refused}");
    let unrouted = a.rr(&rr(Ipv4Addr::new(192, 168, 0, 1), 9), &run).unwrap_err();
    assert!(unrouted.message.contains("192.168.0.1"), "{unrouted}");
    let large = a.ping(&Ping { size: 1473, ..ping(2, 1) }, &run).unwrap_err();
    assert!(large.message.contains("1473"), "{large}");
}

#[test]
fn a_measurement_that_nobody_waits_for_ends() {
    let (a, b) = (guest(1), guest(2));
    let _wire = Wire::between(plug(&a, PLAIN), plug(&b, PLAIN));
    let stop = Stop::default();
    thread::scope(|scope| {
        let client = scope.spawn(|| a.ping(&ping(2, 1 << 40), &Run::new(&stop, &|| stop.raise())));
        assert!(client.join().unwrap().is_err());
    });
}

#[test]
fn an_address_can_be_given_later() {
    let (a, b) = (guest(1), guest(2));
    let _wire = Wire::between(plug(&a, PLAIN), plug(&b, PLAIN));
    let mac = "02:00:00:00:00:02".to_owned();
    b.configure(&Configure { mac, ip: "10.0.0.9/24".parse().unwrap() }).unwrap();
    assert_eq!(b.addresses().unwrap()[0].ips[0].to_string(), "10.0.0.9/24");
    assert_eq!(with_run(|run| a.ping(&ping(9, 3), run)).lost, 0);
    let unknown = Configure { mac: "02:00:00:00:00:77".into(), ip: "10.0.0.9/24".parse().unwrap() };
    assert!(b.configure(&unknown).unwrap_err().message.contains("02:00:00:00:00:77"));
}

#[test]
fn a_vcpu_that_computes_still_answers() {
    let guest = guest(1);
    let spinner = guest.spin().unwrap();
    while spinner.units() < 3 {
        std::thread::yield_now();
    }
    assert_eq!(guest.addresses().unwrap().len(), 1);
    drop(spinner);
    assert_eq!(guest.addresses().unwrap().len(), 1);
}
