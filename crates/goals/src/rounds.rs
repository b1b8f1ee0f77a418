//! Comparisons by rounds. A round measures every cell once; rounds alternate the order (A B, B A,
//! …), so that a drift of the machine affects both sides alike. Ratios are taken within a round,
//! and the figure is their median.

use std::fmt;

use crate::figure::{Interval, Value, ratio};
use crate::machine::Doc;
use crate::reason::{Measured, NotMeasured, require};

/// State of the machine while a sample was taken: how far the cores are from each other. It comes
/// and goes by itself on virtual machines, and changes figures of work on more than one core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A cache line's round trip between the cores takes less than 200 ns.
    Near,
    /// The round trip takes from 250 ns to 2 µs.
    Far,
    /// The round trip changed, or is between the two.
    Moved,
    /// The sample does not say.
    Unknown,
}

impl State {
    /// Returns the state by round trips of a cache line, in ns, before and after a sample.
    pub fn of_round_trips(round_trips: &[f64]) -> Self {
        let all = |low: f64, high: f64| round_trips.iter().all(|trip| low < *trip && *trip < high);
        match round_trips {
            [] => Self::Unknown,
            _ if all(0.0, 200.0) => Self::Near,
            _ if all(250.0, 2000.0) => Self::Far,
            _ => Self::Moved,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Near => "near",
            Self::Far => "far",
            Self::Moved => "moved",
            Self::Unknown => "unknown",
        })
    }
}

/// One sample of a cell.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The machine's state meanwhile.
    pub state: State,
    /// The measured figures.
    pub doc: Doc,
}

impl Sample {
    /// Makes a sample that does not know the machine's state.
    pub fn new(doc: Doc) -> Self {
        Self { state: State::Unknown, doc }
    }
}

/// Number of rounds.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Rounds that have to count, at least.
    pub least: usize,
    /// Rounds that count, at most.
    pub most: usize,
    /// Width of the 95 % interval of the first ratio at which rounds end before `most`.
    pub width: f64,
}

impl Plan {
    /// A fixed number of rounds.
    pub const fn exactly(rounds: usize) -> Self {
        Self { least: rounds, most: rounds, width: 0.0 }
    }
}

/// A ratio of two cells.
#[derive(Debug, Clone, Copy)]
pub struct Ratio<'a> {
    /// Cell above the line.
    pub over: &'a str,
    /// Cell below the line.
    pub under: &'a str,
    /// Path of the figure in a sample.
    pub figure: &'a str,
}

/// Samples of all rounds, and which of the rounds count.
#[derive(Debug)]
pub struct Rounds {
    cells: Vec<String>,
    /// Rounds that count: every cell was measured in the same state of the machine. One entry a
    /// round; one sample a cell, in the order of the cells.
    counted: Vec<(State, Vec<Doc>)>,
    /// Samples of the rounds that do not count: the machine's state changed in them, or is not that
    /// of most rounds.
    dropped: Vec<Vec<Doc>>,
}

impl Rounds {
    /// Measures rounds until the plan is kept. Fails if a sample fails, or if too few rounds count
    /// of twice the most that were planned.
    pub fn take(
        plan: Plan,
        cells: &[&str],
        watched: Option<Ratio>,
        mut sample: impl FnMut(&str) -> Measured<Sample>,
    ) -> Measured<Self> {
        let names = cells.iter().map(|&name| name.to_owned()).collect();
        let mut taken = Self { cells: names, counted: Vec::new(), dropped: Vec::new() };
        for round in 0..2 * plan.most {
            let mut samples = vec![None; cells.len()];
            let mut order: Vec<usize> = (0..cells.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                samples[at] = Some(sample(cells[at])?);
            }
            taken.add(samples.into_iter().flatten().collect());
            let state = taken.state();
            let counted = taken.count(state);
            if counted >= plan.most || counted >= plan.least && taken.is_settled(watched, plan.width)? {
                return Ok(taken.only(state));
            }
        }
        let state = taken.state();
        let counted = taken.count(state);
        let (least, dropped) = (plan.least, taken.dropped());
        require(
            counted >= least,
            format!(
                "the machine moved too often: {counted} rounds of {least} in one state, {dropped} dropped"
            ),
        )?;
        Ok(taken.only(state))
    }

    fn add(&mut self, samples: Vec<Sample>) {
        let state = samples.first().map_or(State::Unknown, |sample| sample.state);
        let moved = state == State::Moved || samples.iter().any(|sample| sample.state != state);
        let docs = samples.into_iter().map(|sample| sample.doc).collect();
        if moved {
            self.dropped.push(docs);
        } else {
            self.counted.push((state, docs));
        }
    }

    /// State in which most rounds count.
    pub fn state(&self) -> State {
        let states = [State::Unknown, State::Far, State::Near];
        states.into_iter().max_by_key(|state| self.count(*state)).unwrap_or(State::Unknown)
    }

    /// Number of rounds that count in a state.
    pub fn count(&self, state: State) -> usize {
        self.counted.iter().filter(|round| round.0 == state).count()
    }

    /// Number of rounds that do not count.
    pub fn dropped(&self) -> usize {
        self.dropped.len()
    }

    /// Returns the same rounds, of which all count: for figures that do not depend on the machine's
    /// state.
    #[must_use]
    pub fn in_any_state(&self) -> Self {
        let counted = self.counted.iter().map(|(_, docs)| docs);
        let all = counted.chain(&self.dropped).map(|docs| (State::Unknown, docs.clone()));
        Self { cells: self.cells.clone(), counted: all.collect(), dropped: Vec::new() }
    }

    /// Keeps the rounds of one state. Those of other states do not count.
    fn only(mut self, state: State) -> Self {
        let (counted, others): (Vec<_>, Vec<_>) =
            self.counted.into_iter().partition(|round| round.0 == state);
        self.counted = counted;
        self.dropped.extend(others.into_iter().map(|(_, docs)| docs));
        self
    }

    fn is_settled(&self, watched: Option<Ratio>, width: f64) -> Measured<bool> {
        let Some(Ratio { over, under, figure }) = watched else { return Ok(false) };
        let ratios = self.ratios(over, under, figure)?;
        Ok(Interval::of_median(&ratios).is_some_and(|interval| interval.width() <= width))
    }

    /// Samples of a cell in the rounds that count.
    pub fn samples(&self, cell: &str) -> Measured<Vec<&Doc>> {
        let at = self.cells.iter().position(|name| name == cell);
        let at = at.ok_or_else(|| NotMeasured::because(format!("{cell} was not measured")))?;
        let state = self.state();
        Ok(self.counted.iter().filter(|round| round.0 == state).map(|round| &round.1[at]).collect())
    }

    /// Figures of a cell, one a round that counts.
    pub fn figures(&self, cell: &str, figure: &str) -> Measured<Vec<f64>> {
        self.samples(cell)?.into_iter().map(|doc| doc.number(figure)).collect()
    }

    /// Median of a cell's figure.
    pub fn median(&self, cell: &str, figure: &str) -> Measured<Value> {
        Value::median(&self.figures(cell, figure)?)
    }

    /// Ratios of two cells, one a round that counts.
    pub fn ratios(&self, over: &str, under: &str, figure: &str) -> Measured<Vec<f64>> {
        let (over, under) = (self.figures(over, figure)?, self.figures(under, figure)?);
        over.into_iter().zip(under).map(|(over, under)| ratio(over, under)).collect()
    }

    /// Median ratio of two cells, with spread and interval.
    pub fn ratio(&self, over: &str, under: &str, figure: &str) -> Measured<Value> {
        Value::median(&self.ratios(over, under, figure)?)
    }
}

/// Returns the median ratio of A and B of a result of `taut bench … --versus`, which
/// measured both in each repeat.
pub fn versus(report: &Doc, figure: &str) -> Measured<Value> {
    let (a, b) = (report.numbers("a.repeats", figure)?, report.numbers("b.repeats", figure)?);
    paired(&a, &b)
}

/// Returns the median of the ratios of figures that were measured in alternation, each by the one
/// at the same place.
pub fn paired(over: &[f64], under: &[f64]) -> Measured<Value> {
    require(over.len() == under.len(), format!("{} repeats beside {}", over.len(), under.len()))?;
    let ratios: Measured<Vec<f64>> = over.iter().zip(under).map(|(a, b)| ratio(*a, *b)).collect();
    Value::median(&ratios?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(state: State, rate: f64) -> Sample {
        Sample { state, doc: Doc::from(json!({ "rate": rate })) }
    }

    #[test]
    fn the_order_alternates_and_ratios_are_paired() {
        let mut order = Vec::new();
        let mut drift = 1.0;
        let rounds = Rounds::take(Plan::exactly(8), &["a", "b"], None, |cell| {
            order.push(cell.to_owned());
            // The machine becomes slower all the time; A is always twice as fast as B.
            drift *= 0.9;
            Ok(sample(State::Near, if cell == "a" { 2.0 * drift } else { drift }))
        });
        let ratio = rounds.unwrap().ratio("a", "b", "rate").unwrap();
        assert_eq!(order[..4], ["a", "b", "b", "a"]);
        assert!((ratio.value - 2.0).abs() < 0.03, "{ratio:?}");
        assert_eq!(ratio.spread.unwrap().count, 8);
    }

    #[test]
    fn rounds_in_any_state_all_count() {
        let mut states = [State::Near, State::Moved, State::Far, State::Near].into_iter();
        let rounds = Rounds::take(Plan::exactly(2), &["a"], None, |_| {
            let state = states.next().unwrap();
            Ok(sample(state, if state == State::Near { 1.0 } else { 2.0 }))
        });
        let rounds = rounds.unwrap();
        assert_eq!((rounds.figures("a", "rate").unwrap(), rounds.dropped()), (vec![1.0, 1.0], 2));
        let mut all = rounds.in_any_state().figures("a", "rate").unwrap();
        all.sort_by(f64::total_cmp);
        assert_eq!(all, [1.0, 1.0, 2.0, 2.0]);
    }

    #[test]
    fn rounds_in_which_the_machine_moved_do_not_count() {
        let mut count = 0;
        let rounds = Rounds::take(Plan::exactly(3), &["a", "b"], None, |_| {
            count += 1;
            Ok(sample(if count == 2 { State::Far } else { State::Near }, f64::from(count)))
        });
        let rounds = rounds.unwrap();
        assert_eq!((rounds.count(State::Near), rounds.dropped()), (3, 1));
        assert_eq!(rounds.figures("a", "rate"), Ok(vec![4.0, 5.0, 8.0]));
        let never = Rounds::take(Plan::exactly(3), &["a"], None, |_| Ok(sample(State::Moved, 1.0)));
        assert!(never.is_err());
    }

    #[test]
    fn rounds_end_when_the_interval_is_narrow() {
        let plan = Plan { least: 6, most: 60, width: 0.02 };
        let watched = Ratio { over: "a", under: "b", figure: "rate" };
        let rounds = Rounds::take(plan, &["a", "b"], Some(watched), |_| Ok(sample(State::Near, 5.0)));
        assert_eq!(rounds.unwrap().count(State::Near), 6);
    }

    #[test]
    fn a_sample_without_its_figure_is_not_measured() {
        let rounds = Rounds::take(Plan::exactly(2), &["a", "b"], None, |cell| {
            Ok(Sample::new(Doc::from(if cell == "a" { json!({"rate": 1}) } else { json!({"rate": null}) })))
        });
        assert!(rounds.unwrap().ratio("a", "b", "rate").is_err());
    }

    #[test]
    fn states_are_told_by_round_trips() {
        assert_eq!(State::of_round_trips(&[80.0, 120.0]), State::Near);
        assert_eq!(State::of_round_trips(&[400.0, 900.0]), State::Far);
        assert_eq!(State::of_round_trips(&[80.0, 900.0]), State::Moved);
        assert_eq!(State::of_round_trips(&[f64::NAN]), State::Moved);
        assert_eq!(State::of_round_trips(&[]), State::Unknown);
    }
}
