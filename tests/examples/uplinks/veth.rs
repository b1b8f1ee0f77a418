//! The carrier of an active uplink is lost on veth, with datagrams and a TCP connection between a
//! namespace behind the vSwitch and one outside.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use taut_tests::{Netns, Taut, ip};

use crate::Outcome;

pub(crate) const SERVER: &str = "10.77.0.1";
pub(crate) const CLIENT: &str = "10.77.0.2";
const PORT: u16 = 7077;
/// Pace of datagrams and of messages on the connection.
const PACE: Duration = Duration::from_millis(1);
/// Time without and with the carrier.
const PHASE: Duration = Duration::from_millis(550);

/// Arrivals of datagrams by number, and of bytes on the connection.
#[derive(Default)]
pub(crate) struct Arrivals {
    pub(crate) datagrams: Mutex<Vec<(u32, Instant)>>,
    pub(crate) stream: Mutex<Vec<Instant>>,
    /// Number of the last datagram that was sent.
    sent: AtomicU32,
    pub(crate) is_over: AtomicBool,
}

/// Takes the carrier so many times, the last `dead` times without `tautd`.
pub(crate) fn run(losses: usize, dead: usize) -> Outcome<Value> {
    let mut taut = Taut::start().with_lan();
    let outside = Outside::new(&taut);
    for card in &outside.cards {
        taut.ok(["uplink", "add", "sw", card]);
    }
    taut.ok(["vswitch", "set", "sw", "--active", &outside.cards[0], "--standby", &outside.cards[1]]);
    let inside = Netns::attach(&taut, "in", "lan", CLIENT);
    inside.reaches(SERVER, 5);
    let arrivals = Arc::new(Arrivals::default());
    let threads = begin(&inside.name, &outside.name, &arrivals)?;
    std::thread::sleep(PHASE);
    let (mut gaps, mut stream_gaps, mut lost_back) = (Vec::new(), Vec::new(), 0);
    for loss in 0..losses {
        if loss + dead == losses {
            taut.kill_daemon();
        }
        let begun = Instant::now();
        outside.set(0, "down");
        std::thread::sleep(PHASE);
        gaps.push(longest(
            arrivals.datagrams.lock().map_err(|_| "poisoned")?.iter().map(|(_, at)| *at),
            begun,
        ));
        stream_gaps.push(longest(arrivals.stream.lock().map_err(|_| "poisoned")?.iter().copied(), begun));
        let from = arrivals.sent.load(Relaxed);
        outside.set(0, "up");
        std::thread::sleep(PHASE);
        let to = arrivals.sent.load(Relaxed).saturating_sub(20);
        let mut datagrams = arrivals.datagrams.lock().map_err(|_| "poisoned")?;
        let back = datagrams.iter().filter(|(number, _)| (from..to).contains(number)).count();
        lost_back += (to.saturating_sub(from) as usize).saturating_sub(back);
        datagrams.clear();
        arrivals.stream.lock().map_err(|_| "poisoned")?.clear();
    }
    arrivals.is_over.store(true, Relaxed);
    if dead > 0 {
        taut.restart_daemon();
    }
    for thread in threads {
        thread.join().map_err(|_| "a thread has failed")?;
    }
    gaps.sort_by(f64::total_cmp);
    let at = |part: f64| gaps[((gaps.len() as f64 * part).ceil() as usize).clamp(1, gaps.len()) - 1];
    Ok(json!({
        "losses": losses, "dead": dead, "datagrams": arrivals.sent.load(Relaxed), "lost_back": lost_back,
        "p50_ms": at(0.5), "p99_ms": at(0.99), "longest_ms": at(1.0),
        "tcp_longest_ms": stream_gaps.iter().copied().fold(0.0, f64::max),
    }))
}

/// Returns the longest time between two arrivals of which the second one was after `begun`, in ms.
pub(crate) fn longest(arrivals: impl Iterator<Item = Instant>, begun: Instant) -> f64 {
    let all: Vec<Instant> = arrivals.chain([Instant::now()]).collect();
    let gaps =
        all.windows(2).filter(|two| two[1] > begun).map(|two| (two[1] - two[0]).as_secs_f64() * 1000.0);
    gaps.fold(0.0, f64::max)
}

pub(crate) type Threads = Vec<std::thread::JoinHandle<()>>;

/// Starts a sender and a receiver of datagrams, and the ends of a connection.
pub(crate) fn begin(inside: &str, outside: &str, arrivals: &Arc<Arrivals>) -> Outcome<Threads> {
    let (receiver, listener) =
        within(outside, || Ok((UdpSocket::bind((SERVER, PORT))?, TcpListener::bind((SERVER, PORT))?)))?;
    let (sender, stream) = within(inside, || {
        let sender = UdpSocket::bind((CLIENT, 0))?;
        sender.connect((SERVER, PORT))?;
        Ok((sender, TcpStream::connect((SERVER, PORT))?))
    })?;
    stream.set_nodelay(true)?;
    let (accepted, _) = listener.accept()?;
    for limit in [receiver.set_read_timeout(Some(PHASE)), accepted.set_read_timeout(Some(PHASE))] {
        limit?;
    }
    let [send, datagrams, write, read] = [(); 4].map(|()| Arc::clone(arrivals));
    Ok(vec![
        std::thread::spawn(move || {
            while !send.is_over.load(Relaxed) {
                let number = send.sent.fetch_add(1, Relaxed);
                // Without a neighbour, the kernel may refuse it: it is lost.
                let _ = sender.send(&number.to_be_bytes());
                std::thread::sleep(PACE);
            }
        }),
        std::thread::spawn(move || {
            let mut number = [0; 4];
            while !datagrams.is_over.load(Relaxed) {
                if receiver.recv(&mut number).is_ok()
                    && let Ok(mut all) = datagrams.datagrams.lock()
                {
                    all.push((u32::from_be_bytes(number), Instant::now()));
                }
            }
        }),
        std::thread::spawn(move || {
            let mut stream = stream;
            while !write.is_over.load(Relaxed) && stream.write_all(&[0; 64]).is_ok() {
                std::thread::sleep(PACE);
            }
        }),
        std::thread::spawn(move || {
            let mut accepted = accepted;
            let mut bytes = [0; 4096];
            while !read.is_over.load(Relaxed) {
                if let Ok(1..) = accepted.read(&mut bytes)
                    && let Ok(mut all) = read.stream.lock()
                {
                    all.push(Instant::now());
                }
            }
        }),
    ])
}

/// Runs something in a network namespace, in a thread of its own.
pub(crate) fn within<T: Send>(name: &str, act: impl FnOnce() -> std::io::Result<T> + Send) -> Outcome<T> {
    let namespace = File::open(format!("/run/netns/{name}"))?;
    let done = std::thread::scope(|scope| {
        let acted = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            act()
        });
        acted.join()
    });
    Ok(done.map_err(|_| "a thread has failed")??)
}

/// A namespace with a bridge, to which two cards of the host lead.
pub(crate) struct Outside {
    pub(crate) name: String,
    pub(crate) cards: [String; 2],
}

impl Outside {
    pub(crate) fn new(taut: &Taut) -> Self {
        let name = Netns::name(taut, "out");
        let cards = [0, 1].map(|at| format!("tv{:x}-{at}", std::process::id()));
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link add br0 type bridge"));
        for (at, card) in cards.iter().enumerate() {
            ip(&format!("link add {card} type veth peer name port{at} netns {name}"));
            ip(&format!("-n {name} link set port{at} master br0 up"));
        }
        ip(&format!("-n {name} addr add {SERVER}/24 dev br0"));
        ip(&format!("-n {name} link set br0 up"));
        Self { name, cards }
    }

    /// Sets the far end of a cable up or down.
    fn set(&self, cable: usize, state: &str) {
        ip(&format!("-n {} link set port{cable} {state}", self.name));
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // An error does not matter: the namespace may be gone already.
        let _ = std::process::Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}
