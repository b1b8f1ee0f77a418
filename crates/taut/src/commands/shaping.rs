//! Options for traffic shaping of port groups: a shape as text, or `off`.

use std::str::FromStr;

use clap::Args;
use taut_api::shaping::{BadShapeText, Shape, Shaping};
use taut_api::word::removes;

/// Shaping options of both directions. Absent options keep their values.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ShapingArgs {
    /// Shape what guests send ("outbound" or "ingress" on ESX): RATE, or
    /// average=RATE,peak=RATE,burst=SIZE, or off
    #[arg(long, value_name = "SHAPE")]
    to_switch: Option<Direction>,
    /// Shape what guests receive ("egress" on ESX's distributed switch): RATE, or
    /// average=RATE,peak=RATE,burst=SIZE, or off
    #[arg(long, value_name = "SHAPE")]
    to_guest: Option<Direction>,
}

impl ShapingArgs {
    pub(crate) fn change(&self, shaping: &mut Shaping) {
        for (given, place) in
            [(self.to_switch, &mut shaping.to_switch), (self.to_guest, &mut shaping.to_guest)]
        {
            if let Some(Direction(shape)) = given {
                *place = shape;
            }
        }
    }
}

/// Shape of one direction, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Direction(Option<Shape>);

impl FromStr for Direction {
    type Err = BadShapeText;

    fn from_str(text: &str) -> Result<Self, BadShapeText> {
        if removes(text) { Ok(Self(None)) } else { text.parse().map(|shape| Self(Some(shape))) }
    }
}

/// Renders a port group's shaping in one cell of a table.
pub(crate) fn cell(shaping: &Shaping) -> String {
    let direction = |name: &str, shape: Option<Shape>| shape.map(|shape| format!("{name} {shape}"));
    let both = [direction("to-switch", shaping.to_switch), direction("to-guest", shaping.to_guest)];
    both.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use taut_api::Bytes;
    use taut_api::units::BitRate;

    use super::*;

    #[test]
    fn shaping_options_change_only_the_given_direction() {
        let args = ShapingArgs {
            to_switch: Some("average=10Mbit,peak=20Mbit,burst=1MiB".parse().unwrap()),
            to_guest: None,
        };
        let mut shaping = Shaping { to_switch: None, to_guest: Some(Shape::steady(BitRate(64_000))) };
        args.change(&mut shaping);
        let expected =
            Shape { average: BitRate(10_000_000), peak: Some(BitRate(20_000_000)), burst: Bytes::mib(1) };
        assert_eq!(shaping.to_switch, Some(expected));
        assert_eq!(cell(&shaping), "to-switch 10Mbit peak 20Mbit burst 1MiB, to-guest 64kbit");
        ShapingArgs { to_switch: Some("off".parse().unwrap()), to_guest: Some("1Gbps".parse().unwrap()) }
            .change(&mut shaping);
        assert_eq!(cell(&shaping), "to-guest 1Gbit");
        ShapingArgs { to_switch: None, to_guest: Some("none".parse().unwrap()) }.change(&mut shaping);
        assert!(shaping.is_none());
    }
}
