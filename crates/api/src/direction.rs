//! Direction of a frame at a port, for captures and mirrors.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Direction of a frame, seen from the guest or card behind the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The port sends the frame.
    Tx,
    /// The port receives the frame, or would receive it if it were not dropped.
    Rx,
}

/// Directions of the frames that a capture or a mirror takes (ESX: `pktcap-uw --dir`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Directions {
    /// All frames.
    #[default]
    Both,
    /// Frames that the port sends.
    Tx,
    /// Frames that the port receives.
    Rx,
}

impl Directions {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Both, Self::Tx, Self::Rx];

    /// Returns whether frames of this direction are taken.
    pub const fn include(self, direction: Direction) -> bool {
        matches!((self, direction), (Self::Both, _) | (Self::Tx, Direction::Tx) | (Self::Rx, Direction::Rx))
    }

    /// Returns the word that users write.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Tx => "tx",
            Self::Rx => "rx",
        }
    }

    /// Returns whether all frames are taken.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Directions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Directions {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|directions| directions.as_str() == text);
        found.ok_or("write both, tx or rx")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_include_their_own() {
        let included =
            |directions: Directions| [Direction::Tx, Direction::Rx].map(|one| directions.include(one));
        assert_eq!(Directions::ALL.map(included), [[true, true], [true, false], [false, true]]);
        for directions in Directions::ALL {
            assert_eq!(serde_json::to_value(directions).unwrap(), directions.as_str());
            assert_eq!(directions.as_str().parse(), Ok(directions));
        }
        assert!("up".parse::<Directions>().is_err());
    }
}
