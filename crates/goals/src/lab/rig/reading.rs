//! Readings: the medians of a sample's repeats.

use serde_json::{Map, Value, json};

use crate::figure::{median, shown};
use crate::machine::Doc;
use crate::reason::{Measured, NotMeasured};
use crate::rounds::{Rounds, State};

/// Percentage of looks at which the ring has to be full, so that the switch is the limit.
const FULL: f64 = 90.0;

/// Percentiles of a traversal in ns.
const PERCENTILES: [&str; 5] = ["p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "p99_99_ns"];

/// Returns the medians of the repeats of a `taut bench switch` result.
pub(super) fn of_repeats(result: &Doc, is_traversal: bool) -> Measured<Doc> {
    let repeats = result.list("repeats")?;
    let first = repeats.first().ok_or_else(|| NotMeasured::because("`repeats` is empty"))?;
    let mut reading = Map::new();
    let mut put = |field: &str| -> Measured<()> {
        let (path, name) = field.rsplit_once('.').unwrap_or(("", field));
        let value = median(&result.numbers("repeats", field)?)?;
        if path.is_empty() {
            reading.insert(name.to_owned(), json!(value));
        } else if let Some(inner) = reading.entry(path).or_insert_with(|| json!({})).as_object_mut() {
            inner.insert(name.to_owned(), json!(value));
        }
        Ok(())
    };
    if is_traversal {
        // Not every generator knows the last one.
        for percentile in PERCENTILES.iter().map(|name| format!("traversal.{name}")) {
            if first.has(&percentile) {
                put(&percentile)?;
            }
        }
        put("traversal.count")?;
        put("traversal.lost")?;
    } else {
        put("sent_mpps")?;
        put("mpps")?;
        // Not every generator looks at its ring, or copies.
        for field in ["ring_full_percent", "memcpy_gbyte_s", "memcpy_bytes"] {
            if first.has(field) {
                put(field)?;
            }
        }
    }
    Ok(Doc::from(Value::Object(reading)))
}

/// Returns the state of the machine by the probes before and after each repeat.
pub(super) fn state_of(result: &Doc) -> Measured<State> {
    let mut round_trips = result.numbers("repeats", "probe_ns.0")?;
    round_trips.extend(result.numbers("repeats", "probe_ns.1")?);
    Ok(State::of_round_trips(&round_trips))
}

/// Says whether the switch was the limit of a cell's throughput: its ring was full in at least 90 %
/// of the generator's looks.
pub fn limit(rounds: &Rounds, cell: &str) -> String {
    let Ok(full) = rounds.figures(cell, "ring_full_percent").and_then(|full| median(&full)) else {
        return format!("{cell}: the generator does not tell whether the switch was the limit");
    };
    let limit = if full >= FULL { "switch" } else { "generator" };
    format!("{cell}: ring full in {} % of looks, the {limit} was the limit", shown(full.round()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::{Plan, Sample};

    fn result(full: f64) -> Doc {
        let repeat = |mpps: f64| json!({"probe_ns": [100.0, 110.0], "sent_mpps": mpps, "mpps": mpps, "ring_full_percent": full});
        Doc::from(json!({"repeats": [repeat(9.0), repeat(30.0), repeat(29.0)]}))
    }

    #[test]
    fn a_reading_is_the_median_of_the_repeats() {
        let reading = of_repeats(&result(95.0), false).unwrap();
        assert_eq!(reading.number("mpps"), Ok(29.0));
        assert_eq!(state_of(&result(95.0)), Ok(State::Near));
        assert!(of_repeats(&Doc::from(json!({"repeats": []})), false).is_err());
        let without = json!({"repeats": [{"sent_mpps": 1, "mpps": null, "ring_full_percent": 99}]});
        assert!(of_repeats(&Doc::from(without), false).is_err());
    }

    #[test]
    fn percentiles_of_traversals_keep_their_place() {
        let traversal = json!({"count": 9, "lost": 0, "p50_ns": 230, "p90_ns": 1, "p99_ns": 2, "p99_9_ns": 3, "p99_99_ns": 4});
        let result = Doc::from(json!({"repeats": [{"probe_ns": [1, 2], "traversal": traversal}]}));
        let reading = of_repeats(&result, true).unwrap();
        assert_eq!(reading.number("traversal.p50_ns"), Ok(230.0));
        assert_eq!(reading.number("traversal.p99_99_ns"), Ok(4.0));
    }

    #[test]
    fn a_ring_that_is_not_full_shows_that_the_generator_was_the_limit() {
        for (full, limit_was) in [(89.0, "generator"), (90.0, "switch"), (99.6, "switch")] {
            let rounds = Rounds::take(Plan::exactly(1), &["taut"], None, |_| {
                let doc = of_repeats(&result(full), false)?;
                Ok(Sample { state: State::Near, doc })
            });
            let said = limit(&rounds.unwrap(), "taut");
            assert!(said.contains(&format!("the {limit_was} was the limit")), "{said}");
        }
        let rounds = Rounds::take(Plan::exactly(1), &["taut"], None, |_| {
            Ok(Sample { state: State::Near, doc: Doc::from(json!({"mpps": 3.0})) })
        });
        assert!(limit(&rounds.unwrap(), "taut").contains("does not tell"));
    }
}
