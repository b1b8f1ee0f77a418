//! Lines about settings that are files: one per host, or one per pCPU.

use std::collections::BTreeMap;

use taut_api::check::{Change, Knob};
use taut_api::word::plural;

use super::line::{Item, Line, Verdict};

/// A line about knobs that must each have one of the `wanted` values. `--apply` sets the others to
/// the first wanted value that they offer. Without knobs the verdict is unknown, and `absent` is
/// printed as the value found.
pub(super) fn one_of(item: Item, knobs: &[Knob], wanted: &[&str], miss: Verdict, absent: &str) -> Line {
    let choose = |knob: &Knob| {
        let offered =
            |value: &&&str| knob.choices.is_empty() || knob.choices.iter().any(|choice| choice == **value);
        wanted.iter().find(offered).map(|value| (*value).to_owned())
    };
    let is_wanted = |knob: &Knob| wanted.contains(&knob.value.as_str());
    line(item, knobs, is_wanted, choose, &wanted.join(" or "), miss, absent)
}

/// A line about a knob that is a number and must be at most `most`; `--apply` sets it to `most`.
pub(super) fn at_most(item: Item, knob: Option<&Knob>, most: i64, miss: Verdict, absent: &str) -> Line {
    let is_wanted = |knob: &Knob| knob.value.parse::<i64>().is_ok_and(|value| value <= most);
    let wanted = if most == 0 { "0".to_owned() } else { format!("at most {most}") };
    line(item, as_slice(knob), is_wanted, |_| Some(most.to_string()), &wanted, miss, absent)
}

/// A line about a knob that is a number and must be at least `least`.
pub(super) fn at_least(item: Item, knob: Option<&Knob>, least: i64, miss: Verdict, absent: &str) -> Line {
    let is_wanted = |knob: &Knob| knob.value.parse::<i64>().is_ok_and(|value| value >= least);
    let wanted = format!("at least {least}");
    line(item, as_slice(knob), is_wanted, |_| Some(least.to_string()), &wanted, miss, absent)
}

/// A line that shows a value without judging it.
pub(super) fn any(item: Item, knob: Option<&Knob>, wanted: &str) -> Line {
    match knob {
        Some(knob) => item.line(Verdict::Ok, &knob.value, wanted),
        None => item.line(Verdict::Ok, "absent", wanted),
    }
}

/// An optional knob as a slice.
pub(super) fn as_slice(knob: Option<&Knob>) -> &[Knob] {
    knob.map_or(&[], std::slice::from_ref)
}

fn line(
    item: Item,
    knobs: &[Knob],
    is_wanted: impl Fn(&Knob) -> bool,
    choose: impl Fn(&Knob) -> Option<String>,
    wanted: &str,
    miss: Verdict,
    absent: &str,
) -> Line {
    if knobs.is_empty() {
        return item.unknown(absent, wanted);
    }
    let missed: Vec<_> = knobs.iter().filter(|knob| !is_wanted(knob)).collect();
    let verdict = if missed.is_empty() { Verdict::Ok } else { miss };
    let change = |knob: &&Knob| Some(Change::File { path: knob.path.clone(), value: choose(knob)? });
    let changes = missed.iter().filter_map(change).collect();
    Line { changes, ..item.line(verdict, found(knobs), wanted) }
}

/// The values of knobs: `performance` if all are equal, else `performance on 4, powersave on 28
/// pCPUs`.
pub(super) fn found(knobs: &[Knob]) -> String {
    let mut values: BTreeMap<&str, usize> = BTreeMap::new();
    for knob in knobs {
        *values.entry(&knob.value).or_default() += 1;
    }
    if let ([knob, ..], 1) = (knobs, values.len()) {
        return knob.value.clone();
    }
    let parts: Vec<_> = values.iter().map(|(value, count)| format!("{value} on {count}")).collect();
    let last = values.values().next_back().copied().unwrap_or_default();
    format!("{} {}", parts.join(", "), plural(last, "pCPU"))
}

#[cfg(test)]
mod tests {
    use super::super::line::TakesEffect;
    use super::*;

    const ITEM: Item =
        Item { id: "a.b", what: "what", why: "why", effect: "effect", takes_effect: TakesEffect::Live };

    fn knob(path: &str, value: &str, choices: &[&str]) -> Knob {
        let choices = choices.iter().map(|&choice| choice.to_owned()).collect();
        Knob { path: path.to_owned(), value: value.to_owned(), choices }
    }

    #[test]
    fn only_unwanted_values_change_and_only_to_offered_ones() {
        let knobs = [
            knob("a", "never", &["always", "never"]),
            knob("b", "always", &["always", "never"]),
            knob("c", "x", &["x"]),
        ];
        let line = one_of(ITEM, &knobs, &["madvise", "never"], Verdict::Bad, "absent");
        assert_eq!(line.verdict, Verdict::Bad);
        assert_eq!(line.found, "always on 1, never on 1, x on 1 pCPU");
        assert_eq!(line.changes, [Change::File { path: "b".into(), value: "never".into() }]);
        assert_eq!(one_of(ITEM, &[], &["a"], Verdict::Bad, "absent").verdict, Verdict::Unknown);
    }

    #[test]
    fn a_number_outside_its_bound_is_changed_to_the_bound() {
        let sixty = knob("swappiness", "60", &[]);
        let line = at_most(ITEM, Some(&sixty), 1, Verdict::Warn, "");
        assert_eq!((line.verdict, line.changes[0].to_string()), (Verdict::Warn, "swappiness = 1".to_owned()));
        assert_eq!(at_most(ITEM, Some(&sixty), 60, Verdict::Warn, "").verdict, Verdict::Ok);
        assert_eq!(at_least(ITEM, Some(&sixty), 61, Verdict::Warn, "").verdict, Verdict::Warn);
        assert_eq!(at_most(ITEM, Some(&knob("x", "word", &[])), 60, Verdict::Bad, "").verdict, Verdict::Bad);
    }
}
