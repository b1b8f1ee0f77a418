//! Median, percentiles, ratios, and the interval of a median.

use serde::Serialize;

use crate::reason::{Measured, NotMeasured, require};

/// Least and greatest of a number of samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Least sample.
    pub min: f64,
    /// Greatest sample.
    pub max: f64,
    /// Number of samples.
    pub count: usize,
}

impl Spread {
    /// Returns the spread of samples, or `None` if there is none or one is not finite.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples).ok()?;
        Some(Self { min: *sorted.first()?, max: *sorted.last()?, count: sorted.len() })
    }
}

/// Interval that contains a median with a probability of at least 95 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower limit.
    pub low: f64,
    /// Upper limit.
    pub high: f64,
}

impl Interval {
    /// Returns the interval of the median of independent samples by rank, or `None` for fewer than
    /// six. Its limits are samples of the sorted list, so it holds for any distribution: a program
    /// of the host that disturbs one sample in ten hardly makes it wider.
    pub fn of_median(samples: &[f64]) -> Option<Self> {
        let sorted = sorted(samples).ok()?;
        let rank = lower_rank(sorted.len())?;
        Some(Self { low: sorted[rank], high: sorted[sorted.len() - 1 - rank] })
    }

    /// Distance of the limits.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}

/// Returns the greatest index k (from 0) for which the interval from sample k to sample n−1−k
/// contains the median in at least 95 % of all cases: the number of samples below the median has a
/// binomial distribution with p = ½, of which each tail may have 2.5 %.
fn lower_rank(count: usize) -> Option<usize> {
    let mut term = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut tail = term;
    let mut rank = None;
    for k in 0..count {
        if tail > 0.025 {
            break;
        }
        rank = Some(k);
        term *= (count - k) as f64 / (k + 1) as f64;
        tail += term;
    }
    rank
}

/// Returns the samples in order. Fails if one is not a finite number.
fn sorted(samples: &[f64]) -> Measured<Vec<f64>> {
    if let Some(bad) = samples.iter().find(|sample| !sample.is_finite()) {
        return Err(NotMeasured::because(format!("a sample is {bad}, not a finite number")));
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(sorted)
}

/// Returns the median. Fails without samples, or if one is not a finite number.
pub fn median(samples: &[f64]) -> Measured<f64> {
    let sorted = sorted(samples)?;
    require(!sorted.is_empty(), "there is no sample")?;
    let middle = sorted.len() / 2;
    Ok(if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) })
}

/// Returns the sample below or at which `percent` of the samples are. Fails like [`median`].
pub fn percentile(samples: &[f64], percent: f64) -> Measured<f64> {
    let sorted = sorted(samples)?;
    require(!sorted.is_empty(), "there is no sample")?;
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    Ok(sorted[rank.clamp(1, sorted.len()) - 1])
}

/// Returns the median of the slopes of all pairs of points, each a place and a figure there (the
/// estimator of Theil and Sen). Fails like [`median`], and without two different places.
pub fn slope(points: &[(f64, f64)]) -> Measured<f64> {
    let mut slopes = Vec::new();
    for (at, (x, y)) in points.iter().enumerate() {
        let others = points[at + 1..].iter().filter(|(other, _)| (other - x).abs() > f64::EPSILON);
        slopes.extend(others.map(|(other, figure)| (figure - y) / (other - x)));
    }
    median(&slopes)
}

/// Returns `a ÷ b`. Fails unless both are finite and greater than 0: a rate or a time of 0 is no
/// measurement.
pub fn ratio(a: f64, b: f64) -> Measured<f64> {
    for figure in [a, b] {
        require(figure.is_finite() && figure > 0.0, format!("a ratio of {a} and {b} says nothing"))?;
    }
    Ok(a / b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sample_and_no_number_have_no_median() {
        assert!(median(&[]).is_err());
        assert!(median(&[1.0, f64::NAN]).is_err());
        assert!(percentile(&[1.0, f64::INFINITY], 50.0).is_err());
        assert_eq!(median(&[3.0, 1.0, 2.0]), Ok(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Ok(2.5));
        assert_eq!(percentile(&[1.0, 2.0, 3.0, 4.0], 75.0), Ok(3.0));
    }

    #[test]
    fn a_ratio_with_a_missing_side_is_not_measured() {
        for (a, b) in [(1.0, 0.0), (0.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (-1.0, 2.0)] {
            assert!(ratio(a, b).is_err(), "{a} ÷ {b}");
        }
        assert_eq!(ratio(3.0, 2.0), Ok(1.5));
    }

    #[test]
    fn the_interval_has_the_ranks_of_the_binomial_distribution() {
        // Ranks as in tables of the sign test, from 1: n = 6 → 1, 9 → 2, 12 → 3, 20 → 6, 60 → 22.
        for (count, rank) in [(6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (20, 5), (60, 21)] {
            assert_eq!(lower_rank(count), Some(rank), "{count}");
        }
        assert_eq!(lower_rank(5), None);
        let samples: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(Interval::of_median(&samples), Some(Interval { low: 2.0, high: 8.0 }));
    }

    #[test]
    fn a_slope_does_not_follow_single_points() {
        let line: Vec<(f64, f64)> = (0..20).map(|at| (f64::from(at), 3.0 * f64::from(at) + 1.0)).collect();
        assert!((slope(&line).unwrap() - 3.0).abs() < 1e-9);
        let spike: Vec<(f64, f64)> =
            (0..20).map(|at| (f64::from(at), if at == 17 { 99.0 } else { 4.0 })).collect();
        assert!(slope(&spike).unwrap().abs() < 1e-9);
        assert!(slope(&[(1.0, 2.0)]).is_err());
        assert!(slope(&[(1.0, 2.0), (1.0, 3.0)]).is_err());
        assert!(slope(&[(1.0, 2.0), (2.0, f64::NAN)]).is_err());
    }
}
