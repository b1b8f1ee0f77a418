//! Encodes metrics and their labels.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelValue, LabelValueEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;

/// Name, explanation and reading of one counter. The encoder appends `_total` to the name.
pub(super) type Column<C, N = u64> = (&'static str, &'static str, fn(&C) -> N);

/// Labels of one sample.
pub(super) type Labels = Vec<(&'static str, Text)>;

/// Value of a label. The encoder of the library writes values as they are, and names of foreign VMs
/// may contain anything: a quote or the end of a line would let them add samples of their own.
#[derive(Debug, Clone)]
pub(super) struct Text(Cow<'static, str>);

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl EncodeLabelValue for Text {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(encoder, "\\{character}")?,
                '\n' => encoder.write_str("\\n")?,
                _ if character.is_control() => encoder.write_char(char::REPLACEMENT_CHARACTER)?,
                _ => encoder.write_char(character)?,
            }
        }
        Ok(())
    }
}

/// Begins a counter.
pub(super) fn counter<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

/// Begins a gauge.
pub(super) fn gauge<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}

/// Encodes a value of a counter.
pub(super) fn count(mut metric: MetricEncoder<'_>, value: u64) -> fmt::Result {
    metric.encode_counter::<Labels, _, u64>(&value, None)
}

/// Encodes a value of a counter of time, in seconds.
pub(super) fn seconds(mut metric: MetricEncoder<'_>, ns: u64) -> fmt::Result {
    metric.encode_counter::<Labels, _, u64>(&(ns as f64 / 1e9), None)
}
