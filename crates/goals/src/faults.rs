//! Every row of every set under faults: a bench that fails, a stale file, `null`, NaN, a missing
//! rival. None may return `met`.

use std::path::Path;

use crate::figure::Verdict;
use crate::lab::Setup;
use crate::machine::stand_in::{Fault, StandIn};
use crate::row::{Outcome, Row};
use crate::run::run_row;
use crate::sets;

fn setup(quick: bool) -> Setup {
    let folder = |name: &str| Path::new("/nowhere").join(name);
    Setup { programs: folder("bin"), images: folder("images"), checkout: folder("checkout"), quick }
}

fn rows() -> impl Iterator<Item = &'static Row> {
    sets::ALL.iter().flat_map(|set| set.rows.iter().copied())
}

/// Runs a row in full: some rows do not run at all when they are shortened.
fn drive(machine: &mut StandIn, row: &Row) -> Vec<Outcome> {
    run_row(machine, &setup(false), row, Path::new("/nowhere/results"))
}

fn met(outcomes: &[Outcome]) -> Vec<String> {
    outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Met).map(Outcome::to_string).collect()
}

#[test]
fn on_a_healthy_machine_every_row_measures_something() {
    // The other tests say nothing about a row that never comes to its bench.
    let mut silent = Vec::new();
    for row in rows() {
        let outcomes = drive(&mut StandIn::healthy(), row);
        assert_eq!(outcomes.len(), row.goals.len(), "{}", row.id);
        let is_measured = |outcome: &Outcome| !matches!(outcome.verdict, Verdict::NotMeasured(_));
        if !outcomes.iter().any(is_measured) {
            silent.extend(outcomes.iter().map(Outcome::to_string));
        }
    }
    assert!(silent.is_empty(), "nothing is measured:\n{}", silent.join("\n"));
}

#[test]
fn no_row_is_met_when_its_benches_have_a_fault() {
    let mut flattered = Vec::new();
    for row in rows() {
        for fault in Fault::ALL {
            let mut machine = StandIn::new(fault, 0, true);
            let outcomes = drive(&mut machine, row);
            // The next test drives the rows that ask taut itself and run no bench.
            if machine.faults > 0 {
                flattered.extend(met(&outcomes).into_iter().map(|line| format!("{fault:?}: {line}")));
            }
        }
    }
    // `make goals SET=HM ROWS=HM1` reads this line.
    println!("faults: {} rows driven, {} met under fault", rows().count(), flattered.len());
    assert!(flattered.is_empty(), "{}", flattered.join("\n"));
}

#[test]
fn no_row_is_met_when_every_program_has_a_fault() {
    for row in rows() {
        for fault in Fault::ALL {
            let outcomes = drive(&mut StandIn::new(fault, 0, false), row);
            assert!(met(&outcomes).is_empty(), "{fault:?}:\n{}", met(&outcomes).join("\n"));
        }
    }
}

#[test]
fn no_goal_is_met_after_the_moment_of_a_fault() {
    for row in rows() {
        for from in 1..40 {
            // A goal that is met although every bench fails from then on was measured before.
            let before = met(&drive(&mut StandIn::new(Fault::FailsSilently, from, true), row)).len();
            for fault in Fault::ALL {
                let after = met(&drive(&mut StandIn::new(fault, from, true), row));
                assert!(after.len() <= before, "{fault:?} from bench {from} on:\n{}", after.join("\n"));
            }
        }
    }
}

#[test]
fn no_goal_is_met_without_its_rival() {
    for row in rows() {
        let mut machine = StandIn::healthy();
        machine.has_rivals = false;
        for (outcome, goal) in drive(&mut machine, row).iter().zip(row.goals) {
            if let Some(rival) = goal.beside.first() {
                let reason = outcome.reason.clone().unwrap_or_default();
                assert!(reason.contains(&rival.to_string()), "{outcome}");
            }
        }
    }
}
