//! Text forms: `nfs`, `high`, and `shares=high,reservation=100Mbit,limit=1Gbit`.

use std::fmt;
use std::str::FromStr;

use super::{NetworkAllocation, NetworkShares, TrafficClass};
use crate::units::{BadBitRate, BitRate};
use crate::word::removes;

/// Why a text is not a class of traffic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a class of traffic: write management, faulttolerance, nfs, iscsi, vsan, vmotion, hbr, vdp or \
     virtualmachine"
)]
pub struct BadTrafficClass(pub String);

/// Why a text is not a number of shares.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a number of shares: write low, normal, high, or a number from 1 to 100")]
pub struct BadNetworkShares(pub String);

/// Why an allocation cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAllocation {
    /// A rate is too low.
    #[error("{name} of {rate}/s is below the lowest rate of {}/s", NetworkAllocation::LEAST)]
    Low {
        /// `limit` or `reservation`.
        name: &'static str,
        /// The rate.
        rate: BitRate,
    },
    /// The reservation can never be used.
    #[error("reservation of {reservation}/s is above the limit of {limit}/s")]
    AboveLimit {
        /// The reservation.
        reservation: BitRate,
        /// The limit.
        limit: BitRate,
    },
    /// The number of shares is not valid.
    #[error(transparent)]
    Shares(#[from] BadNetworkShares),
    /// A rate is not valid.
    #[error(transparent)]
    Rate(#[from] BadBitRate),
    /// The text has another form.
    #[error(
        "`{0}` is not an allocation: write shares=SHARES,reservation=RATE,limit=RATE, of which any may be left out, \
         or default"
    )]
    Form(String),
}

impl fmt::Display for TrafficClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for TrafficClass {
    type Err = BadTrafficClass;

    fn from_str(text: &str) -> Result<Self, BadTrafficClass> {
        let found = Self::ALL.into_iter().find(|class| class.as_str() == text);
        found.ok_or_else(|| BadTrafficClass(text.to_owned()))
    }
}

impl fmt::Display for NetworkShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Low => f.pad("low"),
            Self::Normal => f.pad("normal"),
            Self::High => f.pad("high"),
            Self::Custom(number) => f.pad(&number.to_string()),
        }
    }
}

impl FromStr for NetworkShares {
    type Err = BadNetworkShares;

    fn from_str(text: &str) -> Result<Self, BadNetworkShares> {
        match text.trim().to_ascii_lowercase().as_str() {
            "low" => Ok(Self::Low),
            "normal" => Ok(Self::Normal),
            "high" => Ok(Self::High),
            number => {
                let number = number.parse().ok().filter(|number| (1..=Self::MOST).contains(number));
                number.map(Self::Custom).ok_or_else(|| BadNetworkShares(text.to_owned()))
            }
        }
    }
}

impl fmt::Display for NetworkAllocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shares={}", self.shares)?;
        for (name, rate) in [("reservation", self.reservation), ("limit", self.limit)] {
            if let Some(rate) = rate {
                write!(f, ",{name}={rate}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for NetworkAllocation {
    type Err = BadAllocation;

    /// Reads an allocation. What is left out has its default: normal shares, no reservation, no
    /// limit.
    fn from_str(text: &str) -> Result<Self, BadAllocation> {
        let mut allocation = Self::default();
        if text.trim() == "default" {
            return Ok(allocation);
        }
        let bad = || BadAllocation::Form(text.to_owned());
        let rate = |value: &str| -> Result<Option<BitRate>, BadAllocation> {
            if removes(value) { Ok(None) } else { Ok(Some(value.parse()?)) }
        };
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(bad)?;
            match name.trim() {
                "shares" => allocation.shares = value.parse()?,
                "reservation" => allocation.reservation = rate(value)?,
                "limit" => allocation.limit = rate(value)?,
                _ => return Err(bad()),
            }
        }
        Ok(allocation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_read_as_it_is_written() {
        for text in ["shares=normal", "shares=7,limit=1Gbit", "shares=high,reservation=100Mbit,limit=2Gbit"] {
            assert_eq!(text.parse::<NetworkAllocation>().unwrap().to_string(), text);
        }
        let read = |text: &str| text.parse::<NetworkAllocation>();
        assert_eq!(read("default"), Ok(NetworkAllocation::default()));
        assert_eq!(
            read("limit=none,reservation=1Mbit").unwrap().to_string(),
            "shares=normal,reservation=1Mbit"
        );
        for wrong in ["", "high", "shares=0", "shares=101", "limit=fast", "weight=3"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
