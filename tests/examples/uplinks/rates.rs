//! Short and long frames that leave by an uplink on veth, or by a Linux bridge, as many as pass.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use taut_tests::{Cable, RawPort, Taut, ip};
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

/// A veth pair, which is removed with this value.
struct Veth {
    /// File with the number of frames that came out at the other end.
    count: String,
}

impl Veth {
    fn new() -> Self {
        ip(&format!("link add {CARD} type veth peer name {END}"));
        ip(&format!("link set {END} up"));
        Self { count: format!("/sys/class/net/{END}/statistics/rx_packets") }
    }

    /// Returns the number of frames that came out at the other end.
    fn count(&self) -> Outcome<u64> {
        let text = std::fs::read_to_string(&self.count)?;
        Ok(text.trim().parse()?)
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        ip(&format!("link del {CARD}"));
    }
}

/// Sends frames of `size` bytes with their checksum for so many seconds: from a port by an uplink
/// with the backend `way`, or from a TAP device by a Linux bridge (`bridge`). A switch works on
/// CPU 0, and what sends on another one if that is not the switch itself.
pub(crate) fn run(way: &str, size: usize, seconds: u64) -> Outcome<Value> {
    let mut frame = [&OUTSIDE[..], &PORT, &TYPE].concat();
    frame.resize(size - CHECKSUM, 0);
    let duration = Duration::from_secs(seconds);
    let veth = Veth::new();
    let rate = match way {
        "bridge" => by_bridge(&veth, &frame, duration)?,
        _ => by_uplink(&veth, way, &frame, duration)?,
    };
    Ok(json!({ "way": way, "size": size, "mpps": rate }))
}

fn by_uplink(veth: &Veth, backend: &str, frame: &[u8], duration: Duration) -> Outcome<f64> {
    let taut = Taut::start_with(&["--fabric-cpus", "0"]).with_lan();
    taut.ok(["uplink", "add", "sw", CARD, "--backend", backend]);
    let mut port = RawPort::attach(&taut, "port", "lan", PORT);
    stay_on(1)?;
    let header = NetHeader::default();
    let rate = measure(veth, duration, || {
        while port.send(&header, frame) {}
        port.flush();
    })?;
    taut.ok(["uplink", "remove", CARD]);
    Ok(rate)
}

fn by_bridge(veth: &Veth, frame: &[u8], duration: Duration) -> Outcome<f64> {
    let cable = Cable::plug();
    ip(&format!("link add {BRIDGE} type bridge"));
    for port in [CARD, &cable.card] {
        ip(&format!("link set {port} master {BRIDGE} up"));
    }
    ip(&format!("link set {BRIDGE} up"));
    stay_on(0)?;
    let rate = measure(veth, duration, || (0..256).for_each(|_| cable.send(frame)));
    ip(&format!("link del {BRIDGE}"));
    rate
}

/// Returns the frames that come out in a microsecond while `send` is called again and again.
fn measure(veth: &Veth, duration: Duration, mut send: impl FnMut()) -> Outcome<f64> {
    let mut send_for = |duration: Duration| {
        let begin = Instant::now();
        while begin.elapsed() < duration {
            send();
        }
        begin.elapsed()
    };
    send_for(BEGIN);
    let before = veth.count()?;
    let took = send_for(duration);
    Ok((veth.count()? - before) as f64 / took.as_secs_f64() / 1e6)
}

/// Binds this thread to a CPU.
pub(crate) fn stay_on(cpu: usize) -> Outcome<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(sched_setaffinity(None, &cpus)?)
}
