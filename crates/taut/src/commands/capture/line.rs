//! A captured frame as one line: time of day in UTC, direction, addresses, VLAN, type, length.

use serde::Serialize;
use taut_api::MacAddr;

use super::blocks::Frame;

/// EtherType of a VLAN tag (IEEE 802.1Q).
const TAG: u16 = 0x8100;

/// The facts of a line.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    /// Time in nanoseconds since the Unix epoch.
    at_ns: u64,
    /// `tx` if the port has sent the frame, or else `rx`.
    direction: &'static str,
    /// Source address; absent if the frame is too short.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<MacAddr>,
    /// Destination address.
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<MacAddr>,
    /// VLAN of the frame's tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    /// EtherType, the one behind the tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    ether_type: Option<u16>,
    /// Length of the frame.
    len: u32,
    /// Reason, if the frame was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<&'a str>,
}

impl<'a> Line<'a> {
    /// Reads a frame's header.
    pub(super) fn of(frame: &Frame<'a>) -> Self {
        let bytes = frame.bytes;
        let short = |at: usize| bytes.get(at..)?.first_chunk().map(|short| u16::from_be_bytes(*short));
        let address = |at: usize| bytes.get(at..)?.first_chunk().map(|octets| MacAddr(*octets));
        let tag = short(12).filter(|kind| *kind == TAG).and_then(|_| short(14));
        Self {
            at_ns: frame.at_ns,
            direction: if frame.is_sent { "tx" } else { "rx" },
            source: address(6),
            destination: address(0),
            vlan: tag.map(|tag| tag & 0xfff),
            ether_type: if tag.is_some() { short(16) } else { short(12) },
            len: frame.len,
            dropped: frame.comment.and_then(|comment| comment.strip_prefix("drop: ")),
        }
    }

    /// Returns the line as text.
    pub(super) fn text(&self) -> String {
        let seconds = self.at_ns / 1_000_000_000;
        let clock = format!(
            "{:02}:{:02}:{:02}.{:09}",
            seconds / 3600 % 24,
            seconds / 60 % 60,
            seconds % 60,
            self.at_ns % 1_000_000_000
        );
        let address = |mac: Option<MacAddr>| mac.map_or("?".to_owned(), |mac| mac.to_string());
        let facts = [
            self.vlan.map(|vlan| format!("vlan {vlan}")),
            self.ether_type.map(type_name),
            Some(format!("{} bytes", self.len)),
            self.dropped.map(|reason| format!("drop: {reason}")),
        ];
        let facts: Vec<_> = facts.into_iter().flatten().collect();
        let (source, destination) = (address(self.source), address(self.destination));
        format!("{clock} {} {source} > {destination}, {}\n", self.direction, facts.join(", "))
    }
}

/// Returns the name of a type that is met everywhere, or its number.
fn type_name(ether_type: u16) -> String {
    match ether_type {
        0x0800 => "ipv4".to_owned(),
        0x0806 => "arp".to_owned(),
        0x86dd => "ipv6".to_owned(),
        other => format!("type {other:#06x}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn frame(bytes: &[u8]) -> Frame<'_> {
        let at_ns = 86_400_000_000_000 + 3_723_000_000_004;
        Frame { at_ns, is_sent: true, len: 60, bytes, lost: 0, comment: None }
    }

    fn line(frame: &Frame<'_>) -> String {
        Line::of(frame).text()
    }

    #[test]
    fn a_frame_is_one_line() {
        let mut bytes = vec![0xff; 6];
        bytes.extend([2, 0, 0, 0, 0, 1, 8, 6, 0, 1]);
        assert_eq!(
            line(&frame(&bytes)),
            "01:02:03.000000004 tx 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, arp, 60 bytes\n"
        );
        let tagged = [&bytes[..12], &[0x81, 0, 0xe0, 10, 0x88, 0xb5]].concat();
        let dropped = Frame { comment: Some("drop: shaper-full"), is_sent: false, ..frame(&tagged) };
        assert_eq!(
            line(&dropped),
            "01:02:03.000000004 rx 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, vlan 10, type 0x88b5, 60 bytes, \
             drop: shaper-full\n"
        );
        let json = serde_json::to_value(Line::of(&dropped)).unwrap();
        assert_eq!((&json["vlan"], &json["ether_type"]), (&json!(10), &json!(0x88b5)));
        assert_eq!((&json["dropped"], &json["source"]), (&json!("shaper-full"), &json!("02:00:00:00:00:01")));
    }

    #[test]
    fn what_a_short_frame_lacks_is_left_out() {
        assert_eq!(line(&frame(&[])), "01:02:03.000000004 tx ? > ?, 60 bytes\n");
        let short = [1; 13];
        assert!(line(&frame(&short)).ends_with(" 01:01:01:01:01:01 > 01:01:01:01:01:01, 60 bytes\n"));
        for len in 0..18 {
            let bytes = [0x81; 18];
            line(&frame(&bytes[..len]));
        }
    }
}
