//! Traffic shaping of ports.
//!
//! Each port and direction has two token buckets. The first fills at the *average* rate and holds
//! the *burst*: a port below its average collects a bonus of at most the burst. The second limits
//! how fast the bonus is spent: the *peak* rate. Frames that do not conform wait.
//!
//! Directions are named by the frames' destination, because ESX's names take the switch's view:
//! [`Shaping::to_switch`] is what the guest sends ("outbound" on ESX's standard switch, "ingress"
//! on the distributed one), [`Shaping::to_guest`] what it receives ("egress" on the distributed
//! switch).
//!
//! Bytes are counted as in the port's counters: from the Ethernet header to the end of the frame,
//! without preamble, checksum and gap. A frame with segmentation offload counts once with all its
//! bytes; the headers that its segments would repeat on a wire do not count.

mod own;
mod text;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use own::{OwnShape, OwnShaping, PortShape, PortShaping, ShapeOrigin};
pub use text::BadShapeText;

use crate::Bytes;
use crate::units::BitRate;

/// Shaping of a port, each direction by itself. An absent direction is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Shaping {
    /// Frames that the guest sends. A frame that does not conform waits in the guest's transmit
    /// ring; none is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_switch: Option<Shape>,
    /// Frames that the guest receives. A frame that does not conform waits in a bounded queue, and
    /// is dropped if the queue is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_guest: Option<Shape>,
}

/// The two token buckets of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Long-term rate, 1 kbit/s to 100 Gbit/s.
    pub average: BitRate,
    /// Rate during a burst, from the average to 100 Gbit/s. If absent, it is the average, and the
    /// burst is never used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<BitRate>,
    /// Maximum bonus in bytes, at least 1. If absent, 100 MiB (ESX's 102400 KB).
    #[serde(default = "default_burst")]
    pub burst: Bytes,
}

const fn default_burst() -> Bytes {
    Bytes::mib(100)
}

/// Why a [`Shape`] cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadShape {
    /// The rate is out of range.
    #[error("{name} rate of {rate}/s is not between {}/s and {}/s", Shape::MIN_RATE, Shape::MAX_RATE)]
    Rate {
        /// `average` or `peak`.
        name: &'static str,
        /// The rate.
        rate: BitRate,
    },
    /// The peak is below the average.
    #[error("peak rate of {peak}/s is below the average of {average}/s")]
    PeakBelowAverage {
        /// Peak rate.
        peak: BitRate,
        /// Average rate.
        average: BitRate,
    },
    /// The burst is zero, so nothing would pass.
    #[error("burst is 0")]
    NoBurst,
}

impl Shape {
    /// Lowest rate.
    pub const MIN_RATE: BitRate = BitRate(1000);
    /// Highest rate.
    pub const MAX_RATE: BitRate = BitRate(100_000_000_000);

    /// Returns a steady rate, whose peak is the average.
    pub const fn steady(average: BitRate) -> Self {
        Self { average, peak: None, burst: default_burst() }
    }

    /// Returns the rate during a burst.
    pub fn peak(&self) -> BitRate {
        self.peak.unwrap_or(self.average)
    }

    /// Checks the ranges.
    pub fn check(&self) -> Result<(), BadShape> {
        let allowed = Self::MIN_RATE..=Self::MAX_RATE;
        for (name, rate) in [("average", self.average), ("peak", self.peak())] {
            if !allowed.contains(&rate) {
                return Err(BadShape::Rate { name, rate });
            }
        }
        if self.peak() < self.average {
            return Err(BadShape::PeakBelowAverage { peak: self.peak(), average: self.average });
        }
        if self.burst.0 == 0 {
            return Err(BadShape::NoBurst);
        }
        Ok(())
    }
}

impl Shaping {
    /// Returns whether no direction is limited.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Checks both directions; the error names the wrong one.
    pub fn check(&self) -> Result<(), (&'static str, BadShape)> {
        for (direction, shape) in [("to_switch", &self.to_switch), ("to_guest", &self.to_guest)] {
            if let Some(shape) = shape {
                shape.check().map_err(|bad| (direction, bad))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_from_a_document_and_completed() {
        let json = r#"{"to_switch":{"average":"10Mbit","peak":"20 Mbps","burst":"1MiB"},"to_guest":{"average":64000}}"#;
        let shaping: Shaping = serde_json::from_str(json).unwrap();
        let shape =
            Shape { average: BitRate(10_000_000), peak: Some(BitRate(20_000_000)), burst: Bytes::mib(1) };
        assert_eq!(shaping.to_switch, Some(shape));
        assert_eq!(shaping.to_guest, Some(Shape::steady(BitRate(64_000))));
        assert_eq!(shaping.to_guest.unwrap().peak(), BitRate(64_000));
        assert_eq!(shaping.check(), Ok(()));
        assert!(serde_json::from_str::<Shaping>(r#"{"egress":{"average":"1Mbit"}}"#).is_err());
        assert!(serde_json::from_str::<Shaping>(r#"{"to_guest":{"peak":"1Mbit"}}"#).is_err());
    }

    #[test]
    fn impossible_shapes_are_refused_with_their_values() {
        let shape = |average, peak, burst| Shape {
            average: BitRate(average),
            peak: Some(BitRate(peak)),
            burst: Bytes(burst),
        };
        let refusals = [
            (shape(999, 2000, 1), "average rate of 999bit/s is not between 1kbit/s and 100Gbit/s"),
            (
                shape(1000, 100_000_000_001, 1),
                "peak rate of 100000000001bit/s is not between 1kbit/s and 100Gbit/s",
            ),
            (shape(2000, 1000, 1), "peak rate of 1kbit/s is below the average of 2kbit/s"),
            (shape(1000, 1000, 0), "burst is 0"),
        ];
        for (shape, text) in refusals {
            assert_eq!(shape.check().unwrap_err().to_string(), text);
        }
        let shaping = Shaping { to_switch: None, to_guest: Some(shape(0, 0, 0)) };
        assert_eq!(shaping.check().unwrap_err().0, "to_guest");
    }
}
