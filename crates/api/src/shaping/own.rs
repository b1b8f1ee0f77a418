//! Shaping of a card beside that of its port group, and what is in force on a port.

use std::fmt;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Ref, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::{BadShapeText, Shape, Shaping};
use crate::word::removes;

/// Shaping of a card, each direction by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OwnShaping {
    /// Frames that the guest sends.
    #[serde(skip_serializing_if = "OwnShape::is_default")]
    pub to_switch: OwnShape,
    /// Frames that the guest receives.
    #[serde(skip_serializing_if = "OwnShape::is_default")]
    pub to_guest: OwnShape,
}

/// Shape of one direction of a card: a table as in a port group, `"off"`, or `"default"`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnShape {
    /// The port group's.
    #[default]
    Default,
    /// Not limited, whatever the port group says.
    Off,
    /// Limited, whatever the port group says.
    Limited(Shape),
}

/// Shaping in force on a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortShaping {
    /// Frames that the guest sends.
    pub to_switch: PortShape,
    /// Frames that the guest receives.
    pub to_guest: PortShape,
}

/// Shape in force in one direction of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortShape {
    /// The shape; absent if the direction is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// Where the shape, or its absence, comes from.
    pub origin: ShapeOrigin,
}

/// Origin of a [`PortShape`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShapeOrigin {
    /// The port group.
    #[default]
    Portgroup,
    /// The card.
    Own,
}

impl OwnShaping {
    /// Returns whether both directions are the port group's.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the limits of the card without those of its port group.
    pub fn limits(self) -> Shaping {
        let none = Shaping::default();
        self.beside(&none).shaping()
    }

    /// Returns what is in force on a card in a port group with this shaping.
    pub fn beside(self, portgroup: &Shaping) -> PortShaping {
        PortShaping {
            to_switch: self.to_switch.beside(portgroup.to_switch),
            to_guest: self.to_guest.beside(portgroup.to_guest),
        }
    }
}

impl OwnShape {
    /// Returns whether the shape is the port group's.
    pub fn is_default(&self) -> bool {
        *self == Self::Default
    }

    fn beside(self, portgroup: Option<Shape>) -> PortShape {
        match self {
            Self::Default => PortShape { shape: portgroup, origin: ShapeOrigin::Portgroup },
            Self::Off => PortShape { shape: None, origin: ShapeOrigin::Own },
            Self::Limited(shape) => PortShape { shape: Some(shape), origin: ShapeOrigin::Own },
        }
    }

    /// Reads a word of documents; the command line also writes `none`.
    fn word(text: &str) -> Option<Self> {
        match text {
            "default" => Some(Self::Default),
            text if removes(text) => Some(Self::Off),
            _ => None,
        }
    }
}

impl PortShaping {
    /// Returns the shapes without their origins.
    pub fn shaping(&self) -> Shaping {
        Shaping { to_switch: self.to_switch.shape, to_guest: self.to_guest.shape }
    }

    /// Returns whether the card has a shape of its own in any direction.
    pub fn has_own(&self) -> bool {
        [self.to_switch, self.to_guest].iter().any(|shape| shape.origin == ShapeOrigin::Own)
    }
}

impl FromStr for OwnShape {
    type Err = BadShapeText;

    fn from_str(text: &str) -> Result<Self, BadShapeText> {
        match Self::word(text) {
            Some(word) => Ok(word),
            None => text.parse().map(Self::Limited),
        }
    }
}

impl fmt::Display for OwnShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Off => f.write_str("off"),
            Self::Limited(shape) => shape.fmt(f),
        }
    }
}

/// Writes the shape with its origin, or `none` if neither card nor port group limits the direction.
impl fmt::Display for PortShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.shape, self.origin) {
            (None, ShapeOrigin::Portgroup) => f.write_str("none"),
            (None, ShapeOrigin::Own) => f.write_str("none (own)"),
            (Some(shape), ShapeOrigin::Portgroup) => write!(f, "{shape} (port group)"),
            (Some(shape), ShapeOrigin::Own) => write!(f, "{shape} (own)"),
        }
    }
}

impl Serialize for OwnShape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Limited(shape) => shape.serialize(serializer),
            word => serializer.collect_str(word),
        }
    }
}

impl<'de> Deserialize<'de> for OwnShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

/// Reads a table or a word. An error in the table is that of [`Shape`].
struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = OwnShape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table with `average`, or \"off\", or \"default\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<OwnShape, E> {
        OwnShape::word(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OwnShape, A::Error> {
        Shape::deserialize(MapAccessDeserializer::new(map)).map(OwnShape::Limited)
    }
}

impl PartialSchema for OwnShape {
    fn schema() -> RefOr<Schema> {
        let words = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["off", "default"]));
        OneOfBuilder::new().item(Ref::from_schema_name(Shape::name())).item(words).into()
    }
}

impl ToSchema for OwnShape {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BitRate;

    fn steady(rate: u64) -> Shape {
        Shape::steady(BitRate(rate))
    }

    #[test]
    fn each_direction_of_a_card_is_its_own_or_the_port_groups() {
        let group = Shaping { to_switch: Some(steady(1000)), to_guest: Some(steady(2000)) };
        let of = |json: &str| serde_json::from_str::<OwnShaping>(json).unwrap().beside(&group);
        let texts = |shaping: PortShaping| [shaping.to_switch.to_string(), shaping.to_guest.to_string()];
        assert_eq!(texts(of("{}")), ["1kbit (port group)", "2kbit (port group)"]);
        assert!(!of("{}").has_own() && of(r#"{"to_guest":"off"}"#).has_own());
        assert_eq!(texts(of(r#"{"to_guest":{"average":"3kbit"}}"#)), ["1kbit (port group)", "3kbit (own)"]);
        let off = of(r#"{"to_switch":"off","to_guest":"default"}"#);
        assert_eq!(texts(off), ["none (own)", "2kbit (port group)"]);
        assert_eq!(off.shaping(), Shaping { to_switch: None, ..group });
        assert_eq!(texts(OwnShaping::default().beside(&Shaping::default())), ["none", "none"]);
    }

    #[test]
    fn a_card_is_read_and_written_as_a_document_and_as_text() {
        for json in ["{}", r#"{"to_switch":"off"}"#, r#"{"to_guest":{"average":"1kbit","burst":"100MiB"}}"#] {
            let own: OwnShaping = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&own).unwrap(), json);
        }
        assert_eq!("none".parse(), Ok(OwnShape::Off));
        assert_eq!("default".parse(), Ok(OwnShape::Default));
        assert_eq!("1kbit".parse(), Ok(OwnShape::Limited(steady(1000))));
        assert!("fast".parse::<OwnShape>().is_err());
        let bad = |json: &str| serde_json::from_str::<OwnShaping>(json).unwrap_err().to_string();
        assert!(bad(r#"{"to_guest":"fast"}"#).contains("a table with `average`, or \"off\""));
        assert!(bad(r#"{"to_guest":{"averag":1}}"#).contains("unknown field `averag`"));
        assert!(bad(r#"{"egress":"off"}"#).contains("egress"));
    }
}
