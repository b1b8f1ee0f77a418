//! Flows under ip-hash: each keeps its uplink, and the uplinks have equal parts.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::rig::{OUTSIDE, PORT, Rig};

/// Sends two packets of each flow.
pub(crate) fn run(count: u32) -> Value {
    let mut rig = Rig::new(2);
    rig.set(&["--team-policy", "ip-hash"]);
    rig.own_uplink();
    let mut parts = [0_u32; 2];
    let (mut strays, mut lost) = (0, 0);
    let mut mixed = 1_u64;
    for _ in 0..count {
        // Addresses as clients have them: anywhere.
        mixed = mixed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let client = ((mixed >> 32) as u32).to_be_bytes();
        let mut packet = [&OUTSIDE[..], &PORT, &[8, 0, 0x45], &[0; 11], &[10, 0, 0, 1], &client].concat();
        packet.resize(64, 0);
        let mut uplinks = Vec::new();
        for _ in 0..2 {
            rig.send(&packet);
            let is_its = |frame: &[u8]| frame[6..12] == PORT && frame[12..14] == [8, 0];
            let end = Instant::now() + Duration::from_secs(1);
            let found = std::iter::repeat_with(|| {
                (0..2).find(|&at| rig.cables[at].receive_if(Duration::from_micros(50), is_its).is_some())
            });
            let found = found.take_while(|_| Instant::now() < end).find_map(|found| found);
            lost += u32::from(found.is_none());
            uplinks.extend(found);
        }
        if let [first, second] = uplinks[..] {
            parts[first] += 1;
            strays += u32::from(first != second);
        }
    }
    let even = f64::from(count) / 2.0;
    let spread = parts.iter().map(|part| (f64::from(*part) / even - 1.0).abs() * 100.0).fold(0.0, f64::max);
    json!({ "flows": count, "parts": parts, "spread_percent": spread, "strays": strays, "lost": lost })
}
