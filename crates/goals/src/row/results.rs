//! Results of a row: one outcome for each goal that it declares.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::Goal;
use crate::figure::{Bound, Value, Verdict, judge, list};
use crate::reason::{Measured, NotMeasured};

/// Outcome of a goal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The goal.
    pub id: &'static str,
    /// Met, missed or not measured.
    pub verdict: Verdict,
    /// Reason, if it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its figures, in the order of the bounds.
    pub values: Vec<Value>,
    /// Bounds of the figures.
    pub bounds: &'static [Bound],
    /// Further words of the row about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// True if it was measured by a shortened run.
    pub quick: bool,
}

impl fmt::Display for Outcome {
    /// Writes the goal's line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GOAL {} ", self.id)?;
        if self.values.is_empty() {
            f.write_str("–")?;
        } else {
            write!(f, "{}", list(self.bounds, &self.values))?;
        }
        if !self.detail.is_empty() {
            write!(f, "; {}", self.detail)?;
        }
        let bounds: Vec<String> = self.bounds.iter().map(Bound::to_string).collect();
        write!(f, " ({}) ", bounds.join(", "))?;
        match &self.verdict {
            Verdict::Met => f.write_str("met")?,
            Verdict::Missed => f.write_str("missed")?,
            Verdict::NotMeasured(reason) => write!(f, "not measured: {reason}")?,
        }
        f.write_str(if self.quick { " [quick]" } else { "" })
    }
}

/// Results of a row while it runs.
#[derive(Debug)]
pub struct Results {
    goals: &'static [Goal],
    quick: bool,
    outcomes: BTreeMap<&'static str, Outcome>,
    /// Mistakes of the row itself, such as a goal that it does not declare.
    mistakes: Vec<String>,
    /// True if outcomes are printed when they are known.
    is_printing: bool,
}

impl Results {
    /// Makes the results of a row with these goals.
    pub fn new(goals: &'static [Goal], quick: bool) -> Self {
        Self { goals, quick, outcomes: BTreeMap::new(), mistakes: Vec::new(), is_printing: false }
    }

    /// Prints each outcome when it is known.
    #[must_use]
    pub fn printing(self) -> Self {
        Self { is_printing: true, ..self }
    }

    /// Records a goal's figures in the order of its bounds, with what else there is to say.
    pub fn record<V: Into<Value>>(
        &mut self,
        id: &str,
        values: impl IntoIterator<Item = V>,
        detail: impl fmt::Display,
    ) {
        let values: Vec<Value> = values.into_iter().map(Into::into).collect();
        let Some(goal) = self.goal(id) else { return };
        let verdict = judge(goal.bounds, &values);
        self.put(goal, verdict, values, detail.to_string());
    }

    /// Records that goals were not measured if `outcome` is an error. A row uses it for parts that
    /// do not depend on each other, and goes on.
    pub fn settle(&mut self, ids: &[&str], outcome: Measured<()>) {
        let Err(reason) = outcome else { return };
        for id in ids {
            // Goals that the part recorded before it failed were measured.
            if !self.outcomes.contains_key(id) {
                self.not_measured(id, &reason);
            }
        }
    }

    /// Records that a goal was not measured.
    pub fn not_measured(&mut self, id: &str, reason: &NotMeasured) {
        let Some(goal) = self.goal(id) else { return };
        self.put(goal, Verdict::NotMeasured(reason.reason().to_owned()), Vec::new(), String::new());
    }

    /// Returns true if the goal has an outcome already.
    pub fn has(&self, id: &str) -> bool {
        self.outcomes.contains_key(id)
    }

    /// Ends the row: goals without an outcome are not measured, for the row's error if it has one.
    /// A mistake of the row makes all of them not measured.
    pub fn finish(mut self, outcome: Measured<()>) -> Vec<Outcome> {
        let reason = outcome.err().unwrap_or_else(|| NotMeasured::because("the row recorded no figure"));
        for goal in self.goals {
            if !self.outcomes.contains_key(goal.id) {
                self.not_measured(goal.id, &reason);
            }
        }
        if !self.mistakes.is_empty() {
            let reason = NotMeasured::because(format!("mistake of the row: {}", self.mistakes.join(", ")));
            self.outcomes.clear();
            for goal in self.goals {
                self.not_measured(goal.id, &reason);
            }
        }
        self.goals.iter().filter_map(|goal| self.outcomes.remove(goal.id)).collect()
    }

    fn goal(&mut self, id: &str) -> Option<&'static Goal> {
        let goal = self.goals.iter().find(|goal| goal.id == id);
        if goal.is_none() {
            self.mistakes.push(format!("{id} is not declared"));
        }
        goal
    }

    fn put(&mut self, goal: &'static Goal, verdict: Verdict, values: Vec<Value>, detail: String) {
        // A rival that is missing was found before the row began. Its goals stay not measured.
        if let Some(earlier) = self.outcomes.get(goal.id) {
            if !matches!(earlier.verdict, Verdict::NotMeasured(_)) {
                self.mistakes.push(format!("{} is recorded twice", goal.id));
            }
            return;
        }
        let reason = match &verdict {
            Verdict::NotMeasured(reason) => Some(reason.clone()),
            _ => None,
        };
        let outcome =
            Outcome { id: goal.id, verdict, reason, values, bounds: goal.bounds, detail, quick: self.quick };
        if self.is_printing {
            println!("  {outcome}");
        }
        self.outcomes.insert(goal.id, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOALS: [Goal; 2] = [
        Goal::new("A", &[Bound::AtMost(120.0, "s"), Bound::Exactly(0.0, "left behind")]),
        Goal::new("B", &[Bound::AtLeast(1.0, "x")]),
    ];

    fn lines(results: Results, outcome: Measured<()>) -> Vec<String> {
        results.finish(outcome).iter().map(Outcome::to_string).collect()
    }

    #[test]
    fn each_goal_gets_one_line_with_its_bounds() {
        let mut results = Results::new(&GOALS, true);
        results.record("A", [74.0, 0.0], "");
        results.record("B", [Value::median(&[0.9, 0.8, 1.2]).unwrap()], "bridge 1100 Mbit/s");
        let expected = [
            "GOAL A 74 s, 0 left behind (<= 120 s, = 0 left behind) met [quick]",
            "GOAL B 0.900 x [0.800–1.200, 3]; bridge 1100 Mbit/s (>= 1 x) missed [quick]",
        ];
        assert_eq!(lines(results, Ok(())), expected);
    }

    #[test]
    fn an_error_leaves_the_other_goals_not_measured() {
        let mut results = Results::new(&GOALS, false);
        results.record("A", [121.0, 0.0], "");
        let expected = [
            "GOAL A 121 s, 0 left behind (<= 120 s, = 0 left behind) missed",
            "GOAL B – (>= 1 x) not measured: `x` ended with status 1; no",
        ];
        assert_eq!(lines(results, Err(NotMeasured::because("`x` ended with status 1\n no\n"))), expected);
    }

    #[test]
    fn what_is_not_recorded_or_not_declared_is_not_measured() {
        for outcome in Results::new(&GOALS, false).finish(Ok(())) {
            assert!(matches!(outcome.verdict, Verdict::NotMeasured(_)));
        }
        let mut results = Results::new(&GOALS, false);
        results.record("A", [1.0, 0.0], "");
        results.record("C", [1.0], "");
        for outcome in results.finish(Ok(())) {
            assert!(matches!(outcome.verdict, Verdict::NotMeasured(_)));
        }
    }

    #[test]
    fn a_goal_is_not_recorded_again_over_a_missing_rival() {
        let mut results = Results::new(&GOALS, false);
        results.not_measured("B", &NotMeasured::because("OVS-DPDK is not installed"));
        results.record("B", [2.0], "");
        assert!(matches!(results.finish(Ok(()))[1].verdict, Verdict::NotMeasured(_)));
    }
}
