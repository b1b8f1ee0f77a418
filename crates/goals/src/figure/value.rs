//! A figure with its spread.

use std::fmt;

use serde::Serialize;

use super::statistics::{Interval, Spread, median};
use crate::reason::Measured;

/// A figure: one number, or the median of several with their spread. The number may be NaN or
/// infinite by a row's arithmetic; [`super::judge`] refuses it then.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Value {
    /// The number that bounds apply to.
    pub value: f64,
    /// Least and greatest sample, if the number is the median of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Interval of the median, if there are enough samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

impl Value {
    /// Makes a figure of one number.
    pub fn of(value: f64) -> Self {
        Self { value, spread: None, interval: None }
    }

    /// Makes a figure of a count.
    pub fn count(count: usize) -> Self {
        Self::of(count as f64)
    }

    /// Makes a figure of the samples' median. Fails without samples, or if one is not finite.
    pub fn median(samples: &[f64]) -> Measured<Self> {
        let value = median(samples)?;
        Ok(Self { value, spread: Spread::of(samples), interval: Interval::of_median(samples) })
    }

    /// Makes a figure of the greatest sample, which stands for the worst of all.
    pub fn greatest(samples: &[f64]) -> Measured<Self> {
        let median = Self::median(samples)?;
        let value = median.spread.map_or(median.value, |spread| spread.max);
        Ok(Self { value, interval: None, ..median })
    }

    /// Makes a figure of the least sample, which stands for the worst of all.
    pub fn least(samples: &[f64]) -> Measured<Self> {
        let median = Self::median(samples)?;
        let value = median.spread.map_or(median.value, |spread| spread.min);
        Ok(Self { value, interval: None, ..median })
    }

    /// Writes the figure with its unit and spread, such as `3.52 x [3.41–3.60, 9]`.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, unit: &str) -> fmt::Result {
        write!(f, "{}", shown(self.value))?;
        if !unit.is_empty() {
            write!(f, " {unit}")?;
        }
        if let Some(Spread { min, max, count }) = self.spread {
            write!(f, " [{}–{}, {count}", shown(min), shown(max))?;
            if let Some(Interval { low, high }) = self.interval {
                write!(f, "; 95 %: {}–{}", shown(low), shown(high))?;
            }
            write!(f, "]")?;
        }
        Ok(())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::of(value)
    }
}

/// Returns a number with as many decimals as its size deserves: four digits, none for a whole
/// number, an exponent for a very small one.
pub fn shown(value: f64) -> String {
    let decimals = match value.abs() {
        size if 0.0 < size && size < 0.001 => return format!("{value:.1e}"),
        size if size >= 1000.0 || value.fract() == 0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits_and_small_ones_do_not_become_zero() {
        let figures = [53_542_496.4, 145.47, 28.424, 2.0, 0.95, 0.001, 3.7e-7, 0.0];
        let expected = ["53542496", "145.5", "28.42", "2", "0.950", "0.001", "3.7e-7", "0"];
        assert_eq!(figures.map(shown), expected);
    }
}
