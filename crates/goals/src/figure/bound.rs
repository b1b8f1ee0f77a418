//! Bounds, which print themselves and decide.

use std::fmt;

use serde::{Serialize, Serializer};

use super::value::Value;

/// Bound of one figure, with the figure's unit. What it prints is what it decides by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// At least this.
    AtLeast(f64, &'static str),
    /// At most this.
    AtMost(f64, &'static str),
    /// More than this.
    Above(f64, &'static str),
    /// Less than this.
    Below(f64, &'static str),
    /// Exactly this.
    Exactly(f64, &'static str),
    /// From the first to the second, both included.
    Within(f64, f64, &'static str),
    /// Lower limit of the median's 95 % interval at least this. Without an interval, which takes
    /// six samples, the goal is not measured.
    LowLimitAtLeast(f64, &'static str),
    /// Any figure: it is stated, not judged.
    Stated(&'static str),
}

/// Verdict on a goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every figure keeps its bound.
    Met,
    /// Every figure was measured; at least one does not keep its bound.
    Missed,
    /// At least one figure was not measured, for this reason.
    NotMeasured(String),
}

impl Bound {
    /// Unit of the figure.
    pub const fn unit(&self) -> &'static str {
        match self {
            Self::AtLeast(_, unit)
            | Self::AtMost(_, unit)
            | Self::Above(_, unit)
            | Self::Below(_, unit)
            | Self::Exactly(_, unit)
            | Self::Within(_, _, unit)
            | Self::LowLimitAtLeast(_, unit)
            | Self::Stated(unit) => unit,
        }
    }

    fn judge(&self, value: &Value) -> Verdict {
        let number = value.value;
        if !number.is_finite() {
            return Verdict::NotMeasured(format!("the figure is {number}, not a finite number"));
        }
        let holds = match *self {
            Self::AtLeast(least, _) => number >= least,
            Self::AtMost(most, _) => number <= most,
            Self::Above(limit, _) => number > limit,
            Self::Below(limit, _) => number < limit,
            // Both sides are whole numbers, or copies of the same constant.
            #[expect(clippy::float_cmp)]
            Self::Exactly(exact, _) => number == exact,
            Self::Within(low, high, _) => low <= number && number <= high,
            Self::LowLimitAtLeast(least, _) => match value.interval {
                Some(interval) => interval.low >= least,
                None => return Verdict::NotMeasured("too few samples for an interval".to_owned()),
            },
            Self::Stated(_) => true,
        };
        if holds { Verdict::Met } else { Verdict::Missed }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound, _) => write!(f, ">= {bound}")?,
            Self::AtMost(bound, _) => write!(f, "<= {bound}")?,
            Self::Above(bound, _) => write!(f, "> {bound}")?,
            Self::Below(bound, _) => write!(f, "< {bound}")?,
            Self::Exactly(bound, _) => write!(f, "= {bound}")?,
            Self::Within(low, high, _) => write!(f, "{low} to {high}")?,
            Self::LowLimitAtLeast(bound, _) => write!(f, "95 % interval from >= {bound}")?,
            Self::Stated(_) => return f.write_str("stated"),
        }
        if self.unit().is_empty() { Ok(()) } else { write!(f, " {}", self.unit()) }
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::NotMeasured(_) => "not measured",
        })
    }
}

/// Judges the figures of a goal, each by the bound at the same place.
pub fn judge(bounds: &[Bound], values: &[Value]) -> Verdict {
    if bounds.is_empty() || bounds.len() != values.len() {
        let counts = format!("{} figures for {} bounds", values.len(), bounds.len());
        return Verdict::NotMeasured(counts);
    }
    let verdicts: Vec<Verdict> = bounds.iter().zip(values).map(|(bound, value)| bound.judge(value)).collect();
    let unmeasured = verdicts.iter().find(|verdict| matches!(verdict, Verdict::NotMeasured(_)));
    let missed = verdicts.iter().find(|verdict| matches!(verdict, Verdict::Missed));
    unmeasured.or(missed).cloned().unwrap_or(Verdict::Met)
}

/// Figures with the units of their bounds, in one line.
pub fn list<'a>(bounds: &'a [Bound], values: &'a [Value]) -> impl fmt::Display + use<'a> {
    struct List<'a>(&'a [Bound], &'a [Value]);
    impl fmt::Display for List<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            for (at, value) in self.1.iter().enumerate() {
                f.write_str(if at == 0 { "" } else { ", " })?;
                value.write(f, self.0.get(at).map_or("", |bound| bound.unit()))?;
            }
            Ok(())
        }
    }
    List(bounds, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Bound; 8] = [
        Bound::AtLeast(0.0, "x"),
        Bound::AtMost(9.0, "x"),
        Bound::Above(-1.0, "x"),
        Bound::Below(9.0, "x"),
        Bound::Exactly(0.0, "x"),
        Bound::Within(-1.0, 9.0, "x"),
        Bound::LowLimitAtLeast(0.0, "x"),
        Bound::Stated("x"),
    ];

    #[test]
    fn no_bound_is_met_by_what_is_no_finite_number() {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for bound in ALL {
                assert!(matches!(judge(&[bound], &[Value::of(number)]), Verdict::NotMeasured(_)), "{bound}");
            }
        }
    }

    #[test]
    fn every_bound_that_is_printed_decides() {
        let bounds = [Bound::AtLeast(3.4, "x"), Bound::AtLeast(2.0, "x")];
        assert_eq!(judge(&bounds, &[3.4.into(), 2.0.into()]), Verdict::Met);
        assert_eq!(judge(&bounds, &[3.4.into(), 1.9.into()]), Verdict::Missed);
        assert_eq!(judge(&bounds, &[3.3.into(), 2.0.into()]), Verdict::Missed);
        for values in [&[][..], &[3.5.into()], &[3.5.into(), 2.5.into(), 1.0.into()]] {
            assert!(matches!(judge(&bounds, values), Verdict::NotMeasured(_)));
        }
        assert!(matches!(judge(&[], &[]), Verdict::NotMeasured(_)));
    }

    #[test]
    fn limits_belong_to_the_bound_or_not() {
        let verdict = |bound, number: f64| judge(&[bound], &[number.into()]);
        assert_eq!(verdict(Bound::AtMost(2.0, ""), 2.0), Verdict::Met);
        assert_eq!(verdict(Bound::Below(2.0, ""), 2.0), Verdict::Missed);
        assert_eq!(verdict(Bound::Above(2.0, ""), 2.0), Verdict::Missed);
        assert_eq!(verdict(Bound::Exactly(0.0, ""), 1.0), Verdict::Missed);
        assert_eq!(verdict(Bound::Within(0.47, 0.53, ""), 0.54), Verdict::Missed);
    }

    #[test]
    fn the_interval_decides_by_its_lower_limit() {
        let samples: Vec<f64> = (0..9).map(|at| 0.97 + 0.01 * f64::from(at)).collect();
        let value = Value::median(&samples).unwrap();
        assert_eq!(judge(&[Bound::LowLimitAtLeast(0.98, "x")], std::slice::from_ref(&value)), Verdict::Met);
        assert_eq!(judge(&[Bound::LowLimitAtLeast(0.99, "x")], &[value]), Verdict::Missed);
        let few = Value::median(&samples[..5]).unwrap();
        let bound = [Bound::LowLimitAtLeast(0.9, "x")];
        assert!(matches!(judge(&bound, &[few]), Verdict::NotMeasured(_)));
    }

    #[test]
    fn figures_are_printed_with_unit_and_spread() {
        let bounds = [Bound::AtLeast(3.4, "x"), Bound::Exactly(0.0, "left behind")];
        let values = [Value::median(&[3.5, 3.61, 3.42]).unwrap(), Value::of(0.0)];
        assert_eq!(list(&bounds, &values).to_string(), "3.500 x [3.420–3.610, 3], 0 left behind");
    }
}
