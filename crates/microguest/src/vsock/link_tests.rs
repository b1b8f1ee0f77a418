//! Two microguests with a wire between the rings of their vsock devices.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use taut_bench::agent::protocol::{Address, Probe, Rr, Serve, Stream, Target};
use taut_bench::agent::{Backend as _, Run, Stop};
use taut_bench::front_end::{Event, QueueEnds};
use taut_virtq::Start;
use taut_virtq::counters::SharedWords;
use taut_virtq::device::socket::{InFlight, Piece, SocketRx, SocketTx, WORDS};
use taut_virtq::driver::{QueueLayout, Ram};
use taut_virtq::features::{EVENT_IDX, INDIRECT_DESC, VERSION_1};

use super::*;
use crate::agent::Agent;
use crate::machine::{DeviceId, Machine};
use crate::vcpu::{Command, ToVcpu, Vcpu};

const FEATURES: u64 = VERSION_1 | EVENT_IDX | INDIRECT_DESC;

/// Starts a microguest without back ends.
fn guest(options: &str) -> Agent {
    let (send, commands) = mpsc::channel();
    let doorbell = Event::new().unwrap();
    let to_vcpu = ToVcpu { commands: send, doorbell: Arc::new(doorbell.duplicate().unwrap()) };
    let machine = Machine::new(vec![], Some(Vsock::new(&options.parse().unwrap())));
    let vcpu = Vcpu { machine, commands, doorbell, poll: false };
    thread::spawn(move || vcpu.run());
    Agent::new("micro".to_owned(), to_vcpu)
}

/// The device end.
struct Port {
    rx: SocketRx,
    tx: SocketTx,
    kicks: [Event; 2],
    calls: [Event; 2],
}

fn plug(guest: &Agent, cid: u64, entries: u16) -> Port {
    let (port, link) = ends(cid, entries, 64 << 20);
    guest.to_vcpu.send(Command::Connect(DeviceId::Vsock, Box::new(link))).unwrap();
    port
}

/// Creates both ends of a device with queues in `memory` bytes.
fn ends(cid: u64, entries: u16, memory: u64) -> (Port, Link) {
    let mut ram = Ram::new(memory).unwrap();
    let [rx, tx] = [(); 2].map(|()| {
        let layout = QueueLayout::allocate(&mut ram, entries).unwrap();
        QueueEnds { layout, kick: Event::new().unwrap(), call: Event::new().unwrap() }
    });
    let words = memfd_create("words", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&words, 8 * WORDS as u64).unwrap();
    let in_flight = InFlight::new(&Arc::new(SharedWords::map(words.as_fd(), WORDS).unwrap()), 0);
    let config = |queue: &QueueEnds| queue.layout.config(FEATURES, Start::first(FEATURES));
    let port = Port {
        rx: SocketRx::new(ram.memory(), &config(&rx)).unwrap(),
        tx: SocketTx::new(ram.memory(), &config(&tx), in_flight).unwrap(),
        kicks: [rx.kick.duplicate().unwrap(), tx.kick.duplicate().unwrap()],
        calls: [rx.call.duplicate().unwrap(), tx.call.duplicate().unwrap()],
    };
    let link = Link { ram, features: FEATURES, config: cid.to_le_bytes().to_vec(), rx, tx };
    (port, link)
}

/// Carries packets between two ports until dropped, unless it pauses.
struct Carrier {
    stop: Arc<AtomicBool>,
    pause: Arc<AtomicBool>,
    /// Bytes of payload carried from A to B.
    carried: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Carrier {
    fn between(mut a: Port, mut b: Port) -> Self {
        let [stop, pause] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let [stopped, paused] = [&stop, &pause].map(Arc::clone);
        let carried = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&carried);
        let thread = thread::spawn(move || {
            let mut under_way = [None, None];
            while !stopped.load(Ordering::Relaxed) {
                if paused.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let [first, second] = &mut under_way;
                let there = carry(&mut a, &mut b, first);
                counted.fetch_add(there.unwrap_or(0), Ordering::Relaxed);
                if there.is_none() && carry(&mut b, &mut a, second).is_none() {
                    rest(&mut a, &mut b);
                }
            }
        });
        Self { stop, pause, carried, thread: Some(thread) }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Carries all packets that find buffers, cut to their size. Returns how many bytes of payload
/// arrived, or nothing if no packet did. `under_way` is a packet that found no buffer, and how much
/// of it has arrived.
fn carry(
    from: &mut Port,
    to: &mut Port,
    under_way: &mut Option<(taut_virtq::device::socket::Packet, u32)>,
) -> Option<u64> {
    let mut moved = None;
    loop {
        if under_way.is_none() {
            *under_way = from.tx.take().unwrap().map(|packet| (packet, 0));
        }
        let Some((packet, offset)) = under_way else { break };
        let Some(room) = to.rx.room().unwrap() else { break };
        let len = room.min(packet.payload - *offset);
        moved = Some(moved.unwrap_or(0) + u64::from(len));
        let piece = Piece::Packet { from: &from.tx, head: packet.head, offset: *offset, len };
        to.rx.deliver(packet.header, (len > 0).then_some(piece)).unwrap();
        *offset += len;
        if *offset == packet.payload {
            from.tx.give_back(packet.head);
            *under_way = None;
        }
    }
    to.rx.publish();
    from.tx.publish();
    if to.rx.needs_interrupt() {
        to.calls[0].raise();
    }
    if from.tx.needs_interrupt() {
        from.calls[1].raise();
    }
    moved
}

/// Sleeps until a kick, or for a while, to notice that it was stopped.
fn rest(a: &mut Port, b: &mut Port) {
    let armed = [a.rx.arm_kicks(), a.tx.arm_kicks(), b.rx.arm_kicks(), b.tx.arm_kicks()];
    let kicks = || a.kicks.iter().chain(&b.kicks);
    let mut polled: Vec<_> =
        kicks().map(|kick| PollFd::from_borrowed_fd(kick.as_fd(), PollFlags::IN)).collect();
    // Room that exists already does not mean that a sender waits for it.
    let patience = if armed.contains(&true) { 0 } else { 50_000_000 };
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: patience })).unwrap();
    kicks().for_each(Event::clear);
}

fn rr(port: u16, size: u32) -> Rr {
    Rr { to: Address::Vsock(4), port, socket_size: None, interval_us: None, size, duration_ms: 100 }
}

fn stream(port: u16) -> Stream {
    let (socket_size, sessions) = (Some(65_536), 1);
    let (send_size, receive_size, check) = (65_536, 65_536, true);
    Stream {
        to: Address::Vsock(4),
        port,
        socket_size,
        send_size,
        receive_size,
        check,
        sessions,
        duration_ms: 100,
    }
}

fn run<T>(measure: impl FnOnce(&Run<'_>) -> T) -> T {
    measure(&Run::new(&Stop::default(), &|| ()))
}

#[test]
fn microguests_measure_over_their_vsock_devices() {
    for (options, entries) in
        [("socket=/a", 256), ("socket=/a,buffer=65580", 32), ("socket=/a,packet=700", 16)]
    {
        let (a, b) = (guest(options), guest(options));
        let _carrier = Carrier::between(plug(&a, 3, entries), plug(&b, 4, entries));
        assert_eq!((a.cid(), b.cid()), (Ok(3), Ok(4)));
        let socket_size = Some(65_536);
        let server = b.serve(&Serve { address: Some(Address::ANY_VSOCK), port: 0, socket_size }).unwrap();
        for size in [1, 256, 100_000] {
            let latency = run(|run| a.rr(&rr(server.port(), size), run)).unwrap();
            assert!(latency.sent > 0 && latency.lost == 0, "{latency:?}");
        }
        for sessions in [1, 5] {
            let wanted = Stream { sessions, ..stream(server.port()) };
            let moved = run(|run| a.stream(&wanted, run)).unwrap();
            assert_eq!(moved.sessions.len(), sessions as usize);
            assert!(moved.sessions.iter().all(|bytes| *bytes > 0), "{:?}", moved.sessions);
        }
    }
}

/// Measures a stream of five sessions. From about its start on, nothing is carried for half a
/// second. If `busy`, the sender's vCPU polls its programs all the time, else only when something
/// wakes it. Returns the bytes of each session, and those that had arrived by the end of the pause.
fn stream_after_a_pause(duration_ms: u64, busy: bool) -> (Vec<u64>, u64) {
    let _alone = crate::tests::alone();
    let (a, b) = (guest("socket=/a"), guest("socket=/a"));
    let carrier = Carrier::between(plug(&a, 3, 256), plug(&b, 4, 256));
    let server = b.serve(&Serve { address: Some(Address::ANY_VSOCK), port: 0, socket_size: None }).unwrap();
    let wanted = Stream { sessions: 5, duration_ms, ..stream(server.port()) };
    let _spinning = busy.then(|| a.spin().unwrap());
    let started = std::sync::Barrier::new(2);
    thread::scope(|scope| {
        let pause = scope.spawn(|| {
            started.wait();
            carrier.pause.store(true, Ordering::Relaxed);
            // The call wakes the vCPU, and the sessions rest. A timer looks at them once more. From
            // then on, only credit can wake the program before its end.
            thread::sleep(Duration::from_millis(250));
            a.cid().unwrap();
            thread::sleep(Duration::from_millis(250));
            let carried = carrier.carried.load(Ordering::Relaxed);
            carrier.pause.store(false, Ordering::Relaxed);
            carried
        });
        let begun = || {
            started.wait();
        };
        let moved = a.stream(&wanted, &Run::new(&Stop::default(), &begun)).unwrap().sessions;
        (moved, pause.join().unwrap())
    })
}

#[test]
fn sessions_that_rest_at_the_end_are_confirmed() {
    for busy in [true, false] {
        let (moved, _) = stream_after_a_pause(300, busy);
        assert!(moved.iter().all(|bytes| *bytes > 0), "busy {busy}: {moved:?}");
    }
}

#[test]
fn sessions_that_rest_go_on_when_they_get_credit() {
    for busy in [true, false] {
        let (moved, carried) = stream_after_a_pause(1500, busy);
        // The receiver's buffers have 256 KiB each. More needs credit that comes after the pause.
        let buffers = 5 * (256 << 10);
        assert!(moved.iter().sum::<u64>() > carried + buffers, "busy {busy}: {moved:?}, {carried} before");
    }
}

#[test]
fn a_program_that_waits_for_credit_hears_that_the_back_end_broke_the_rules() {
    let (a, b) = (Arc::new(guest("socket=/a")), guest("socket=/a"));
    let (port, link) = ends(3, 256, 64 << 20);
    let (memory, used) = (link.ram.memory().clone(), link.rx.layout.used);
    let call = port.calls[0].duplicate().unwrap();
    a.to_vcpu.send(Command::Connect(DeviceId::Vsock, Box::new(link))).unwrap();
    let carrier = Carrier::between(port, plug(&b, 4, 256));
    let (address, socket_size) = (Some(Address::ANY_VSOCK), Some(65_536));
    let server = b.serve(&Serve { address, port: 0, socket_size }).unwrap();
    let endless = Stream { duration_ms: 3_600_000, ..stream(server.port()) };
    let (begin, begun) = mpsc::channel();
    let (send, result) = mpsc::channel();
    let client = Arc::clone(&a);
    thread::spawn(move || {
        let started = || _ = begin.send(());
        send.send(client.stream(&endless, &Run::new(&Stop::default(), &started)))
    });
    begun.recv_timeout(Duration::from_secs(20)).expect("the stream begins");
    drop(carrier);
    let wait = || result.recv_timeout(Duration::from_millis(250)).expect_err("the stream goes on");
    // The session uses up its credit. A call wakes the vCPU, and the session rests. A timer looks
    // at it once more. From then on, only the fault can wake the program, whose vCPU sleeps.
    wait();
    assert_eq!(a.cid(), Ok(3));
    wait();
    // The next chain that the device returns is none of the ring.
    let mut index = [0; 2];
    memory.read(used + 2, &mut index).unwrap();
    let index = u16::from_le_bytes(index);
    memory.write(used + 4 + 8 * u64::from(index % 256), &300_u32.to_le_bytes()).unwrap();
    memory.write(used + 2, &index.wrapping_add(1).to_le_bytes()).unwrap();
    call.raise();
    let ended = result.recv_timeout(Duration::from_secs(20)).expect("the program hears of it");
    assert!(ended.unwrap_err().message.contains("was ended"));
}

#[test]
fn impossible_vsock_requests_are_refused() {
    let (a, b) = (guest("socket=/a"), guest("socket=/a"));
    assert!(a.cid().unwrap_err().message.contains("no link"), "before there was one");
    let _carrier = Carrier::between(plug(&a, 3, 256), plug(&b, 4, 256));
    let refused = run(|run| a.rr(&rr(9, 1), run)).unwrap_err();
    assert!(refused.message.contains("vsock:4 port 9 was refused"), "{refused}");
    assert!(refused.hint.contains("domain"), "{}", refused.hint);
    let target = |cid, port| Target { to: Address::Vsock(cid), port };
    let serve = Serve { address: Some(Address::ANY_VSOCK), port: 70, socket_size: None };
    let server = b.serve(&serve).unwrap();
    let probe = Probe { targets: vec![target(4, 70), target(4, 9)], rounds: 20 };
    let found = run(|run| a.probe(&probe, run)).unwrap();
    let counts: Vec<_> =
        found.iter().map(|f| (f.connected, f.refused, f.silent, f.took_ns.count())).collect();
    assert_eq!(counts, [(20, 0, 0, 20), (0, 20, 0, 20)]);
    assert!(run(|run| a.probe(&Probe { targets: vec![], rounds: 1 }, run)).is_err());
    assert!(b.serve(&serve).err().unwrap().message.contains("70"));
    drop(server);
    let unix = Rr { to: Address::Unix("/x".into()), ..rr(1, 1) };
    assert!(run(|run| a.rr(&unix, run)).unwrap_err().message.contains("unix:/x"));
}

#[test]
fn a_new_link_ends_connections_and_listeners_go_on() {
    let (a, b) = (guest("socket=/a"), guest("socket=/a"));
    let carrier = Carrier::between(plug(&a, 3, 256), plug(&b, 4, 256));
    let server = b.serve(&Serve { address: Some(Address::ANY_VSOCK), port: 0, socket_size: None }).unwrap();
    let endless = Rr { duration_ms: 3_600_000, ..rr(server.port(), 256) };
    let started = std::sync::Barrier::new(2);
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            let stop = Stop::default();
            a.rr(
                &endless,
                &Run::new(&stop, &|| {
                    started.wait();
                }),
            )
        });
        started.wait();
        drop(carrier);
        for guest in [&a, &b] {
            guest.to_vcpu.send(Command::Disconnect(DeviceId::Vsock)).unwrap();
        }
        assert!(client.join().unwrap().unwrap_err().message.contains("ended"));
    });
    let _carrier = Carrier::between(plug(&a, 3, 256), plug(&b, 4, 256));
    assert!(run(|run| a.rr(&rr(server.port(), 256), run)).unwrap().sent > 0);
}

#[test]
fn a_link_without_room_for_the_buffers_is_refused_and_gives_no_context_id() {
    let mut vsock = Vsock::new(&"socket=/unused".parse().unwrap());
    let (_port, link) = ends(3, 256, 16 << 20);
    let error = vsock.connect(link).unwrap_err().to_string();
    assert!(error.starts_with("the memory has no room for 256 transmit buffers of"), "{error}");
    assert!(error.contains("\nhint: "), "{error}");
    assert_eq!(vsock.cid(), None);
}
