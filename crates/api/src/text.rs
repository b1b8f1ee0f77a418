//! Types that documents write as text: their schema, and quantities that may also be numbers.
//!
//! Reading and writing itself is `serde_with`'s: `DeserializeFromStr` and `SerializeDisplay`.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de::Error};

/// Describes types as strings in the OpenAPI document.
macro_rules! schema_of_text {
    ($($name:ty),*) => {$(
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                String::schema()
            }
        }

        impl utoipa::ToSchema for $name {}
    )*};
}

/// Reads quantities, which documents may write as a number or as text with a unit.
macro_rules! deserialize_number_or_text {
    ($($name:ty),*) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::text::number_or_text(deserializer)
            }
        }
    )*};
}

pub(crate) use {deserialize_number_or_text, schema_of_text};

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

/// Reads a number or a text as `T` reads its text form.
pub(crate) fn number_or_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = match NumberOrText::deserialize(deserializer)? {
        NumberOrText::Number(number) => number.to_string(),
        NumberOrText::Text(text) => text,
    };
    text.parse().map_err(D::Error::custom)
}
