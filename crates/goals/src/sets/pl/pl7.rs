//! PL7: properties of the plan on random hosts and VMs (tests of the plan), and the time for a
//! large plan: of VMs that all fit on 256 pCPUs, of 1,000 VMs that all fit on 4,096 pCPUs, and of
//! 1,000 VMs on 256 pCPUs, most of which find no place.

use crate::figure::{Bound, Value, shown};
use crate::lab::Lab;
use crate::machine::{Command, Text};
use crate::reason::{Measured, NotMeasured};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "PL7",
    what: "properties of the plan, and the time for a large one",
    on: "described hosts",
    goals: &[
        Goal::new("PL7-properties", &[Bound::Above(0.0, "tests passed")]),
        Goal::new("PL7-fits", &[Bound::Below(50.0, "ms at most"), Bound::Exactly(0.0, "VMs not placed")]),
        Goal::new("PL7-wide", &[Bound::Stated("ms at most"), Bound::Exactly(0.0, "VMs not placed")]),
        Goal::new("PL7-crowded", &[Bound::Below(50.0, "ms at most"), Bound::Above(0.0, "VMs placed")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let outcome = properties(lab, results);
    results.settle(&["PL7-properties"], outcome);
    let program = lab.example("taut-plan", "placement")?;
    let text = lab.run(&Command::new(program).record("placement"))?.stdout;
    lab.note(text.as_str());
    for (goal, case) in [("PL7-fits", "fits"), ("PL7-wide", "wide")] {
        let case = Case::read(&text, case)?;
        let detail = format!("{}, {} placed", case.what, shown(case.placed));
        results.record(goal, [case.slowest, case.refused.into()], detail);
    }
    let crowded = Case::read(&text, "crowded")?;
    let refused = shown(crowded.refused);
    let detail = format!("{}, {refused} refused", crowded.what);
    results.record("PL7-crowded", [crowded.slowest, crowded.placed.into()], detail);
    Ok(())
}

fn properties(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    // An optimised build, because the number of cases counts.
    let cases = lab.pick("1000000", "20000");
    let command = lab
        .in_checkout("cargo")
        .args("test -q --release -p taut-plan --lib -- placement:: admission:: explain::")
        .env("TAUT_PLAN_CASES", cases)
        .record("properties");
    let passed = lab.tests(&command)?.passed;
    let what = "no pCPU with two owners, host never without, reservations within capacity, the same again";
    results.record("PL7-properties", [passed], format!("{cases} cases of each property: {what}"));
    Ok(())
}

/// What the example printed about a case.
struct Case {
    /// Longest time in ms.
    slowest: Value,
    /// VMs and pCPUs of the first plan.
    what: String,
    /// VMs of the first plan that were placed.
    placed: f64,
    /// VMs that were refused in any plan, at most.
    refused: f64,
}

impl Case {
    /// Reads lines such as `fits, again: 100 VMs on 256 pCPUs in 1.2 ms: 100 granted, 0 short`.
    fn read(text: &Text, case: &str) -> Measured<Self> {
        let lines = text.all_between(&format!("{case}, "), " short");
        let lines: Vec<Text> = lines.iter().map(|line| Text::from(format!("{line} short"))).collect();
        let first = lines.first().ok_or_else(|| NotMeasured::because(format!("no line of {case}")))?;
        let each = |before: &str, after: &str| -> Measured<Vec<f64>> {
            lines.iter().map(|line| line.number_between(before, after)).collect()
        };
        Ok(Self {
            slowest: Value::greatest(&each(" in ", " ms")?)?,
            what: first.between(": ", " in ")?,
            placed: first.number_between("ms: ", " granted")?,
            refused: Value::greatest(&each("granted, ", " short")?)?.value,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_from_their_lines() {
        let text = Text::from(
            "fits, from nothing: 100 VMs on 256 pCPUs in 2.5 ms: 100 granted, 0 short\n\
             fits, again: 100 VMs on 256 pCPUs in 0.5 ms: 100 granted, 0 short\n\
             crowded, from nothing: 1000 VMs on 256 pCPUs in 9.0 ms: 250 granted, 750 short\n",
        );
        let fits = Case::read(&text, "fits").unwrap();
        assert_eq!((fits.slowest.value, fits.placed, fits.refused), (2.5, 100.0, 0.0));
        assert_eq!(fits.what, "100 VMs on 256 pCPUs");
        let crowded = Case::read(&text, "crowded").unwrap();
        assert_eq!((crowded.placed, crowded.refused), (250.0, 750.0));
        assert!(Case::read(&text, "other").is_err());
        assert!(Case::read(&Text::from("fits, again: it failed"), "fits").is_err());
    }
}
