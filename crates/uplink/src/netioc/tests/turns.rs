//! Ports that ask, in virtual time.

use std::collections::BTreeSet;

use super::super::{Class, Next, Port, Rules, Scheduler, Turns};
use super::bench::{GBIT, capacity, rate, shares};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// Bytes of a long frame on the wire.
const FRAME: u32 = 1538;
/// Frames of a burst.
const BURST: u32 = 64;

/// A port with frames of one length.
struct Sender {
    port: Port,
    frame: u32,
    /// Frames that it has; `None` if it always has one.
    left: Option<u64>,
    /// Time in ns from the moment it is woken until it is served.
    late: u64,
    /// The port is never served.
    is_lost: bool,
    sent: u64,
}

struct Uplink {
    turns: Turns,
    now: u64,
    senders: Vec<Sender>,
    /// Senders that will be served, and when.
    due: BTreeSet<(u64, usize)>,
}

impl Uplink {
    fn new(speed: u64) -> Self {
        Self { turns: Turns::new(rate(speed)), now: 7 * SECOND, senders: Vec::new(), due: BTreeSet::new() }
    }

    /// Adds a port, which asks at once.
    fn add(&mut self, rules: Rules, frame: u32) -> usize {
        let port = self.turns.add_port(Class::VirtualMachine, rules);
        self.senders.push(Sender { port, frame, left: None, late: 0, is_lost: false, sent: 0 });
        let place = self.senders.len() - 1;
        self.due.insert((self.now, place));
        place
    }

    /// Serves a port with one burst. It is served again if it need not wait.
    fn serve(&mut self, place: usize) {
        let Self { turns, now, senders, due } = self;
        let Sender { port, frame, left, sent, .. } = &mut senders[place];
        let mut waits = false;
        for _ in 0..BURST {
            if *left == Some(0) {
                break;
            }
            if !turns.ask(*port, *frame, *now) {
                waits = true;
                break;
            }
            turns.sent(*port, *frame, *now);
            *sent += u64::from(*frame);
            if let Some(left) = left {
                *left -= 1;
            }
        }
        turns.done(*port, waits, *now);
        if !waits && *left != Some(0) {
            // The worker has other sources meanwhile.
            due.insert((*now + 5000, place));
        }
    }

    fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        loop {
            while let Some(port) = self.turns.take_woken() {
                let place = self.senders.iter().position(|sender| sender.port == port).unwrap();
                if !self.senders[place].is_lost {
                    self.due.insert((self.now + self.senders[place].late, place));
                }
            }
            let served = self.due.first().map(|(at, _)| *at);
            let Some(next) = [served, self.turns.next_turn()].into_iter().flatten().min() else { break };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            match self.due.first().copied() {
                Some((at, place)) if at <= self.now => {
                    self.due.pop_first();
                    self.serve(place);
                }
                _ => self.turns.update(self.now),
            }
        }
        self.now = end;
    }

    /// Bytes that a port sends in this time.
    fn sent_in<const N: usize>(&mut self, ns: u64, places: [usize; N]) -> [u64; N] {
        let before = places.map(|place| self.senders[place].sent);
        self.run(ns);
        std::array::from_fn(|at| self.senders[places[at]].sent - before[at])
    }
}

#[test]
fn a_port_alone_is_not_kept_waiting() {
    let mut uplink = Uplink::new(GBIT);
    let alone = uplink.add(shares(1), FRAME);
    uplink.senders[alone].left = Some(10);
    uplink.serve(alone);
    assert_eq!(uplink.senders[alone].sent, 10 * u64::from(FRAME));
    assert_eq!((uplink.turns.next_turn(), uplink.turns.take_woken()), (None, None));
}

#[test]
fn ports_share_an_uplink_that_is_too_slow_for_them() {
    let mut uplink = Uplink::new(GBIT);
    // Short frames, long ones, and frames that the kernel segments.
    let places =
        [(1, 84), (2, FRAME), (4, 65_560)].map(|(number, frame)| uplink.add(shares(20 * number), frame));
    uplink.run(SECOND);
    let sent = uplink.sent_in(4 * SECOND, places);
    let total: u64 = sent.iter().sum();
    assert!(total.abs_diff(4 * SECOND / 8) <= 3 * 65_560, "{total} bytes");
    for (part, bytes) in [1, 2, 4].into_iter().zip(sent) {
        let wanted = total * part / 7;
        assert!(bytes.abs_diff(wanted) <= wanted / 200, "{part}: {bytes} instead of {wanted}");
    }
}

#[test]
fn the_uplink_is_handed_little_ahead() {
    let mut uplink = Uplink::new(GBIT);
    (0..5).for_each(|_| _ = uplink.add(shares(50), FRAME));
    let begun = uplink.now;
    for _ in 0..100 {
        uplink.run(MS);
        let total: u64 = uplink.senders.iter().map(|sender| sender.sent).sum();
        let most = capacity(GBIT, uplink.now - begun) + 2 * 16_384;
        assert!(total <= most, "{total} bytes, {most} at most");
    }
}

#[test]
fn a_reservation_is_kept_beside_many_ports() {
    for frame in [84, FRAME] {
        let mut uplink = Uplink::new(GBIT);
        (0..200).for_each(|_| _ = uplink.add(shares(100), FRAME));
        let reserved = Rules { reservation: Some(rate(300_000_000)), ..shares(1) };
        let reserved = uplink.add(reserved, frame);
        uplink.run(SECOND / 10);
        let [sent] = uplink.sent_in(SECOND, [reserved]);
        let got = sent * 8;
        assert!((299_000_000..=303_000_000).contains(&got), "{got} bit/s in frames of {frame} bytes");
    }
}

#[test]
fn a_limit_holds_although_nobody_else_sends() {
    for frame in [84, FRAME, 65_560] {
        let mut uplink = Uplink::new(GBIT);
        let rules = Rules { limit: Some(rate(100_000_000)), ..shares(100) };
        let limited = uplink.add(rules, frame);
        let [sent] = uplink.sent_in(SECOND, [limited]);
        let got = sent * 8;
        assert!((99_000_000..=101_100_000).contains(&got), "{got} bit/s in frames of {frame} bytes");
    }
}

#[test]
fn a_port_that_is_served_late_has_its_part() {
    let mut uplink = Uplink::new(GBIT);
    let [late, quick] = [0, 1].map(|_| uplink.add(shares(50), FRAME));
    uplink.senders[late].late = MS;
    uplink.run(SECOND);
    let sent = uplink.sent_in(2 * SECOND, [late, quick]);
    // The late port can have one turn in a millisecond, which is a tenth.
    assert!(sent[0] > 2 * SECOND / 8 * 9 / 100, "{sent:?}");
    assert!(sent[1] > 2 * SECOND / 8 * 8 / 10, "{sent:?}");
    // With others beside it, this is more than its part.
    (0..20).for_each(|_| _ = uplink.add(shares(50), FRAME));
    uplink.run(SECOND);
    let sent = uplink.sent_in(2 * SECOND, [late, quick]);
    assert!(sent[0].abs_diff(sent[1]) <= sent[1] / 50, "{sent:?}");
}

#[test]
fn a_port_that_does_not_use_its_turns_costs_the_others_no_more_than_its_part() {
    let mut uplink = Uplink::new(GBIT);
    let [lost, other] = [0, 1].map(|_| uplink.add(shares(50), FRAME));
    uplink.run(10 * MS);
    uplink.senders[lost].is_lost = true;
    let mut total = 0;
    for _ in 0..1000 {
        // The port comes with a frame, and goes away when it is to wait.
        let (port, now) = (uplink.senders[lost].port, uplink.now);
        uplink.turns.ask(port, FRAME, now);
        let [sent] = uplink.sent_in(MS, [other]);
        total += sent;
    }
    assert!(total > SECOND / 8 / 2, "{total} bytes in a second");
}

#[test]
fn a_port_may_be_removed_within_its_turn() {
    let mut uplink = Uplink::new(GBIT);
    let [first, second] = [0, 1].map(|_| uplink.add(shares(50), FRAME));
    uplink.run(10 * MS);
    let (removed, now) = (uplink.senders[first].port, uplink.now);
    uplink.due.retain(|(_, place)| *place != first);
    uplink.turns.remove_port(removed, now);
    uplink.turns.update(now);
    let [sent] = uplink.sent_in(SECOND, [second]);
    assert!(sent.abs_diff(SECOND / 8) <= 25_000 + 2 * 16_384, "{sent}");
}

#[test]
fn a_reservation_waits_for_one_long_frame_at_most() {
    const LONG: u32 = 45 * 1514;
    /// Time in ns of a long frame on the wire.
    const LONG_TIME: u64 = LONG as u64 * 8;
    let mut uplink = Uplink::new(GBIT);
    for late in 1..=20 {
        let place = uplink.add(shares(1), LONG);
        uplink.senders[place].late = late * 10_000;
    }
    let rules = Rules { reservation: Some(rate(GBIT / 4)), ..shares(1) };
    let reserver = uplink.add(rules, FRAME);
    uplink.senders[reserver].left = Some(0);
    uplink.run(10 * MS);
    let mut longest = 0;
    for round in 0..1000 {
        uplink.run(MS + round * 7919 % MS);
        uplink.senders[reserver].left = Some(1);
        let asked = uplink.now;
        uplink.serve(reserver);
        while uplink.senders[reserver].left != Some(0) {
            uplink.run(1000);
        }
        longest = longest.max(uplink.now - asked);
    }
    assert!(longest <= LONG_TIME + 1000, "{longest} ns");
    assert!(longest >= LONG_TIME / 2, "{longest} ns: nobody was in its way");
}

#[test]
fn a_turn_sets_aside_the_longest_frame_of_all_queues_of_a_port() {
    for frames in [[45 * 1514, 84], [84, 45 * 1514]] {
        let mut scheduler = Scheduler::new(rate(GBIT), 1538);
        let port = scheduler.add_port(Class::VirtualMachine, shares(1));
        for frame in frames {
            scheduler.expect(port, frame);
            scheduler.ready(port, SECOND);
        }
        let Next::Send(turn) = scheduler.next(SECOND) else { panic!("nobody else waits") };
        assert_eq!(turn.bytes, 45 * 1514);
    }
}
