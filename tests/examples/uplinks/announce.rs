//! Many ports are announced after their uplink has lost its link.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::{RawPort, ip};

use crate::rig::Rig;

/// Type of the frames by which physical switches are told where an address is.
const RARP: [u8; 2] = [0x80, 0x35];
/// Longest wait for an announcement.
const LONGEST: Duration = Duration::from_secs(5);

/// Takes the carrier from the uplink of so many ports.
pub(crate) fn run(ports: u16) -> Value {
    let rig = Rig::new(2);
    rig.set(&["--active", &rig.cables[0].card, "--standby", &rig.cables[1].card]);
    let address = |number: u16| {
        let [high, low] = number.to_be_bytes();
        [2, 0, 0, 1, high, low]
    };
    let all: Vec<_> = (1..ports)
        .map(|number| RawPort::attach(&rig.taut, &format!("p{number}"), "lan", address(number)))
        .collect();
    std::thread::sleep(Duration::from_secs(2));
    for cable in &rig.cables {
        cable.drain();
    }
    let lost = Instant::now();
    ip(&format!("link set {} carrier off", rig.cables[0].card));
    let (mut told, mut frames) = (BTreeSet::<Vec<u8>>::new(), 0);
    let (mut first, mut last) = (None, lost);
    while lost.elapsed() < LONGEST && told.len() <= all.len() {
        let is_rarp = |frame: &[u8]| frame[12..14] == RARP;
        if let Some(frame) = rig.cables[1].receive_if(Duration::from_millis(1), is_rarp) {
            last = Instant::now();
            first.get_or_insert(last);
            frames += 1;
            told.insert(frame[6..12].to_vec());
        }
    }
    let ms = |from: Instant| (last - from).as_secs_f64() * 1000.0;
    json!({
        "ports": ports, "frames": frames, "missing": usize::from(ports) - told.len(),
        "all_ms": first.map(ms), "since_loss_ms": ms(lost),
    })
}
