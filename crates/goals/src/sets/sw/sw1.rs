//! SW1: taut's switch beside OVS-DPDK, DPDK's vhost and a Linux bridge, with each generator that is
//! there. Writes every sample with its machine, from which `docs/performance.md` is made.

use serde_json::{Map, Value, json};

use super::cells::cells;
use super::machine::{describe, file_name};
use crate::figure::{Bound, Value as Figure};
use crate::lab::Lab;
use crate::lab::rig::{Cell, Pace};
use crate::machine::Doc;
use crate::reason::{Measured, require};
use crate::rounds::{Plan, State};
use crate::row::{Goal, Results, Row};

pub(super) const ROW: Row = Row {
    id: "SW1",
    what: "every sample for docs/performance.md",
    on: "each switch on CPU 0, the generator on CPU 1, all with the same priority",
    goals: &[Goal::new("SW1", &[Bound::Above(0.0, "samples"), Bound::Stated("cells left out")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (rounds, repeats, seconds) = lab.pick((3, 3, 0.5), (1, 2, 0.3));
    let machine = describe(lab);
    let pace = Pace { repeats, seconds, plan: Plan::exactly(rounds) };
    let cells = cells(lab);
    let (mut samples, mut left_out) = (Vec::new(), 0);
    lab.with_rig_at(pace, |lab, rig| {
        for round in 1..=rounds {
            for cell in &cells {
                lab.note(format!("round {round} of {rounds}: {}", cell.label()));
                // A switch that has just started may need a second attempt.
                let result = rig.load(lab, cell).or_else(|_| rig.load(lab, cell));
                match result.and_then(|result| taken(&result, cell, round)) {
                    Ok(repeats) => samples.extend(repeats),
                    Err(reason) => {
                        lab.note(format!("left out: {reason}"));
                        left_out += 1;
                    }
                }
            }
        }
        Ok(())
    })?;
    require(!samples.is_empty(), "no cell was measured")?;
    let lines: Vec<String> = samples.iter().map(Value::to_string).collect();
    // One sample a line, so that two files can be compared.
    let text = format!("{{\"machine\": {machine},\n \"samples\": [\n{}\n]}}\n", lines.join(",\n"));
    let path = lab.keep(&format!("{}.json", file_name(&machine)), &text)?;
    let figures = [Figure::count(samples.len()), Figure::count(left_out)];
    results.record("SW1", figures, path.display());
    Ok(())
}

/// Returns each repeat of a result as a sample, with its load and the machine's state.
fn taken(result: &Doc, cell: &Cell, round: usize) -> Measured<Vec<Value>> {
    let mut common = Map::new();
    if let Some(fields) = result.value().as_object() {
        common.extend(fields.clone().into_iter().filter(|(name, _)| name != "repeats"));
    }
    common.insert("cell".to_owned(), json!(cell.label()));
    common.insert("switch".to_owned(), json!(cell.switch.to_string()));
    common.insert("generator".to_owned(), json!(cell.generator.name()));
    common.insert("round".to_owned(), json!(round));
    let mut samples = Vec::new();
    for repeat in result.list("repeats")? {
        let state = State::of_round_trips(&[repeat.number("probe_ns.0")?, repeat.number("probe_ns.1")?]);
        let mut sample = common.clone();
        if let Some(fields) = repeat.value().as_object() {
            sample.extend(fields.clone());
        }
        sample.insert("state".to_owned(), json!(state.to_string()));
        samples.push(Value::Object(sample));
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::rig::{Generator, Switch};

    #[test]
    fn each_repeat_is_a_sample_with_its_load_and_state() {
        let repeat = |probe: f64| json!({"probe_ns": [probe, probe], "mpps": 30.0});
        let result = json!({"mode": "one-way", "size": 64, "repeats": [repeat(100.0), repeat(900.0)]});
        let cell = Cell::new("", Switch::taut(), Generator::Taut, "one-way 64");
        let samples = taken(&Doc::from(result), &cell, 2).unwrap();
        let expected = json!({
            "cell": "taut taut one-way 64", "switch": "taut", "generator": "taut", "round": 2, "mode": "one-way",
            "size": 64, "probe_ns": [900.0, 900.0], "mpps": 30.0, "state": "far"
        });
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[1], expected);
        let without = json!({"repeats": [{"probe_ns": [null, 1], "mpps": 3}]});
        assert!(taken(&Doc::from(without), &cell, 1).is_err());
    }
}
