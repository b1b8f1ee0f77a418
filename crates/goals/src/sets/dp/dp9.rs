//! DP9: a private network behind a firewall VM (Debian's kernel with nftables), with intruders on
//! every kind of port in it: sniffing, forged addresses, stacked tags, foreign ARP, random frames.
//! The test of the same name does it, with a given number of frames.

use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::{Measured, NotMeasured};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "DP9",
    what: "intruders in a private network behind a firewall",
    on: "a firewall VM with Debian's kernel, and raw ports",
    goals: &[Goal::new(
        "DP9",
        &[
            Bound::Exactly(0.0, "seen outside"),
            Bound::Exactly(0.0, "in other VLANs"),
            Bound::Exactly(0.0, "of outside's frames seen by intruders"),
            Bound::Exactly(0.0, "of others' frames seen by intruders"),
            Bound::AtLeast(100.0, "% of the frames that each intruder was to send"),
        ],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let frames: u32 = lab.pick(1_000_000, 20_000);
    let words = "test -q -p taut-tests --test guest isolation -- --nocapture --include-ignored";
    let command = lab.in_checkout("cargo").args(words).record("isolation");
    let command = command.env("TAUT_ISOLATION_FRAMES", frames.to_string());
    let ended = lab.machine().run(&command)?;
    // The test prints the line when everything but these counts has been asserted.
    let Ok(line) = ended.stdout.between("ISOLATION ", "") else {
        ended.success()?;
        return Err(NotMeasured::because("the test printed no result"));
    };
    let count = |name: &str| ended.stdout.number_between(&format!(" {name}="), " ");
    let seen = [count("outside")?, count("neighbours")?, count("inside")?, count("sniffed")?];
    let sent = 100.0 * count("sent")? / f64::from(frames);
    // A test that fails although its counts are right found something else.
    if seen.iter().all(|count| *count == 0.0) {
        ended.clone().success()?;
    }
    let [outside, neighbours, inside, sniffed] = seen;
    results.record("DP9", [outside, neighbours, inside, sniffed, sent], line);
    Ok(())
}
