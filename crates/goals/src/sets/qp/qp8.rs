//! QP8: a program in a guest writes garbage into all that it can reach of the guest's queue pairs,
//! while its own connections, and those of two pairs of other guests, move bytes.
//!
//! The attacker's own connections use CPU time of its peer, as those of any guest may. The pair
//! with that peer is therefore compared with a time in which the attacker transfers without
//! garbage. The other pair is also compared with a time in which the attacker is idle.
//!
//! The other guests' bytes contain a secret. The hostile program searches for it in all that it can
//! map, before and after. Its owner searches in the same way, which shows that a search finds what
//! is there.

use super::shells::{Guest, PRELOADED, image, shell, shell_within, tcp_transfer};
use crate::figure::{Bound, shown};
use crate::lab::{DaemonOptions, Lab, NEWEST};
use crate::machine::{Doc, Text};
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "QP8",
    what: "garbage in all words of queue pairs that a hostile program reaches (short: 10,000 rounds instead of a \
           million), under its own connections and under those of two pairs of other guests",
    on: "four QEMU guests with Debian's newest kernel",
    goals: &[
        Goal::new(
            "QP8-attacker",
            &[
                Bound::Above(0.0, "connections ended with an error"),
                Bound::Exactly(0.0, "clients hung"),
                Bound::Exactly(0.0, "clients crashed"),
                Bound::Above(0.0, "events that name the fault"),
                Bound::AtLeast(1.0, "transfers exact afterwards"),
                Bound::Stated("rounds of garbage"),
            ],
        ),
        Goal::new(
            "QP8-neighbours",
            &[
                Bound::Exactly(0.0, "transfers wrong or failed"),
                Bound::AtLeast(1.0, "transfers of a guest with the attacker's peer"),
                Bound::AtLeast(1.0, "transfers of another pair"),
                Bound::AtLeast(
                    0.5,
                    "x the rate by rings of the pair with the attacker's peer beside honest transfers",
                ),
                Bound::AtLeast(
                    0.5,
                    "x the rate by rings of the other pair beside an idle attacker or honest transfers",
                ),
                Bound::AtLeast(0.9, "of their bytes by rings at the end"),
                Bound::AtLeast(0.5, "x the rate by rings of the slower pair after the garbage"),
                Bound::Stated(
                    "x the rate by rings of the pair with the attacker's peer beside an idle attacker",
                ),
            ],
        ),
        Goal::new(
            "QP8-secret",
            &[
                Bound::Exactly(0.0, "places of the secret seen by the attacker"),
                Bound::Exactly(0.0, "pages behind the device read"),
                Bound::Above(0.0, "places seen by the owner"),
            ],
        ),
        Goal::new(
            "QP8-fabric",
            &[Bound::Exactly(0.0, "deaths of the fabric"), Bound::AtMost(1.0, "MiB more of the fabric")],
        ),
    ],
    run,
};

/// The device of a region, and its size.
const DEVICE: &str = "/dev/dax0.0 16777216";
/// What the other guests' bytes contain in each 4 KiB.
const SECRET: &str = "the-secret-of-the-neighbours-0815";
/// Length of the secret in a stream.
const SECRET_LEN: usize = 32;
/// Seconds after which a connection of the attacker hangs.
const HUNG: u32 = 60;
/// Bytes of each of the attacker's connections under garbage. Connections go by packets if the
/// header of the device is garbage. Four of these take 16 s at 134 Mbit/s, far less than [`HUNG`].
const LONG: u32 = 64 << 20;
/// Bytes of each of the attacker's connections without garbage.
const SHORT: u32 = 16 << 20;

const ATTACKER: u32 = 110;
const PEER: u32 = 111;
const OWNER: u32 = 112;
const LAST: u32 = 113;

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let rounds: u32 = lab.pick(1_000_000, 10_000);
    start(lab)?;
    for vm in ["peer", "last"] {
        let serve = format!(
            "{PRELOADED} tcp_transfer serve 0.0.0.0:7000 >served 2>said &\n\
             until grep -q serves served; do sleep 0.2; done\nsleep 2"
        );
        shell(lab, vm, &serve)?;
    }
    // All has been used once, also by the attacker, before memory is compared.
    let own = format!("{PRELOADED} timeout {HUNG} tcp_transfer connect 10.82.0.{PEER}:7000");
    let warm = shell(lab, "attacker", &format!("{own} --connections 8 2>said; cat said"))?;
    require(warm.contains(": in channel "), "the attacker's connections have no queue pairs")?;
    start_neighbours(lab)?;
    let before = (lab.fabric_pid()?, fabric_mib(lab)?);
    let searched_before = search(lab, "attacker")?;

    let quiet = Period::measure(lab)?;
    let honest = beside_transfers(lab, &own)?;
    let begin = Moved::now(lab)?;
    let attacked = attack(lab, &own, rounds)?;
    let beside = Period::since(lab, &begin)?;
    let searched_after = search(lab, "attacker")?;
    let of_owner = search(lab, "owner")?;
    let at_end = Period::measure(lab)?;
    let neighbours = end_neighbours(lab)?;
    let after = (lab.fabric_pid()?, fabric_mib(lab)?);
    // The header is garbage, too. Connections go by packets.
    let afterwards = shell(lab, "attacker", &format!("{own} 2>said\ncat said"))?;

    let failed = attacked.numbers_between(" wrong, ", " failed,")?.iter().sum::<f64>();
    let exits = attacked.numbers_between("client: ended with ", ".")?;
    let is_by_ring = |line: &str| line.starts_with("hung: ") && line.contains(": in channel ");
    let hung_by_rings = attacked.lines().into_iter().filter(|line| is_by_ring(line)).count();
    // `timeout` ends with 124, and with more than 128 if a signal has killed the client.
    let ended_with =
        |from: f64, to: f64| exits.iter().filter(|&&status| status >= from && status < to).count();
    let (hung, crashed) = (ended_with(124.0, 125.0) as f64, ended_with(125.0, f64::INFINITY) as f64);
    let done = attacked.number_between("garbage: ", " rounds")?;
    let words = attacked.number_between("rounds, ", " words")?;
    let events = lab.taut_json("events")?;
    lab.keep("events.json", &events.value().to_string())?;
    let named = faults(&events.list("")?)?;
    let malformed = lab.taut_json("vmci show attacker")?.number("status.vmci.counters.malformed")?;
    let exact = afterwards.number_between("transfers: ", " exact")?;
    let wrong: f64 = attacked.numbers_between(" exact, ", " wrong,")?.iter().sum();
    let detail = format!(
        "{} words, {} of which the fabric refused; own connections: {} failed, {} with wrong bytes; {} rounds of \
         clients; {hung_by_rings} connections by rings of clients that hung",
        shown(words),
        shown(malformed),
        shown(failed),
        shown(wrong),
        exits.len()
    );
    results.record("QP8-attacker", [failed + wrong, hung, crashed, named, exact, done], detail);
    let [with_peer, other] = &neighbours;
    let bad = with_peer.bad + other.bad;
    let [of_honest, other_of_honest] = beside.ratios(&honest)?;
    let [of_quiet, other_of_quiet] = beside.ratios(&quiet)?;
    let [peer_after, other_after] = at_end.ratios(&quiet)?;
    let mbit_s = |period: &Period| period.rates.map(|rate| shown(rate * 8e-6)).join(" and ");
    let detail = format!(
        "{} MiB compared; Mbit/s by rings, with the attacker's peer and of the other pair: {} beside garbage, {} beside \
         honest transfers, {} beside an idle attacker, {} after the garbage; the attacker itself: {} beside garbage, {} \
         in honest transfers",
        shown((with_peer.bytes + other.bytes) / 1_048_576.0),
        mbit_s(&beside),
        mbit_s(&honest),
        mbit_s(&quiet),
        mbit_s(&at_end),
        shown(beside.of_attacker * 8e-6),
        shown(honest.of_attacker * 8e-6)
    );
    let figures = [
        bad,
        with_peer.exact,
        other.exact,
        of_honest,
        other_of_quiet.min(other_of_honest),
        at_end.by_rings,
        peer_after.min(other_after),
        of_quiet,
    ];
    results.record("QP8-neighbours", figures, detail);
    let seen = searched_before.places + searched_after.places;
    let behind = searched_before.behind + searched_after.behind;
    results.record("QP8-secret", [seen, behind, of_owner.places], "");
    let died = f64::from(u8::from(before.0 != after.0 && !lab.machine().is_stand_in()));
    let detail = format!("{} MiB before, {} after", shown(before.1), shown(after.1));
    results.record("QP8-fabric", [died, after.1 - before.1], detail);
    Ok(())
}

fn start(lab: &mut Lab) -> Measured<()> {
    let programs = [tcp_transfer(lab)?, lab.example("taut-queue-pair", "queue_pair_probe")?];
    lab.start_lan(DaemonOptions::default())?;
    let mut map = String::new();
    for cid in [ATTACKER, PEER, OWNER, LAST] {
        map += &format!("10.82.0.{cid}:* -> cid {cid}\n");
    }
    let boot = image(lab, NEWEST, &(map + "listen *\nrings on\npatience 5000 ms\n"), &programs)?;
    for (name, cid, domains) in [
        ("attacker", ATTACKER, "\"attacked\""),
        ("peer", PEER, "\"attacked\""),
        ("owner", OWNER, "\"attacked\", \"quiet\""),
        ("last", LAST, "\"quiet\""),
    ] {
        let vmci = format!("domains = [{domains}]\nqueue_pairs = \"16MiB\"");
        let guest = Guest { name, cid, boot: &boot, vmci: &vmci };
        guest.start(lab)?;
        guest.has_queue_pairs(lab)?;
    }
    Ok(())
}

/// Starts transfers of the owner of the secret with the attacker's peer, and with another guest.
fn start_neighbours(lab: &mut Lab) -> Measured<()> {
    let mut lines = "rm -f go\n".to_owned();
    for cid in [PEER, LAST] {
        lines += &format!(
            "{PRELOADED} tcp_transfer connect 10.82.0.{cid}:7000 --seed {cid}000 --bytes 4194304 --secret {SECRET} \
             --until /tmp/go >out-{cid} 2>said-{cid} &\nuntil grep -q 'in channel' said-{cid}; do sleep 0.2; done\n"
        );
    }
    shell(lab, "owner", &lines).map(drop)
}

/// Bytes of the neighbours at a time.
struct Moved {
    /// Seconds since some moment.
    at: f64,
    /// Bytes by rings: of the owner with the attacker's peer, and of the other pair.
    by_rings: [f64; 2],
    /// Bytes of the owner by rings and by packets.
    all: f64,
    /// Bytes of the attacker by rings.
    of_attacker: f64,
}

impl Moved {
    fn now(lab: &mut Lab) -> Measured<Self> {
        let mut of = |vm: &str| lab.vm_show(vm)?.at("status.vmci.counters");
        let (owner, last, attacker) = (of("owner")?, of("last")?, of("attacker")?);
        let rings = |of: &Doc| Measured::Ok(of.number("ring_rx_bytes")? + of.number("ring_tx_bytes")?);
        let (of_both, of_other) = (rings(&owner)?, rings(&last)?);
        let all = owner.number("rx_bytes")? + owner.number("tx_bytes")?;
        let by_rings = [of_both - of_other, of_other];
        Ok(Self { at: lab.now().as_secs_f64(), by_rings, all, of_attacker: rings(&attacker)? })
    }
}

/// A period, and the bytes that the neighbours moved in it.
#[derive(Debug)]
struct Period {
    /// Bytes by rings in a second, of each pair.
    rates: [f64; 2],
    /// Share of the owner's bytes that went by rings.
    by_rings: f64,
    /// Bytes of the attacker by rings in a second.
    of_attacker: f64,
}

impl Period {
    /// Measures a period of fixed length. The caller decides what the attacker does meanwhile.
    fn measure(lab: &mut Lab) -> Measured<Self> {
        let begin = Moved::now(lab)?;
        lab.sleep(lab.pick(10.0, 3.0))?;
        Self::since(lab, &begin)
    }

    fn since(lab: &mut Lab, begin: &Moved) -> Measured<Self> {
        Self::between(begin, &Moved::now(lab)?)
    }

    fn between(begin: &Moved, end: &Moved) -> Measured<Self> {
        let bytes = [0, 1].map(|pair| end.by_rings[pair] - begin.by_rings[pair]);
        let seconds = end.at - begin.at;
        require(seconds > 0.0, "no time has passed")?;
        let by_rings = bytes.iter().sum::<f64>() / (end.all - begin.all).max(1.0);
        let of_attacker = (end.of_attacker - begin.of_attacker) / seconds;
        Ok(Self { rates: bytes.map(|bytes| bytes / seconds), by_rings, of_attacker })
    }

    /// Returns the ratio of each pair's rate to its rate in another period.
    fn ratios(&self, other: &Self) -> Measured<[f64; 2]> {
        require(other.rates.iter().all(|rate| *rate > 0.0), "a pair moved nothing by rings")?;
        Ok([0, 1].map(|pair| self.rates[pair] / other.rates[pair]))
    }
}

/// Outcome of a neighbour's transfers.
struct Transfers {
    exact: f64,
    bad: f64,
    bytes: f64,
}

impl Transfers {
    fn of(text: &Text) -> Measured<Self> {
        let exact = text.number_between("transfers: ", " exact,")?;
        let wrong = text.number_between(" exact, ", " wrong,")?;
        let failed = text.number_between(" wrong, ", " failed,")?;
        Ok(Self { exact, bad: wrong + failed, bytes: text.number_between(" failed, ", " bytes,")? })
    }
}

/// Ends the neighbours' transfers.
fn end_neighbours(lab: &mut Lab) -> Measured<[Transfers; 2]> {
    shell(lab, "owner", ">go")?;
    let end = |lab: &mut Lab, cid: u32| {
        let wait = format!("until grep -q transfers: out-{cid}; do sleep 0.2; done\ncat out-{cid}");
        Transfers::of(&shell(lab, "owner", &wait)?)
    };
    Ok([end(lab, PEER)?, end(lab, LAST)?])
}

/// Measures the neighbours while clients in the attacker's guest transfer without garbage, on as
/// many connections as in [`attack`]. Their transfers are shorter, so that the last one ends soon.
fn beside_transfers(lab: &mut Lab, client: &str) -> Measured<Period> {
    let transfer = format!("{client} --connections 4 --bytes {SHORT} >out 2>>said || break");
    let begin = format!(
        "rm -f clean finished\n(while [ ! -e clean ]; do {transfer}; done; >finished) >/dev/null 2>&1 &\nsleep 2"
    );
    shell(lab, "attacker", &begin)?;
    let period = Period::measure(lab)?;
    let last = shell(lab, "attacker", ">clean\nuntil [ -e finished ]; do sleep 0.2; done\ncat out")?;
    let exact = last.number_between("transfers: ", " exact")?;
    require(lab.machine().is_stand_in() || exact >= 4.0, "honest transfers of the attacker have failed")?;
    let is_by_rings = lab.machine().is_stand_in() || period.of_attacker > 0.0;
    require(is_by_rings, "honest transfers of the attacker did not go by rings")?;
    Ok(period)
}

/// Writes garbage while clients in the same guest transfer one after the other. Returns what both
/// have printed.
fn attack(lab: &mut Lab, client: &str, rounds: u32) -> Measured<Text> {
    // The library's messages about a client that hung tell how each of its connections went.
    let lines = format!(
        "rm -f clean\n\
         while [ ! -e clean ]; do {client} --connections 4 --bytes {LONG} >>own 2>said\n\
         status=$?\necho \"client: ended with $status.\" >>own\n\
         if [ $status = 124 ]; then while read -r line; do echo \"hung: $line\"; done <said >>own; fi\ndone &\n\
         sleep 1\nqueue_pair_probe garbage {DEVICE} {rounds} {ATTACKER}\nstatus=$?\n>clean\nwait\ncat own\n\
         [ $status = 0 ]"
    );
    shell_within(lab, "attacker", 7200, &lines)
}

/// What a program finds in all that it can map.
struct Found {
    places: f64,
    behind: f64,
}

fn search(lab: &mut Lab, vm: &str) -> Measured<Found> {
    let secret = &SECRET[..SECRET_LEN];
    let text = shell(lab, vm, &format!("queue_pair_probe search {DEVICE} {secret}"))?;
    let places = text.number_between("search: ", " places")?;
    let pages = text.number_between("places, ", " of ")?;
    let all = text.number_between(" of ", " pages read")?;
    // A stand-in has another number for each.
    require(lab.machine().is_stand_in() || pages >= all, "not all pages of the device were read")?;
    Ok(Found { places, behind: text.number_between("pages read, ", " pages behind")? })
}

/// Counts the events about the attacker that name a fault of its queue pairs.
fn faults(events: &[Doc]) -> Measured<f64> {
    let mut count = 0.0;
    for event in events {
        let of_attacker = event.matches(&[("subject", "vm/attacker/vmci"), ("kind", "vmci.violation")]);
        if of_attacker && event.text("message")?.contains("because of its queue pair") {
            count += 1.0;
        }
    }
    Ok(count)
}

/// The fabric's own memory in MiB.
fn fabric_mib(lab: &mut Lab) -> Measured<f64> {
    let pid = lab.fabric_pid()?;
    Ok(lab.usage(pid)?.memory / 1024.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn transfers_are_read_or_missing() {
        let text = Text::from("exact: x\ntransfers: 7 exact, 1 wrong, 2 failed, 700 bytes, 5 Mbit/s\n");
        let found = Transfers::of(&text).unwrap();
        assert_eq!([found.exact, found.bad, found.bytes].map(|number| number as u32), [7, 3, 700]);
        assert!(Transfers::of(&Text::from("holding\n")).is_err());
    }

    #[test]
    fn rates_of_each_pair_are_compared() {
        let moved = |at: f64, by_rings: [f64; 2], all: f64| Moved { at, by_rings, all, of_attacker: at };
        let begin = moved(10.0, [0.0, 100.0], 100.0);
        let quiet = Period::between(&begin, &moved(12.0, [200.0, 500.0], 700.0)).unwrap();
        assert!((quiet.by_rings - 1.0).abs() < 1e-9 && (quiet.rates[1] - 200.0).abs() < 1e-9, "{quiet:?}");
        let beside = Period::between(&begin, &moved(14.0, [100.0, 900.0], 1900.0)).unwrap();
        let [with_peer, other] = beside.ratios(&quiet).unwrap();
        assert!((with_peer - 0.25).abs() < 1e-9 && (other - 1.0).abs() < 1e-9, "{beside:?}");
        assert!((beside.by_rings - 0.5).abs() < 1e-9, "{beside:?}");
        let stalled = Period::between(&begin, &moved(12.0, [0.0, 100.0], 100.0)).unwrap();
        let sum: f64 = stalled.ratios(&quiet).unwrap().into_iter().sum();
        assert!(sum + stalled.by_rings < 1e-9, "{stalled:?}");
        quiet.ratios(&stalled).unwrap_err();
        assert!(Period::between(&begin, &begin).is_err(), "no time");
    }

    #[test]
    fn events_about_the_attacker_are_counted() {
        let event = |subject: &str, kind: &str, message: &str| {
            Doc::from(json!({"subject": subject, "kind": kind, "message": message}))
        };
        let why = "a connection is reset because of its queue pair: the ring has 5 bytes";
        let events = [
            event("vm/attacker/vmci", "vmci.violation", why),
            event("vm/attacker/vmci", "vmci.violation", "a packet with another source"),
            event("vm/peer/vmci", "vmci.violation", why),
            event("vm/attacker/vmci", "vmci.stalled", why),
        ];
        assert_eq!(faults(&events).unwrap() as u32, 1);
    }
}
