//! Short and long frames that pass an uplink on veth, or another switch, as many as possible in one
//! direction.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use taut_tests::{Cable, FrameSender, RawPort, Taut, ip};
use taut_virtq::header::NetHeader;

use crate::Outcome;
use crate::rig::{OUTSIDE, PORT, TYPE};

/// Bytes of the checksum that a card adds to each frame.
const CHECKSUM: usize = 4;
/// Time before frames are counted.
const BEGIN: Duration = Duration::from_millis(500);
/// The card, the other end of its cable, and the bridge.
const CARD: &str = "taut-rate-card";
const END: &str = "taut-rate-end";
const BRIDGE: &str = "taut-rate-br";

/// Frames of one measurement.
pub(crate) struct Load {
    direction: Direction,
    /// A frame without its checksum.
    frame: Vec<u8>,
    duration: Duration,
}

/// Direction of frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Out,
    In,
}

impl Load {
    /// Makes a load of frames of `size` bytes with their checksum, for so many seconds.
    pub(crate) fn new(direction: &str, size: usize, seconds: u64) -> Outcome<Self> {
        let (direction, [to, from]) = match direction {
            "out" => (Direction::Out, [OUTSIDE, PORT]),
            "in" => (Direction::In, [PORT, OUTSIDE]),
            other => return Err(format!("`{other}` is no direction: `out` or `in`").into()),
        };
        let mut frame = [&to[..], &from, &TYPE].concat();
        frame.resize(size - CHECKSUM, 0);
        Ok(Self { direction, frame, duration: Duration::from_secs(seconds) })
    }
}

/// A veth pair, which is removed with this value.
struct Veth;

impl Veth {
    fn new() -> Self {
        ip(&format!("link add {CARD} type veth peer name {END}"));
        ip(&format!("link set {END} up"));
        Self
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        ip(&format!("link del {CARD}"));
    }
}

/// Loads an uplink with the backend `way`, or a Linux bridge (`bridge`). A switch works on CPU 0,
/// and the ends of the load on CPU 1. A bridge has no thread of its own: its work is done on the
/// CPU of the sender. So the guest's end is on CPU 0 in both directions, and the outside's on
/// CPU 1.
pub(crate) fn run(way: &str, load: &Load) -> Outcome<Value> {
    let _veth = Veth::new();
    let rate = match way {
        "bridge" => by_bridge(load)?,
        _ => by_uplink(way, load)?,
    };
    Ok(json!({ "way": way, "mpps": rate }))
}

/// Loads another switch, which works on CPU 0, has a port at a vhost-user socket, and a card whose
/// cable ends at the interface `end`.
pub(crate) fn run_other(socket: &Path, end: &str, load: &Load) -> Outcome<Value> {
    Ok(json!({ "mpps": by_port(&mut RawPort::connect(socket, PORT), end, load)? }))
}

fn by_uplink(backend: &str, load: &Load) -> Outcome<f64> {
    let taut = Taut::start_with(&["--fabric-cpus", "0"]).with_lan();
    taut.ok(["uplink", "add", "sw", CARD, "--backend", backend]);
    let rate = by_port(&mut RawPort::attach(&taut, "port", "lan", PORT), END, load)?;
    taut.ok(["uplink", "remove", CARD]);
    Ok(rate)
}

fn by_port(port: &mut RawPort, end: &str, load: &Load) -> Outcome<f64> {
    let Load { direction, frame, duration } = load;
    let header = NetHeader::default();
    stay_on(1)?;
    match direction {
        Direction::Out => measure(
            *duration,
            || received_at(end),
            || {
                while port.send(&header, frame) {}
                port.flush();
            },
        ),
        Direction::In => {
            // The switch learns the place of the port.
            port.send(&header, &[&OUTSIDE[..], &PORT, &frame[12..]].concat());
            port.flush();
            let (sender, received) = (FrameSender::open(end), AtomicU64::new(0));
            measure(
                *duration,
                || Ok(received.load(Relaxed)),
                || {
                    sender.send_many(frame);
                    while port.receive().is_some() {
                        received.fetch_add(1, Relaxed);
                    }
                    port.flush();
                },
            )
        }
    }
}

fn by_bridge(load: &Load) -> Outcome<f64> {
    let cable = Cable::plug();
    ip(&format!("link add {BRIDGE} type bridge"));
    for port in [CARD, &cable.card] {
        ip(&format!("link set {port} master {BRIDGE} up"));
    }
    ip(&format!("link set {BRIDGE} up"));
    let rate = match load.direction {
        Direction::Out => {
            stay_on(0)?;
            measure(load.duration, || received_at(END), || (0..256).for_each(|_| cable.send(&load.frame)))
        }
        Direction::In => into_bridge(&cable, load),
    };
    ip(&format!("link del {BRIDGE}"));
    rate
}

/// Sends to a bridge on CPU 1, and receives from it on CPU 0.
fn into_bridge(cable: &Cable, Load { frame, duration, .. }: &Load) -> Outcome<f64> {
    // The bridge learns the place of the guest.
    cable.send(&[&OUTSIDE[..], &PORT, &frame[12..]].concat());
    let (received, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let bound = stay_on(0).map_err(|error| error.to_string());
            let mut space = [0; 2048];
            while bound.is_ok() && !is_over.load(Relaxed) {
                cable.take_each(&mut space, |_| {
                    received.fetch_add(1, Relaxed);
                });
            }
            bound
        });
        let measured = stay_on(1).and_then(|()| {
            let sender = FrameSender::open(END);
            measure(*duration, || Ok(received.load(Relaxed)), || sender.send_many(frame))
        });
        is_over.store(true, Relaxed);
        receiver.join().map_err(|_| "the receiver has failed")??;
        measured
    })
}

/// Returns the number of frames that an interface has received.
fn received_at(interface: &str) -> Outcome<u64> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/statistics/rx_packets"))?;
    Ok(text.trim().parse()?)
}

/// Returns the frames that come out in a microsecond, by `count`, while `send` is called again and
/// again.
fn measure(duration: Duration, count: impl Fn() -> Outcome<u64>, mut send: impl FnMut()) -> Outcome<f64> {
    let mut send_for = |duration: Duration| {
        let begin = Instant::now();
        while begin.elapsed() < duration {
            send();
        }
        begin.elapsed()
    };
    send_for(BEGIN);
    let before = count()?;
    let took = send_for(duration);
    Ok((count()? - before) as f64 / took.as_secs_f64() / 1e6)
}

/// Binds this thread to a CPU.
pub(crate) fn stay_on(cpu: usize) -> Outcome<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(sched_setaffinity(None, &cpus)?)
}
