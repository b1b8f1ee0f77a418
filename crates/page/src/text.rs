//! Numbers and times as text.

use taut_api::calendar::Utc;
use taut_api::link::Link;
use taut_api::printable::printable;

/// Narrow space between groups of digits, at which no line is broken.
const GROUP: char = '\u{202f}';

/// Writes a bit rate with the unit that leaves one to three digits before the point.
pub fn rate(bits_per_s: f64) -> String {
    let units = [(1e9, "Gbps"), (1e6, "Mbps"), (1e3, "Kbps")];
    match units.iter().find(|(factor, _)| bits_per_s >= *factor) {
        Some((factor, unit)) => format!("{:.2}\u{a0}{unit}", bits_per_s / factor),
        None => format!("{bits_per_s:.0}\u{a0}bps"),
    }
}

/// Writes a count with its digits in groups of three.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(GROUP);
        }
        text.push(digit);
    }
    text
}

/// Writes how often something happens in a second.
pub fn per_second(number: f64) -> String {
    if number >= 100.0 || number == 0.0 { count(number.round() as u64) } else { format!("{number:.1}") }
}

/// Writes a percentage.
pub fn percent(number: f64) -> String {
    match number {
        0.0 => "0\u{a0}%".to_owned(),
        small if small < 0.01 => "<\u{a0}0.01\u{a0}%".to_owned(),
        small if small < 10.0 => format!("{small:.2}\u{a0}%"),
        large => format!("{large:.1}\u{a0}%"),
    }
}

/// Writes ready time as a percentage and as on ESX's charts, in ms of 20 s.
pub fn ready(number: f64) -> String {
    format!("{} ({}\u{a0}ms)", percent(number), count((number * 200.0).round() as u64))
}

/// Writes a number of bytes with a unit.
pub fn bytes(number: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| number >> shift > 0) {
        Some((shift, unit)) => format!("{:.1}\u{a0}{unit}", number as f64 / (1_u64 << shift) as f64),
        None => format!("{number}\u{a0}B"),
    }
}

/// Writes a duration in ms.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let units = [(86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")];
    match units.iter().find(|(size, ..)| seconds >= *size) {
        Some((size, unit, part, part_unit)) => match seconds % size / part {
            0 => format!("{}\u{a0}{unit}", seconds / size),
            rest => format!("{}\u{a0}{unit} {rest}\u{a0}{part_unit}", seconds / size),
        },
        None => format!("{:.1}\u{a0}s", ms as f64 / 1000.0),
    }
}

/// Writes a time of the wall clock in UTC, to the second.
pub fn time(ms: u64) -> String {
    Utc::from_ms(ms).to_string()
}

/// Writes a time of day in UTC, to the second.
pub fn time_of_day(ms: u64) -> String {
    Utc::from_ms(ms).time_of_day()
}

/// Most characters of a line of somebody's text.
const LONGEST_LINE: usize = 1000;
/// Most lines of such a text.
const MOST_LINES: usize = 20;

/// Returns a text of a stranger in a form that a page can show: without characters that change the
/// direction or the place of others, and of bounded length. It may have several lines.
pub fn shown(text: &str) -> String {
    let mut lines = text.lines();
    let shown = lines.by_ref().take(MOST_LINES).map(|line| printable(line, LONGEST_LINE));
    let mut shown = shown.collect::<Vec<_>>().join("\n");
    if lines.next().is_some() {
        shown.push_str("\n…");
    }
    shown
}

/// Returns the word for a link.
pub const fn link(link: Link) -> &'static str {
    match link {
        Link::Up => "up",
        Link::Down => "down",
        Link::Broken => "broken",
    }
}

/// Encodes a text as one part of a path or query.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Returns the address of the page of a VM.
pub fn vm_address(name: &str) -> String {
    format!("/vms/{}", encode(name))
}

/// Returns the address of the page of a port group.
pub fn portgroup_address(name: &str) -> String {
    format!("/portgroups/{}", encode(name))
}

/// Returns the address of the page of a VM that another program has started, by its process.
pub fn process_address(pid: u32) -> String {
    format!("/processes/{pid}")
}

/// Returns the address of the page of a port.
pub fn port_address(owner: &str) -> String {
    let parts: Vec<_> = owner.split('/').map(encode).collect();
    format!("/ports/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_groups() {
        assert_eq!(
            [0.0, 999.0, 1500.0, 12_345_678.0, 1e10].map(rate).map(|text| text.replace('\u{a0}', " ")),
            ["0 bps", "999 bps", "1.50 Kbps", "12.35 Mbps", "10.00 Gbps"]
        );
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(count),
            ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
        assert_eq!(bytes(1536).replace('\u{a0}', " "), "1.5 KiB");
        assert_eq!(bytes(u64::MAX).replace('\u{a0}', " "), "16777216.0 TiB");
        assert_eq!(ready(10.0).replace(['\u{a0}', '\u{202f}'], " "), "10.0 % (2 000 ms)");
        assert_eq!(
            [500, 61_000, 300_000, 7_200_000, 90_000_000]
                .map(duration)
                .map(|text| text.replace('\u{a0}', " ")),
            ["0.5 s", "1 min 1 s", "5 min", "2 h", "1 d 1 h"]
        );
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(time(0), "1970-01-01 00:00:00Z");
        assert_eq!(time(951_782_399_999), "2000-02-28 23:59:59Z");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00:00Z");
        assert_eq!(time(1_795_902_843_000), "2026-11-28 21:54:03Z");
        assert_eq!(time_of_day(1_795_902_843_000), "21:54:03Z");
        // The largest time has a date, too.
        assert!(time(u64::MAX).len() > 20);
    }

    #[test]
    fn text_of_strangers_keeps_its_place_and_has_bounds() {
        assert_eq!(shown("it said:\nno such disk"), "it said:\nno such disk");
        assert_eq!(shown("a\u{202e}b\0"), "a\u{fffd}b\u{fffd}");
        let much = shown(&"x".repeat(10_000)).chars().count() + shown(&"y\n".repeat(9_999)).len();
        assert_eq!(much, LONGEST_LINE + 2 * MOST_LINES + "…".len());
    }

    #[test]
    fn addresses_are_encoded() {
        assert_eq!(port_address("vm/web1/nic0"), "/ports/vm/web1/nic0");
        assert_eq!(encode("a b/<ü"), "a%20b%2F%3C%C3%BC");
    }
}
