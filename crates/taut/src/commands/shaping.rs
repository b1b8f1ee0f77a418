//! Options for traffic shaping: `10Mbit`, `average=10Mbit,peak=20Mbit,burst=1MiB`, or `off`.

use std::str::FromStr;

use clap::Args;
use taut_api::shaping::{Shape, Shaping};
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
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if removes(text) {
            return Ok(Self(None));
        }
        let (mut average, mut peak, mut burst) = (None, None, None);
        for part in text.split(',') {
            let (key, value) = part.split_once('=').unwrap_or(("average", part));
            match key {
                "average" => average = Some(value.parse().map_err(readable)?),
                "peak" => peak = Some(value.parse().map_err(readable)?),
                "burst" => burst = Some(value.parse().map_err(readable)?),
                _ => return Err(format!("`{key}` is not one of average, peak and burst")),
            }
        }
        let average = average.ok_or("the average rate is missing")?;
        let steady = Shape::steady(average);
        let shape = Shape { peak, burst: burst.unwrap_or(steady.burst), ..steady };
        shape.check().map_err(readable)?;
        Ok(Self(Some(shape)))
    }
}

fn readable(error: impl std::error::Error) -> String {
    error.to_string()
}

/// Renders the shape of one direction.
pub(crate) fn text(shape: Shape) -> String {
    match shape.peak {
        Some(peak) => format!("{} peak {peak} burst {}", shape.average, shape.burst),
        None => shape.average.to_string(),
    }
}

/// Renders a port group's shaping in one cell of a table.
pub(crate) fn cell(shaping: &Shaping) -> String {
    let direction = |name: &str, shape: Option<Shape>| shape.map(|shape| format!("{name} {}", text(shape)));
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

    #[test]
    fn a_bad_shape_is_refused_with_its_reason() {
        for (text, reason) in [
            ("peak=1Mbit", "the average rate is missing"),
            ("average=1Mbit,bursts=1", "`bursts` is not one of average, peak and burst"),
            ("2Mbit,peak=1Mbit", "peak rate of 1Mbit/s is below the average of 2Mbit/s"),
            ("fast", "`fast` is not a rate"),
        ] {
            let error = text.parse::<Direction>().unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
