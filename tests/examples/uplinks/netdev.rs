//! An interface moves from a bridge to a port group and back while a TCP connection passes it. The
//! vSwitch reaches the same bridge by an uplink.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::{Cable, Netns, Taut, ip};

use crate::Outcome;
use crate::veth::within;

const SERVER: &str = "10.78.0.1";
const CLIENT: &str = "10.78.0.2";
const PORT: u16 = 7078;
/// Time between two moves.
const PHASE: Duration = Duration::from_secs(2);

/// Moves the interface so many times there and back.
pub(crate) fn run(times: usize) -> Outcome<Value> {
    let taut = Taut::start().with_lan();
    let network = Network::new(&taut);
    taut.ok(["uplink", "add", "sw", &network.uplink]);
    let before = Cable::state_of(&network.card);
    let flow = Arc::new(Flow::default());
    let threads = flow.begin(&network)?;
    std::thread::sleep(PHASE);
    let (mut gaps, mut changed) = (Vec::new(), 0);
    for _ in 0..times {
        gaps.push(flow.longest_gap(|| {
            taut.ok(["netdev", "attach", &network.card, "--portgroup", "lan"]);
        })?);
        gaps.push(flow.longest_gap(|| {
            taut.ok(["netdev", "detach", &network.card]);
        })?);
        changed += usize::from(Cable::state_of(&network.card) != before);
    }
    let survived = flow.longest_gap(|| ())? < 1000.0;
    flow.is_over.store(true, Relaxed);
    for thread in threads {
        thread.join().map_err(|_| "a thread has failed")?;
    }
    Ok(json!({
        "times": times, "survived": u8::from(survived), "bridge_changed": changed,
        "bytes": flow.bytes.load(Relaxed), "longest_ms": gaps.iter().copied().fold(0.0, f64::max),
    }))
}

/// A TCP connection that carries as much as it can.
#[derive(Default)]
struct Flow {
    arrivals: Mutex<Vec<Instant>>,
    bytes: AtomicU64,
    is_over: AtomicBool,
}

impl Flow {
    fn begin(self: &Arc<Self>, network: &Network) -> Outcome<Vec<std::thread::JoinHandle<()>>> {
        let listener = within(&network.station, || TcpListener::bind((SERVER, PORT)))?;
        let mut stream = within(&network.vm, || TcpStream::connect((SERVER, PORT)))?;
        let (mut accepted, _) = listener.accept()?;
        accepted.set_read_timeout(Some(PHASE))?;
        stream.set_write_timeout(Some(PHASE))?;
        let [write, read] = [Arc::clone(self), Arc::clone(self)];
        Ok(vec![
            std::thread::spawn(move || {
                let block = vec![0; 64 << 10];
                while !write.is_over.load(Relaxed) {
                    // One that is blocked for long is tried again.
                    let _ = stream.write(&block);
                }
            }),
            std::thread::spawn(move || {
                let mut bytes = vec![0; 256 << 10];
                while !read.is_over.load(Relaxed) {
                    if let Ok(count @ 1..) = accepted.read(&mut bytes) {
                        read.bytes.fetch_add(count as u64, Relaxed);
                        if let Ok(mut arrivals) = read.arrivals.lock() {
                            arrivals.push(Instant::now());
                        }
                    }
                }
            }),
        ])
    }

    /// Returns the longest time without a byte, in ms, from `act` until a while later.
    fn longest_gap(&self, act: impl FnOnce()) -> Outcome<f64> {
        {
            let mut arrivals = self.arrivals.lock().map_err(|_| "poisoned")?;
            arrivals.clear();
            arrivals.push(Instant::now());
        }
        act();
        std::thread::sleep(PHASE);
        let mut arrivals = self.arrivals.lock().map_err(|_| "poisoned")?;
        arrivals.push(Instant::now());
        let gaps = arrivals.windows(2).map(|two| (two[1] - two[0]).as_secs_f64() * 1000.0);
        Ok(gaps.fold(0.0, f64::max))
    }
}

/// A bridge with the device of a "VM", a station, and the way to an uplink.
struct Network {
    bridge: String,
    vm: String,
    station: String,
    /// The VM's interface on the host.
    card: String,
    uplink: String,
}

impl Network {
    fn new(taut: &Taut) -> Self {
        let id = std::process::id();
        let [vm, station] = ["vm", "station"].map(|end| Netns::name(taut, end));
        let [bridge, card, uplink] = ["b", "v", "u"].map(|kind| format!("t{kind}{id:x}"));
        ip(&format!("link add {bridge} type bridge"));
        for (end, device, address) in [(&vm, &card, CLIENT), (&station, &format!("ts{id:x}"), SERVER)] {
            ip(&format!("netns add {end}"));
            ip(&format!("link add {device} type veth peer name eth0 netns {end}"));
            ip(&format!("link set {device} master {bridge} up"));
            ip(&format!("-n {end} addr add {address}/24 dev eth0"));
            ip(&format!("-n {end} link set eth0 up"));
        }
        ip(&format!("link add {uplink} type veth peer name {uplink}p"));
        ip(&format!("link set {uplink}p master {bridge} up"));
        ip(&format!("link set {bridge} up"));
        Self { bridge, vm, station, card, uplink }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let ip = |words: &[&str]| std::process::Command::new("ip").args(words).status();
        let gone = [
            ip(&["netns", "del", &self.vm]),
            ip(&["netns", "del", &self.station]),
            ip(&["link", "del", &self.uplink]),
            ip(&["link", "del", &self.bridge]),
        ];
        if gone.iter().any(Result::is_err) {
            eprintln!("not everything could be removed");
        }
    }
}
