//! A shape as the command line writes it: `10Mbit`, or `average=10Mbit,peak=20Mbit,burst=1MiB`.

use std::fmt;
use std::str::FromStr;

use super::{BadShape, Shape};
use crate::units::{BadBitRate, BadBytes};

/// Why a text is not a shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadShapeText {
    /// A part has another key.
    #[error("`{0}` is not one of average, peak and burst")]
    Key(String),
    /// No part is the average rate.
    #[error("the average rate is missing")]
    NoAverage,
    /// A rate cannot be read.
    #[error(transparent)]
    Rate(#[from] BadBitRate),
    /// The burst cannot be read.
    #[error(transparent)]
    Burst(#[from] BadBytes),
    /// A value is out of its range.
    #[error(transparent)]
    Range(#[from] BadShape),
}

impl FromStr for Shape {
    type Err = BadShapeText;

    fn from_str(text: &str) -> Result<Self, BadShapeText> {
        let (mut average, mut peak, mut burst) = (None, None, None);
        for part in text.split(',') {
            let (key, value) = part.split_once('=').unwrap_or(("average", part));
            match key {
                "average" => average = Some(value.parse()?),
                "peak" => peak = Some(value.parse()?),
                "burst" => burst = Some(value.parse()?),
                _ => return Err(BadShapeText::Key(key.to_owned())),
            }
        }
        let steady = Self::steady(average.ok_or(BadShapeText::NoAverage)?);
        let shape = Self { peak, burst: burst.unwrap_or(steady.burst), ..steady };
        shape.check()?;
        Ok(shape)
    }
}

/// Writes the rates, and the burst if it is ever used.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peak {
            Some(peak) => write!(f, "{} peak {peak} burst {}", self.average, self.burst),
            None => self.average.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;
    use crate::units::BitRate;

    #[test]
    fn a_shape_is_read_and_written_as_text() {
        let full: Shape = "average=10Mbit,peak=20Mbit,burst=1MiB".parse().unwrap();
        let expected =
            Shape { average: BitRate(10_000_000), peak: Some(BitRate(20_000_000)), burst: Bytes::mib(1) };
        assert_eq!(full, expected);
        assert_eq!(full.to_string(), "10Mbit peak 20Mbit burst 1MiB");
        let steady: Shape = "64kbit".parse().unwrap();
        assert_eq!((steady, steady.to_string()), (Shape::steady(BitRate(64_000)), "64kbit".to_owned()));
    }

    #[test]
    fn a_bad_shape_is_refused_with_its_reason() {
        for (text, reason) in [
            ("peak=1Mbit", "the average rate is missing"),
            ("average=1Mbit,bursts=1", "`bursts` is not one of average, peak and burst"),
            ("2Mbit,peak=1Mbit", "peak rate of 1Mbit/s is below the average of 2Mbit/s"),
            ("fast", "`fast` is not a rate"),
        ] {
            let error = text.parse::<Shape>().unwrap_err().to_string();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
