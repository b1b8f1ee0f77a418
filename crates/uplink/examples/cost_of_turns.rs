//! Measures what network I/O control costs.
//!
//! * `cost_of_turns contended PORTS`: decisions while all ports always have frames of 64 bytes, in
//!   two classes and with different shares; every tenth has a reservation and every seventh a
//!   limit. A turn takes 32 frames. Prints the median and the range of 21 repeats in ns of a turn,
//!   and the median of a frame.
//! * `cost_of_turns alone FRAMES`: questions of a port whose uplink keeps up, each in [`ask`],
//!   whose instructions another program counts.

use std::hint::black_box;
use std::time::Instant;

use taut_uplink::netioc::{Class, Next, Port, Rate, Rules, Scheduler, Shares, Turns, wire_bytes};

const REPEATS: usize = 21;
const TURNS: u64 = 200_000;
const FRAMES: u32 = 32;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [what, ports] if what == "contended" => contended(ports.parse().expect("a number of ports")),
        [what, frames] if what == "alone" => alone(frames.parse().expect("a number of frames")),
        _ => panic!("usage: cost_of_turns contended PORTS | alone FRAMES"),
    }
}

fn rate(bits: u64) -> Rate {
    Rate::new(bits).expect("not below 1 kbit/s")
}

fn alone(frames: u64) {
    let mut turns = Turns::new(rate(10_000_000_000));
    let rules = Class::VirtualMachine.defaults();
    let ports: Vec<_> = (0..1000).map(|_| turns.add_port(Class::VirtualMachine, rules)).collect();
    for frame in 0..frames {
        assert!(ask(&mut turns, black_box(ports[500]), 1538, 1_000_000 + 2000 * frame));
    }
    println!("{frames} frames of a port without others");
}

/// Asks for a frame, and notes that it was sent.
#[inline(never)]
fn ask(turns: &mut Turns, port: Port, bytes: u32, now: u64) -> bool {
    let may_send = turns.ask(port, bytes, now);
    if may_send {
        turns.sent(port, bytes, now);
    }
    may_send
}

fn contended(ports: u32) {
    let mut scheduler = Scheduler::new(rate(100_000_000_000), 1);
    for number in 0..ports {
        let class = if number % 4 == 0 { Class::Nfs } else { Class::VirtualMachine };
        let rules = Rules {
            shares: Shares::new((number % 100) as u8 + 1).expect("from 1 to 100"),
            limit: (number % 7 == 0).then(|| rate(200_000_000)),
            reservation: (number % 10 == 0).then(|| rate(50_000_000)),
        };
        let port = scheduler.add_port(class, rules);
        scheduler.ready(port, 0);
    }
    let mut now = 0;
    let mut each = Vec::new();
    for _ in 0..REPEATS {
        let begun = Instant::now();
        let mut turns = 0;
        while turns < TURNS {
            match scheduler.next(now) {
                Next::Send(turn) => {
                    scheduler.sent(turn, FRAMES * wire_bytes(64, 1, 0), true, now);
                    turns += 1;
                }
                Next::Wait(at) => now = at,
                Next::Idle => unreachable!("all ports have frames"),
            }
        }
        each.push(begun.elapsed().as_nanos() as f64 / turns as f64);
    }
    each.sort_by(f64::total_cmp);
    let [least, median, most] = [0, REPEATS / 2, REPEATS - 1].map(|at| each[at]);
    let frame = median / f64::from(FRAMES);
    println!("{ports} ports: {median:.1} ns a turn [{least:.1}–{most:.1}, {REPEATS}], {frame:.2} ns a frame");
}
