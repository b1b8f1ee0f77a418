//! Two ports make an uplink busy, and one of them moves to the other uplink.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::{RawPort, eventually};
use taut_virtq::header::NetHeader;

use crate::Outcome;
use crate::rig::{OUTSIDE, PORT, Rig, TYPE, number};

/// Ports besides that of the rig. Two of three share one of two uplinks.
const OTHERS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0xb], [2, 0, 0, 0, 0, 0xc]];
/// Bytes of a frame; with preamble, checksum and gap it takes 8192 bits of the wire.
const FRAME: usize = 1000;
/// Frames a second of the busier port and of the other one: 5 and 4 Mbit/s of 10 Mbit/s.
const RATES: [f64; 2] = [610.0, 488.0];
/// Longest wait for a port to move.
const LONGEST: Duration = Duration::from_secs(90);

/// Numbers of a port's frames that have left by each uplink.
type Left = [Vec<u32>; 2];

/// Makes an uplink busy so many times. Returns when ports have moved, and frames that were lost,
/// doubled or out of order.
pub(crate) fn run(runs: usize) -> Outcome<Value> {
    let mut rig = Rig::new(2);
    for cable in &rig.cables {
        let set = ["-s", &cable.card, "speed", "10", "duplex", "full", "autoneg", "off"];
        let done = Command::new("ethtool").args(set).status()?;
        if !done.success() {
            return Err("ethtool cannot set the speed of a TAP device".into());
        }
    }
    let mut others = [0, 1].map(|at| RawPort::attach(&rig.taut, &format!("port{at}"), "lan", OTHERS[at]));
    let (mut moved_s, mut lost, mut disordered, mut frames) = (Vec::new(), 0, 0, 0);
    for _ in 0..runs {
        // The ports forget where they were moved.
        rig.set(&["--team-policy", "port-id"]);
        rig.set(&["--team-policy", "load"]);
        eventually("the speed is known", || {
            let uplinks = rig.taut.json(["uplink", "list"]);
            uplinks.as_array()?.iter().all(|uplink| uplink["status"]["speed_mbit"] == 10).then_some(())
        });
        std::thread::sleep(Duration::from_secs(2));
        let mut ports: Vec<(&mut RawPort, [u8; 6])> = vec![(&mut rig.port, PORT)];
        ports.extend(others.iter_mut().zip(OTHERS));
        for cable in &rig.cables {
            cable.drain();
        }
        // Which ports share an uplink?
        let mut by_uplink = BTreeMap::<usize, Vec<usize>>::new();
        for (at, (port, mac)) in ports.iter_mut().enumerate() {
            send(port, *mac, 0);
            let is_its = |frame: &[u8]| frame[6..12] == *mac && frame[12..14] == TYPE;
            let find =
                || (0..2).find(|&at| rig.cables[at].receive_if(Duration::from_millis(20), is_its).is_some());
            by_uplink.entry(eventually("the frame leaves", find)).or_default().push(at);
        }
        let (busy, sharing) = by_uplink.iter().find(|(_, ports)| ports.len() > 1).ok_or("no two share")?;
        let [first, second] = [sharing[0], sharing[1]];
        let begun = Instant::now();
        let mut next = [1_u32; 2];
        let mut left = [Left::default(), Left::default()];
        let mut end = begun + LONGEST;
        let mut moved = None;
        while Instant::now() < end {
            for (which, at) in [first, second].into_iter().enumerate() {
                let due = (begun.elapsed().as_secs_f64() * RATES[which]) as u32;
                while next[which] <= due {
                    let (port, mac) = &mut ports[at];
                    send(port, *mac, next[which]);
                    next[which] += 1;
                }
            }
            for (uplink, cable) in rig.cables.iter().enumerate() {
                while let Some(frame) = cable.receive_if(Duration::ZERO, |frame| frame[12..14] == TYPE) {
                    let which = usize::from(frame[6..12] == ports[second].1);
                    left[which][uplink].push(number(&frame));
                    if uplink != *busy && moved.is_none() {
                        moved = Some((which, begun.elapsed().as_secs_f64()));
                        end = Instant::now() + Duration::from_secs(2);
                    }
                }
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        let (which, seconds) = moved.ok_or("no port has moved")?;
        if which != 0 {
            return Err("not the busiest port has moved".into());
        }
        moved_s.push(seconds);
        std::thread::sleep(Duration::from_millis(50));
        for (uplink, cable) in rig.cables.iter().enumerate() {
            while let Some(frame) = cable.receive_if(Duration::ZERO, |frame| frame[12..14] == TYPE) {
                let which = usize::from(frame[6..12] == ports[second].1);
                left[which][uplink].push(number(&frame));
            }
        }
        for (which, by_uplink) in left.iter().enumerate() {
            // All that went by the busy uplink went before all that went by the other one.
            let order = [*busy, 1 - *busy].into_iter().flat_map(|uplink| &by_uplink[uplink]);
            let numbers: Vec<u32> = order.copied().collect();
            let expected = next[which] - 1;
            frames += expected;
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            sorted.dedup();
            lost += (expected as usize).abs_diff(sorted.len()) + (numbers.len() - sorted.len());
            disordered += numbers.windows(2).filter(|two| two[1] < two[0]).count();
        }
    }
    Ok(json!({
        "runs": runs, "frames": frames, "moved_s": moved_s, "lost": lost, "disordered": disordered,
        "first_s": moved_s.iter().copied().fold(f64::INFINITY, f64::min),
        "last_s": moved_s.iter().copied().fold(0.0, f64::max),
    }))
}

fn send(port: &mut RawPort, mac: [u8; 6], number: u32) {
    let mut frame = [&OUTSIDE[..], &mac, &TYPE, &number.to_be_bytes()].concat();
    frame.resize(FRAME, 0);
    assert!(port.send(&NetHeader::default(), &frame), "the fabric takes the port's frames");
    port.flush();
}
