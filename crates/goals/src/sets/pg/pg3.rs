//! PG3: what strangers on the network can do to the API.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::machine::Doc;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

/// Requests a second of the flood.
const RATE: f64 = 10_000.0;
/// Requests with a token that may come at once.
const BURST: f64 = 100.0;
/// Connections that are held open.
const HELD: f64 = 32.0;

pub(super) const ROW: Row = Row {
    id: "PG3",
    what: "access over TCP: writes as `view`, from other sites and without a token; connections that are held open; \
           a flood, and requests of others on the Unix socket beside it",
    on: "the loopback interface; the flood's own program runs at idle priority",
    goals: &[
        Goal::new(
            "PG3-refused",
            &[
                Bound::AtLeast(24.0, "writes of the API"),
                Bound::Exactly(0.0, "not 403 as view"),
                Bound::Exactly(0.0, "not 403 from another site"),
                Bound::Exactly(0.0, "not 401 without a valid token"),
                Bound::Exactly(0.0, "changes"),
            ],
        ),
        Goal::new(
            "PG3-slow",
            &[
                Bound::AtLeast(HELD, "connections closed"),
                Bound::Exactly(0.0, "left open"),
                Bound::AtMost(30.0, "s until the last one"),
            ],
        ),
        Goal::new(
            "PG3-flood",
            &[
                // The generator's pauses add up to a little more than they should.
                Bound::AtLeast(0.95 * RATE, "requests a second at least"),
                Bound::AtMost(60.0, "of them a second served"),
                Bound::AtLeast(1.0, "answered with 429"),
                Bound::Exactly(0.0, "answers of another kind"),
                Bound::AtMost(2.0, "times the p99 of others"),
            ],
        ),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let program = lab.example("taut-tests", "remote")?;
    let attack = |lab: &mut Lab, words: &str, name: &str| -> Measured<Doc> {
        let command = lab.in_checkout(program.clone()).args(words).limit(1800).record(name);
        lab.run(&command)?.stdout.json()
    };

    let found = attack(lab, "refusals", "refusals")?;
    let number = |name: &str| found.number(name);
    let values = [
        number("writes")?,
        number("view")?,
        number("forged")? + number("cross_site")?,
        number("missing")? + number("wrong")?,
        number("changed")?,
    ];
    results.record("PG3-refused", values, "each write in five ways");

    let found = attack(lab, "slow", "slow")?;
    let values = [found.number("closed")?, found.number("open")?, found.number("longest_s")?];
    results.record("PG3-slow", values, "no handshake, no request, half a head, half a body");

    let (rounds, seconds) = lab.pick((20_u64, 5_u64), (2, 2));
    let found = attack(lab, &format!("flood {rounds} {seconds} {RATE}"), "flood")?;
    require(
        found.count("rounds")? == rounds || lab.machine().is_stand_in(),
        "the program lost count of its rounds",
    )?;
    let number = |name: &str| found.number(name);
    // The first second may have a burst as well.
    let (good, refused) = (number("good")? - BURST * rounds as f64, number("refused")?);
    let served = good / (rounds as f64 * (seconds as f64 + 1.0));
    let values = [number("least_per_second")?, served.max(0.0), refused, number("others")?, number("ratio")?];
    let detail = format!("{rounds} rounds of {seconds} s; {} requests were sent", shown(number("sent")?));
    results.record("PG3-flood", values, detail);
    Ok(())
}
