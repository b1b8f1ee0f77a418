//! PG7: samples of a month, of a process that is killed, and on a full disk.

use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::machine::{Command, Doc};
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PG7",
    what: "size of the file after 30 days of ports that are all busy; samples that a killed process has not written; \
           samples on a full disk",
    on: "`taut-history` alone, on a clock that the program drives: 1,000 ports of 10 Gbit/s with 14 counters each",
    goals: &[
        Goal::new(
            "PG7-month",
            &[
                Bound::AtMost(2.0, "GiB at most"),
                Bound::Stated("MiB a port"),
                Bound::Exactly(0.0, "averages wrong"),
            ],
        ),
        Goal::new(
            "PG7-kills",
            &[
                Bound::AtMost(5.0, "s lost at most"),
                Bound::Exactly(0.0, "subjects without older samples"),
                Bound::AtLeast(50.0, "kills"),
            ],
        ),
        Goal::new(
            "PG7-full",
            &[
                Bound::AtLeast(1.0, "writes refused"),
                Bound::Exactly(0.0, "subjects without older samples"),
                Bound::Exactly(0.0, "subjects without samples of meanwhile"),
            ],
        ),
    ],
    run,
};

const GIB: f64 = (1_u64 << 30) as f64;
const MIB: f64 = (1 << 20) as f64;

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let program = lab.example("taut-history", "endure")?;
    let folder = lab.folder().join("history");
    lab.machine().make_folder(&folder)?;
    let endure = |lab: &mut Lab, verb: &str, words: &str| -> Measured<Doc> {
        let command = Command::new(&program).args(verb).arg(&folder).args(words);
        lab.run(&command.limit(3600).record(verb))?.stdout.json()
    };

    let kills = lab.pick(50, 5);
    let found = endure(lab, "kills", &kills.to_string())?;
    let values = [found.number("longest_lost_s")?, found.number("older_lost")?, found.number("kills")?];
    results.record(
        "PG7-kills",
        values,
        format!("{} s recorded, 100 subjects", shown(found.number("recorded")?)),
    );

    let (ports, days) = lab.pick((1000, 30), (10, 2));
    let found = endure(lab, "month", &format!("{ports} {days}"))?;
    let is_whole = found.count("subjects")? == ports && found.count("days")? == days;
    require(is_whole || lab.machine().is_stand_in(), "the program lost count")?;
    let most = found.number("most_bytes")?;
    let detail = format!(
        "{} GiB at the end; took {} s",
        shown(found.number("bytes")? / GIB),
        shown(found.number("seconds")?)
    );
    let values = [most / GIB, most / (MIB * found.number("subjects")?), found.number("wrong")?];
    results.record("PG7-month", values, detail);

    lab.mount_tmpfs(&folder, 64)?;
    let found = endure(lab, "full", "")?;
    let number = |name: &str| found.number(name);
    let values =
        [number("failed_while_full")?, number("older_lost")? + number("lost_after")?, number("newer_lost")?];
    let others = number("failed_before")? + number("failed_after")?;
    require(others == 0.0 || lab.machine().is_stand_in(), "writes failed although there was room")?;
    results.record("PG7-full", values, "five minutes before, on, and after the full disk");
    Ok(())
}
