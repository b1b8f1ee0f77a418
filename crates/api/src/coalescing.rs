//! Moderation of a vNIC's interrupts and kicks; ESX calls it *interrupt coalescing*.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::text::schema_of_text;

/// Moderation of a vNIC's interrupts and kicks: ESX's `coalescingScheme` with its
/// `coalescingParams`.
///
/// Written `disabled`, `static:PACKETS`, `rbc:RATE` or `adapt`; `static` and `rbc` alone take their
/// defaults. Users' documents cannot contain `dense`, which only the plan sets ([`NicCoalescing`],
/// [`Self::of`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum Coalescing {
    /// Send each interrupt that the guest wants at once, and take each kick at once.
    Disabled,
    /// Interrupt after this many packets, or 4 ms after the first one. The guest's transmit ring is
    /// polled by the same rule.
    Static {
        /// Number of packets, one of [`Self::PACKETS`].
        packets: u8,
    },
    /// Rate based: about this many interrupts per second under load, and no delay on an idle link.
    Rbc {
        /// Interrupts per second, one of [`Self::RATES`].
        rate: u32,
    },
    /// Batches grow with the load, and nothing waits longer than 50 µs.
    Adapt,
    /// Dense mode: like `static` with its default, but all guests are served and interrupted in
    /// common ticks of 4 ms, and a guest may kick only after it was idle. Only the plan sets it.
    Dense,
}

impl Coalescing {
    /// Range of the packets of `static`.
    pub const PACKETS: RangeInclusive<u8> = 1..=64;
    /// Default number of packets of `static`.
    pub const DEFAULT_PACKETS: u8 = 64;
    /// Range of the interrupts per second of `rbc`.
    pub const RATES: RangeInclusive<u32> = 100..=100_000;
    /// Default interrupts per second of `rbc` (ESX: `Net.CoalesceRBCRate`).
    pub const DEFAULT_RATE: u32 = 4000;

    /// Reads a scheme and its parameter as ESX writes them. `params` may be empty.
    ///
    /// # Errors
    /// If there is no such scheme, or the parameter is outside its range.
    pub fn of(scheme: &str, params: &str) -> Result<Self, BadCoalescing> {
        let (scheme, params) = (scheme.trim().to_ascii_lowercase(), params.trim());
        let unwanted = |parsed| {
            if params.is_empty() { Ok(parsed) } else { Err(BadCoalescing::Unwanted(scheme.clone())) }
        };
        match scheme.as_str() {
            "disabled" => unwanted(Self::Disabled),
            "adapt" => unwanted(Self::Adapt),
            "static" => match number(params, u32::from(Self::DEFAULT_PACKETS)) {
                Some(packets) if (1..=64).contains(&packets) => Ok(Self::Static { packets: packets as u8 }),
                _ => Err(BadCoalescing::Packets(params.to_owned())),
            },
            "rbc" => match number(params, Self::DEFAULT_RATE) {
                Some(rate) if Self::RATES.contains(&rate) => Ok(Self::Rbc { rate }),
                _ => Err(BadCoalescing::Rate(params.to_owned())),
            },
            _ => Err(BadCoalescing::Scheme(scheme)),
        }
    }
}

impl Coalescing {
    /// Reads the schemes that users may write.
    fn written(text: &str) -> Result<Self, BadCoalescing> {
        let (scheme, params) = text.split_once(':').unwrap_or((text, ""));
        Self::of(scheme, params)
    }
}

fn number(text: &str, default: u32) -> Option<u32> {
    if text.is_empty() { Some(default) } else { text.parse().ok() }
}

/// ESX's default (`Net.CoalesceScheme`).
impl Default for Coalescing {
    fn default() -> Self {
        Self::Rbc { rate: Self::DEFAULT_RATE }
    }
}

/// Why a text is not a [`Coalescing`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCoalescing {
    /// There is no such scheme.
    #[error("`{0}` is not a coalescing scheme: use disabled, static, rbc or adapt")]
    Scheme(String),
    /// The packets of `static` are outside their range.
    #[error("static coalescing takes 1 to 64 packets, not `{0}`")]
    Packets(String),
    /// The rate of `rbc` is outside its range.
    #[error("rbc coalescing takes 100 to 100000 interrupts per second, not `{0}`")]
    Rate(String),
    /// The scheme has no parameter.
    #[error("{0} coalescing has no parameter")]
    Unwanted(String),
}

impl FromStr for Coalescing {
    type Err = BadCoalescing;

    fn from_str(text: &str) -> Result<Self, BadCoalescing> {
        if text == "dense" { Ok(Self::Dense) } else { Self::written(text) }
    }
}

impl fmt::Display for Coalescing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("disabled"),
            Self::Static { packets } => write!(f, "static:{packets}"),
            Self::Rbc { rate } => write!(f, "rbc:{rate}"),
            Self::Adapt => f.write_str("adapt"),
            Self::Dense => f.write_str("dense"),
        }
    }
}

/// Moderation of a vNIC: a scheme of its own, or (`default`) the host's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum NicCoalescing {
    /// Follow the host's `Net.CoalesceScheme` and `Net.CoalesceParams`.
    #[default]
    HostDefault,
    /// Use this scheme.
    Own(Coalescing),
}

impl NicCoalescing {
    /// Returns whether the vNIC follows the host.
    pub fn is_default(&self) -> bool {
        *self == Self::HostDefault
    }

    /// Returns the scheme in force on a host with this default.
    pub fn or(self, host: Coalescing) -> Coalescing {
        match self {
            Self::HostDefault => host,
            Self::Own(own) => own,
        }
    }
}

impl FromStr for NicCoalescing {
    type Err = BadCoalescing;

    fn from_str(text: &str) -> Result<Self, BadCoalescing> {
        if text == "default" { Ok(Self::HostDefault) } else { Coalescing::written(text).map(Self::Own) }
    }
}

impl fmt::Display for NicCoalescing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostDefault => f.write_str("default"),
            Self::Own(own) => own.fmt(f),
        }
    }
}

schema_of_text!(Coalescing, NicCoalescing);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_is_read_as_it_is_written() {
        for text in ["disabled", "static:1", "static:64", "rbc:100", "rbc:100000", "adapt"] {
            assert_eq!(text.parse::<Coalescing>().unwrap().to_string(), text);
            assert_eq!(text.parse::<NicCoalescing>().unwrap().to_string(), text);
        }
        assert_eq!("dense".parse::<Coalescing>().unwrap().to_string(), "dense");
        assert_eq!("rbc".parse(), Ok(Coalescing::default()));
        assert_eq!("static".parse(), Ok(Coalescing::Static { packets: 64 }));
        assert_eq!("default".parse(), Ok(NicCoalescing::HostDefault));
        assert_eq!(Coalescing::of(" RBC ", ""), Ok(Coalescing::default()));
    }

    #[test]
    fn values_out_of_range_are_refused_with_their_text() {
        for (text, message) in [
            ("", "`` is not a coalescing scheme"),
            ("rbc4000", "`rbc4000` is not a coalescing scheme"),
            ("static:0", "1 to 64 packets, not `0`"),
            ("static:65", "1 to 64 packets, not `65`"),
            ("static:-1", "1 to 64 packets, not `-1`"),
            ("rbc:99", "100 to 100000 interrupts per second, not `99`"),
            ("rbc:100001", "not `100001`"),
            ("adapt:3", "adapt coalescing has no parameter"),
        ] {
            let error = text.parse::<Coalescing>().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn users_cannot_write_dense() {
        let refused = Err(BadCoalescing::Scheme("dense".to_owned()));
        assert_eq!(Coalescing::of("dense", ""), refused);
        assert_eq!("dense".parse::<NicCoalescing>(), refused.map(NicCoalescing::Own));
    }

    #[test]
    fn a_vnic_follows_the_host_unless_it_says_otherwise() {
        let host = Coalescing::Static { packets: 8 };
        assert_eq!(NicCoalescing::HostDefault.or(host), host);
        assert_eq!(NicCoalescing::Own(Coalescing::Adapt).or(host), Coalescing::Adapt);
    }
}
