//! A hub outside sends each frame to both uplinks of a team, and what its port has sent back to
//! both.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::rig::{ALL, OUTSIDE, PATIENCE, PORT, Rig, frame};

const UNKNOWN: [u8; 6] = [2, 0, 0, 0, 0, 0x77];
/// Frames that are sent to each uplink before one looks at what came: fewer than the ring of a port
/// has buffers.
const CHUNK: u32 = 64;

/// Sends so many frames under each policy for which a port has one uplink.
pub(crate) fn run(frames: u32) -> Value {
    let mut rig = Rig::new(2);
    let cards = [rig.cables[0].card.clone(), rig.cables[1].card.clone()];
    let both = cards.join(",");
    let policies: [(&str, &[&str]); 4] = [
        ("port-id", &["--team-policy", "port-id", "--active", &both, "--standby", "none"]),
        ("source-mac", &["--team-policy", "source-mac", "--active", &both, "--standby", "none"]),
        ("explicit", &["--team-policy", "explicit", "--active", &both, "--standby", "none"]),
        ("standby", &["--team-policy", "port-id", "--active", &cards[1], "--standby", &cards[0]]),
    ];
    let (mut total, mut duplicates, mut missing, mut strays, mut both_ways) = (0_u64, 0_usize, 0, 0, 0_usize);
    for (name, words) in policies {
        rig.set(words);
        let own = rig.own_uplink();
        let mut number = 0;
        // A card's queue has 500 frames, so it is emptied after each chunk.
        let mut left = [0, 0];
        let count = |rig: &Rig, left: &mut [usize; 2]| {
            left[0] += rig.sent(own).len();
            left[1] += rig.sent(1 - own).len();
        };
        while number < frames / policies.len() as u32 {
            let chunk: Vec<u32> = (number..number + CHUNK).collect();
            let mut expected = Vec::new();
            for &number in &chunk {
                let to = [PORT, ALL, UNKNOWN][number as usize % 3];
                expected.extend((to != UNKNOWN).then_some(number));
                for cable in &rig.cables {
                    cable.send(&frame(to, OUTSIDE, number));
                }
                total += 2;
            }
            // A hub sends the frames of the port back by all cables.
            let sent = frame(OUTSIDE, PORT, number);
            rig.send(&sent);
            for cable in &rig.cables {
                cable.send(&sent);
                total += 1;
            }
            let mut received = Vec::new();
            let end = Instant::now() + PATIENCE;
            while received.len() < expected.len() && Instant::now() < end {
                rig.port.await_frame(Duration::from_millis(5));
                received.extend(rig.received());
            }
            number += CHUNK;
            count(&rig, &mut left);
            if number % (CHUNK * 16) == 0 {
                // A duplicate may come later than the frame.
                std::thread::sleep(Duration::from_millis(2));
                received.extend(rig.received());
            }
            let all = received.len();
            received.sort_unstable();
            received.dedup();
            duplicates += all - received.len();
            missing += expected.iter().filter(|number| received.binary_search(number).is_err()).count();
            strays += received.iter().filter(|number| expected.binary_search(number).is_err()).count();
        }
        std::thread::sleep(Duration::from_millis(50));
        count(&rig, &mut left);
        // One frame of the port for each chunk, and nothing else.
        both_ways += left[1];
        strays += left[0].abs_diff((number / CHUNK) as usize);
        eprintln!(
            "{name}: {duplicates} duplicates, {missing} missing, {strays} strays, {both_ways} elsewhere"
        );
    }
    json!({
        "frames": total, "policies": policies.len(), "duplicates": duplicates, "missing": missing,
        "strays": strays, "on_others": both_ways,
    })
}
