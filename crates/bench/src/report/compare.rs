//! Decides whether B differs from A, or whether a difference is noise. Each repeat gives one
//! figure; repeats of A and B alternate, so that whatever else the host did affected both alike.
//!
//! The test is the exact Wilcoxon-Mann-Whitney test, two-sided, with mid-ranks for ties. If A and B
//! were the same, every assignment of the pooled ranks to A and B would be equally likely. The
//! p-value is the share of assignments whose rank sum is at least as far from its mean as the
//! observed one. The test assumes nothing about the distribution of the figures.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Kind;
use super::figures::{Figures, median};

/// Differences with a smaller p-value count as real.
const SIGNIFICANT: f64 = 0.05;

/// Difference between B and A in one figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The figure that was compared.
    pub figure: Figure,
    /// A's median over its repeats.
    pub a: f64,
    /// B's median over its repeats.
    pub b: f64,
    /// `b / a`.
    pub ratio: f64,
    /// p-value: probability of a difference at least as large if A and B were the same.
    pub p_value: f64,
    /// Number of repeats of A and of B that gave the figure.
    pub repeats: (usize, usize),
}

/// A figure by which configurations are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Median latency in µs; lower is faster.
    P50Us,
    /// Throughput in Mbit/s; higher is faster.
    MbitS,
}

impl Figure {
    const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Ping | Kind::Rr => Self::P50Us,
            Kind::Stream => Self::MbitS,
        }
    }

    const fn read(self, figures: &Figures) -> Option<f64> {
        match self {
            Self::P50Us => figures.p50_us,
            Self::MbitS => figures.mbit_s,
        }
    }

    const fn more_is_faster(self) -> bool {
        matches!(self, Self::MbitS)
    }

    fn write(self, value: f64) -> String {
        match self {
            Self::P50Us => format!("p50 {value:.1} µs"),
            Self::MbitS => format!("{value:.0} Mbit/s"),
        }
    }
}

impl Comparison {
    /// Compares A and B by the main figure of `kind`; none if one side never gave it.
    pub(super) fn new(kind: Kind, a: &[Figures], b: &[Figures]) -> Option<Self> {
        let figure = Figure::of(kind);
        let values = |side: &[Figures]| side.iter().filter_map(|f| figure.read(f)).collect::<Vec<_>>();
        let (a, b) = (values(a), values(b));
        let p_value = p_value(&a, &b);
        let repeats = (a.len(), b.len());
        let (a, b) = (median(a)?, median(b)?);
        Some(Self { figure, a, b, ratio: b / a, p_value, repeats })
    }
}

impl fmt::Display for Comparison {
    /// Writes one sentence: the direction in words, both figures, and the p-value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figure, a, b, ratio, p_value, repeats } = *self;
        let percent = (ratio - 1.0).abs() * 100.0;
        let (a, b) = (figure.write(a), figure.write(b));
        let side = if ratio < 1.0 { "below" } else { "above" };
        let difference = format!("{b}, {percent:.1} % {side} A's {a}");
        let evidence = match repeats {
            (1, 1) => "1 repeat each".to_owned(),
            (a, b) if a == b => format!("{a} repeats each"),
            (a, b) => format!("{a} and {b} repeats"),
        };
        let p = if p_value < 0.001 { "p < 0.001".to_owned() } else { format!("p = {p_value:.3}") };
        if p_value >= SIGNIFICANT {
            let more =
                if smallest_p(repeats) < SIGNIFICANT { "" } else { "; it takes 4 of each to show one" };
            write!(f, "no difference shown: B's {difference} ({p}, {evidence}{more})")
        } else {
            let faster = (ratio > 1.0) == figure.more_is_faster();
            write!(f, "B is {}: {difference} ({p}, {evidence})", if faster { "faster" } else { "slower" })
        }
    }
}

/// Returns the smallest p-value that the test can give: all of one side before all of the other.
fn smallest_p((a, b): (usize, usize)) -> f64 {
    let lower: Vec<_> = (0..a).map(|n| n as f64).collect();
    let upper: Vec<_> = (a..a + b).map(|n| n as f64).collect();
    p_value(&lower, &upper)
}

/// Returns the exact two-sided Wilcoxon-Mann-Whitney p-value; 1 if a side is empty.
fn p_value(a: &[f64], b: &[f64]) -> f64 {
    let ranks = doubled_mid_ranks(a, b);
    let total: usize = ranks.iter().sum();
    let observed: usize = ranks[..a.len()].iter().sum();
    let ways = ways_by_sum(&ranks, a.len());
    // Rank sums times the number of values, so that the distance from the mean is an integer.
    let distance = |sum: usize| (sum * ranks.len()).abs_diff(total * a.len());
    let extreme = ways.iter().enumerate().filter(|(sum, _)| distance(*sum) >= distance(observed));
    let extreme: f64 = extreme.map(|(_, ways)| ways).sum();
    extreme / ways.iter().sum::<f64>()
}

/// Returns twice the rank of each value among all, first those of `a`, then of `b`. Equal values
/// share the mean of their ranks.
fn doubled_mid_ranks(a: &[f64], b: &[f64]) -> Vec<usize> {
    let all: Vec<_> = a.iter().chain(b).copied().collect();
    all.iter()
        .map(|value| {
            let below = all.iter().filter(|other| other.total_cmp(value).is_lt()).count();
            let equal = all.iter().filter(|other| other.total_cmp(value).is_eq()).count();
            2 * below + equal + 1
        })
        .collect()
}

/// Returns for each sum the number of ways in which `chosen` of the ranks add up to it.
fn ways_by_sum(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let total: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; total + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for count in (1..=chosen).rev() {
            for sum in (rank..=total).rev() {
                ways[count][sum] += ways[count - 1][sum - rank];
            }
        }
    }
    ways.swap_remove(chosen)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn near(actual: f64, wanted: f64) {
        assert!((actual - wanted).abs() < 1e-9, "{actual} is not {wanted}");
    }

    #[test]
    fn p_values_of_known_cases() {
        // All of A before all of B: 2 of C(10, 5) = 252 assignments are as extreme.
        near(p_value(&[1., 2., 3., 4., 5.], &[6., 7., 8., 9., 10.]), 2.0 / 252.0);
        near(p_value(&[1., 2., 3.], &[4., 5., 6.]), 0.1);
        // One pair out of order (U = 1): twice (1 + 1) of 252.
        near(p_value(&[1., 2., 3., 4., 6.], &[5., 7., 8., 9., 10.]), 4.0 / 252.0);
        near(p_value(&[1.], &[2.]), 1.0);
        near(p_value(&[3., 3., 3.], &[3., 3., 3.]), 1.0);
        near(p_value(&[], &[3.]), 1.0);
    }

    #[test]
    fn many_repeats_are_compared() {
        let a: Vec<_> = (0..30).map(f64::from).collect();
        let b: Vec<_> = (15..45).map(f64::from).collect();
        assert!(p_value(&a, &b) < 1e-5);
        near(p_value(&a, &a), 1.0);
    }

    fn figures(values: &[f64]) -> Vec<Figures> {
        let each =
            values.iter().map(|v| Figures { p50_us: Some(*v), mbit_s: Some(*v), ..Figures::default() });
        each.collect()
    }

    fn sentence(kind: Kind, a: &[f64], b: &[f64]) -> String {
        Comparison::new(kind, &figures(a), &figures(b)).unwrap().to_string()
    }

    #[test]
    fn less_latency_and_more_throughput_are_faster() {
        let (low, high) = ([98.0, 99.0, 100.0, 101.0, 102.0], [108.0, 109.0, 110.0, 111.0, 112.0]);
        insta::assert_snapshot!(sentence(Kind::Rr, &high, &low),
            @"B is faster: p50 100.0 µs, 9.1 % below A's p50 110.0 µs (p = 0.008, 5 repeats each)");
        insta::assert_snapshot!(sentence(Kind::Ping, &low, &high),
            @"B is slower: p50 110.0 µs, 10.0 % above A's p50 100.0 µs (p = 0.008, 5 repeats each)");
        insta::assert_snapshot!(sentence(Kind::Stream, &low, &high),
            @"B is faster: 110 Mbit/s, 10.0 % above A's 100 Mbit/s (p = 0.008, 5 repeats each)");
        insta::assert_snapshot!(sentence(Kind::Stream, &high, &low),
            @"B is slower: 100 Mbit/s, 9.1 % below A's 110 Mbit/s (p = 0.008, 5 repeats each)");
    }

    #[test]
    fn noise_and_too_few_repeats_are_not_called_differences() {
        insta::assert_snapshot!(sentence(Kind::Stream, &[100., 103., 101., 104.], &[102., 100.5, 103.5, 105.]),
            @"no difference shown: B's 103 Mbit/s, 0.7 % above A's 102 Mbit/s (p = 0.686, 4 repeats each)");
        insta::assert_snapshot!(sentence(Kind::Rr, &[100., 101., 102.], &[50., 51., 52.]),
            @"no difference shown: B's p50 51.0 µs, 49.5 % below A's p50 101.0 µs (p = 0.100, 3 repeats each; it takes 4 of each to show one)");
        assert!(Comparison::new(Kind::Rr, &figures(&[1.0]), &[Figures::default()]).is_none());
    }

    /// Computes the p-value by its definition, from every assignment.
    fn by_enumeration(a: &[f64], b: &[f64]) -> f64 {
        let ranks = doubled_mid_ranks(a, b);
        let n = ranks.len();
        let mean = ranks.iter().sum::<usize>() as f64 * a.len() as f64 / n as f64;
        let sum_of =
            |set: u32| -> f64 { (0..n).filter(|i| set & (1 << i) != 0).map(|i| ranks[i] as f64).sum() };
        let observed = (sum_of((1 << a.len()) - 1) - mean).abs();
        let sets: Vec<u32> = (0..1 << n).filter(|set: &u32| set.count_ones() as usize == a.len()).collect();
        let extreme = sets.iter().filter(|set| (sum_of(**set) - mean).abs() >= observed - 1e-9).count();
        extreme as f64 / sets.len() as f64
    }

    proptest! {
        #[test]
        fn the_p_value_is_the_share_of_assignments_as_extreme(
            a in prop::collection::vec(0_u8..6, 1..6),
            b in prop::collection::vec(0_u8..6, 1..6),
        ) {
            let (a, b): (Vec<_>, Vec<_>) =
                (a.into_iter().map(f64::from).collect(), b.into_iter().map(f64::from).collect());
            prop_assert!((p_value(&a, &b) - by_enumeration(&a, &b)).abs() < 1e-9);
            prop_assert!((p_value(&a, &b) - p_value(&b, &a)).abs() < 1e-9, "symmetric");
        }
    }
}
