//! Times of the wall clock as dates in UTC: the one place that knows the calendar.
//!
//! The days of a year are counted from March on, so that a leap day is the last one (Howard
//! Hinnant, "chrono-Compatible Low-Level Date Algorithms"). Like Unix time, it has no leap seconds.

use std::fmt;

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// A second of the Gregorian calendar in UTC. Printed as RFC 3339 has it, with a space between date
/// and time of day: `2024-02-29 12:34:56Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Utc {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Utc {
    /// Returns the second of a time in milliseconds since the Unix epoch.
    pub const fn from_ms(ms: u64) -> Self {
        let (year, month, day) = date(ms / DAY_MS);
        let second = ms % DAY_MS / 1000;
        Self { year, month, day, hour: second / 3600, minute: second / 60 % 60, second: second % 60 }
    }

    /// Returns the time of day: `12:34:56Z`.
    pub fn time_of_day(self) -> String {
        format!("{:02}:{:02}:{:02}Z", self.hour, self.minute, self.second)
    }

    /// Returns the time as part of a file's name: `20240229-123456`.
    pub fn file_name(self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04}-{:02}-{:02} {}", self.year, self.month, self.day, self.time_of_day())
    }
}

/// Returns year, month and day of a day, counted from 1970-01-01.
const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let (month, year) = if from_march < 10 { (from_march + 3, 0) } else { (from_march - 9, 1) };
    (era * 400 + year_of_era + year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds: u64| Utc::from_ms(1000 * seconds + 999);
        assert_eq!(at(0).to_string(), "1970-01-01 00:00:00Z");
        assert_eq!(at(1_709_210_096).to_string(), "2024-02-29 12:34:56Z");
        assert_eq!(at(1_709_210_096).time_of_day(), "12:34:56Z");
        assert_eq!(at(1_795_374_845).file_name(), "20261122-191405");
        for (day, expected) in [
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_453, (2025, 12, 31)),
            (20_454, (2026, 1, 1)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(day), expected);
        }
        // Any number is a time, also one that a hostile clock has made.
        assert!(Utc::from_ms(u64::MAX) > at(0));
    }
}
