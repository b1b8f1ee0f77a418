//! Number of queue pairs of a card.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Number of queue pairs (receive and transmit) that a virtio card offers, 1 to 8. All frames of a
/// flow use one queue; workers share the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "u8", into = "u8")]
#[schema(value_type = u8, minimum = 1, maximum = 8)]
pub struct QueuePairs(u8);

impl QueuePairs {
    /// Valid numbers.
    pub const RANGE: RangeInclusive<u8> = 1..=8;

    /// Returns the number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns whether it is the default, one pair.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for QueuePairs {
    fn default() -> Self {
        Self(1)
    }
}

/// Why a number or a text is not a [`QueuePairs`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a number of queue pairs from 1 to 8")]
pub struct BadQueuePairs(String);

impl TryFrom<u8> for QueuePairs {
    type Error = BadQueuePairs;

    fn try_from(count: u8) -> Result<Self, BadQueuePairs> {
        if Self::RANGE.contains(&count) { Ok(Self(count)) } else { Err(BadQueuePairs(count.to_string())) }
    }
}

impl From<QueuePairs> for u8 {
    fn from(pairs: QueuePairs) -> Self {
        pairs.0
    }
}

impl FromStr for QueuePairs {
    type Err = BadQueuePairs;

    fn from_str(text: &str) -> Result<Self, BadQueuePairs> {
        let count: u8 = text.parse().map_err(|_| BadQueuePairs(text.to_owned()))?;
        count.try_into()
    }
}

impl fmt::Display for QueuePairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_to_eight_pairs_are_accepted() {
        for count in 0..=u8::MAX {
            let parsed: Result<QueuePairs, _> = count.to_string().parse();
            assert_eq!(parsed.is_ok(), (1..=8).contains(&count));
            assert_eq!(serde_json::from_str(&count.to_string()).ok(), parsed.ok());
        }
        assert_eq!("300".parse::<QueuePairs>(), Err(BadQueuePairs("300".into())));
        assert_eq!(serde_json::to_string(&QueuePairs::default()).unwrap(), "1");
    }
}
