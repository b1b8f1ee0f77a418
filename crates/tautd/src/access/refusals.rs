//! Counts of what was refused over TCP, and when an event tells of it.

use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two events about floods.
const REPEAT: Duration = Duration::from_secs(60);

/// Reason for refusing a connection or a request over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Too many connections are open, or an address opens them too fast.
    Connections,
    /// The client speaks HTTP without TLS.
    PlainHttp,
    /// The TLS handshake failed or took too long.
    Handshake,
    /// The head or the body of a request did not arrive in time.
    Slow,
    /// An address asks too often.
    AddressRate,
    /// A token is shown too often.
    TokenRate,
    /// Too many requests are being worked on.
    Busy,
    /// A request shows no token, or none that is valid.
    Unauthenticated,
    /// An address has shown wrong tokens too often.
    Attempts,
    /// A request names no host, or a write comes from another site.
    Origin,
    /// The request is too large.
    TooLarge,
}

impl Reason {
    /// All reasons.
    pub(crate) const ALL: [Self; 11] = [
        Self::Connections,
        Self::PlainHttp,
        Self::Handshake,
        Self::Slow,
        Self::AddressRate,
        Self::TokenRate,
        Self::Busy,
        Self::Unauthenticated,
        Self::Attempts,
        Self::Origin,
        Self::TooLarge,
    ];

    /// Returns the value of the metric's label.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::PlainHttp => "plain-http",
            Self::Handshake => "handshake",
            Self::Slow => "slow",
            Self::AddressRate => "address-rate",
            Self::TokenRate => "token-rate",
            Self::Busy => "busy",
            Self::Unauthenticated => "unauthenticated",
            Self::Attempts => "attempts",
            Self::Origin => "origin",
            Self::TooLarge => "too-large",
        }
    }

    /// Returns whether it tells of a flood, of which an operator should know.
    const fn is_flood(self) -> bool {
        matches!(self, Self::Connections | Self::AddressRate | Self::TokenRate | Self::Attempts)
    }
}

/// The counts since the daemon started.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounts {
    counts: [AtomicU64; Reason::ALL.len()],
    told: Mutex<LastEvent>,
}

/// Time of the last event, and the number of refusals since.
#[derive(Debug, Default)]
struct LastEvent {
    at: Option<Instant>,
    since: u64,
}

impl RefusalCounts {
    /// Counts a refusal. Returns the text of an event if it is time for one.
    pub(crate) fn note(&self, reason: Reason, from: IpAddr, now: Instant) -> Option<String> {
        self.counts[reason as usize].fetch_add(1, Relaxed);
        if !reason.is_flood() {
            return None;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.at.is_some_and(|at| now < at + REPEAT) {
            told.since += 1;
            return None;
        }
        told.at = Some(now);
        let before = std::mem::take(&mut told.since);
        let code = reason.code();
        Some(match before {
            0 => format!("refused over TCP: {from} ({code})"),
            _ => format!("refused over TCP: {from} ({code}), after {before} other refusals"),
        })
    }

    /// Returns the number of refusals for each reason.
    pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
        let count = |reason: Reason| (reason.code(), self.counts[reason as usize].load(Relaxed));
        Reason::ALL.into_iter().map(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_place_and_a_code_of_its_own() {
        let codes: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
        assert!(Reason::ALL.iter().enumerate().all(|(place, reason)| *reason as usize == place));
    }

    #[test]
    fn a_flood_is_told_once_a_minute_and_counted_always() {
        let (turned, start) = (RefusalCounts::default(), Instant::now());
        let from = IpAddr::from([192, 0, 2, 1]);
        let told = |reason, seconds| turned.note(reason, from, start + Duration::from_secs(seconds));
        assert_eq!(told(Reason::Unauthenticated, 0), None);
        assert_eq!(told(Reason::AddressRate, 0).unwrap(), "refused over TCP: 192.0.2.1 (address-rate)");
        let later = (0..1000).filter_map(|n| told(Reason::AddressRate, n % 60)).count();
        assert_eq!(later, 0);
        assert!(turned.all().contains(&("address-rate", 1001)), "{:?}", turned.all());
        assert!(told(Reason::Attempts, 60).unwrap().ends_with("(attempts), after 1000 other refusals"));
        assert!(turned.all().contains(&("unauthenticated", 1)));
    }
}
