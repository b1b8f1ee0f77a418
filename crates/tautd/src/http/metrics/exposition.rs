//! Reads metrics as Prometheus does, and checks them against its conventions: for tests.

use std::collections::{BTreeMap, BTreeSet};

use super::format::Format;

/// Units that are not base units, and words that belong into labels or types.
const BAD_WORDS: [&str; 11] =
    ["ms", "us", "ns", "milliseconds", "minutes", "percent", "bits", "kib", "mib", "counter", "gauge"];

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

/// A family of metrics whose samples are being read.
#[derive(Debug, Default)]
struct Family {
    /// Name of its samples.
    sample: String,
    is_counter: bool,
}

/// Reads metrics.
///
/// # Panics
/// The text breaks a rule of the format or a convention.
pub(super) fn read(text: &str, format: Format) -> Vec<Sample> {
    let text = match format {
        Format::OpenMetrics => text.strip_suffix("# EOF\n").expect("the end is marked"),
        Format::Plain => text,
    };
    assert!(text.ends_with('\n'), "the last line is whole");
    let (mut samples, mut series, mut families) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let (mut helped, mut family) = (None, Family::default());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("name and text");
            assert!(help.len() > 5 && helped.is_none(), "{line}");
            helped = Some(name);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("name and type");
            assert_eq!(helped.take(), Some(name), "an explanation comes first: {line}");
            assert!(families.insert(name.to_owned()), "declared twice: {line}");
            check_name(name);
            family = Family { sample: name.to_owned(), is_counter: kind == "counter" };
            assert!(family.is_counter || kind == "gauge", "{line}");
            if family.is_counter && format == Format::OpenMetrics {
                assert!(!name.ends_with("_total"), "{line}");
                family.sample += "_total";
            }
            assert_eq!(family.is_counter, family.sample.ends_with("_total"), "{line}");
        } else {
            assert!(!line.starts_with('#') && helped.is_none(), "{line}");
            let sample = sample(line);
            assert_eq!(sample.name, family.sample, "samples follow their declaration: {line}");
            assert!(!family.is_counter || sample.value >= 0.0, "{line}");
            assert!(series.insert((sample.name.clone(), sample.labels.clone())), "the same series: {line}");
            samples.push(sample);
        }
    }
    samples
}

fn check_name(name: &str) {
    let is_plain =
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    assert!(is_plain && name.starts_with("taut_") && !name.contains("__"), "{name}");
    let bad = name.split('_').find(|word| BAD_WORDS.contains(word));
    assert_eq!(bad, None, "{name}");
}

/// Reads `name{key="value",…} number`.
fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a name");
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"").expect("a label");
            let key = key.trim_start_matches(',');
            assert!(key.bytes().all(|byte| byte.is_ascii_lowercase()), "{line}");
            let (value, after) = quoted(after);
            assert!(labels.insert(key.to_owned(), value).is_none(), "the same label: {line}");
            rest = after;
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("a value").parse().expect("a number and no more");
    Sample { name: name.to_owned(), labels, value }
}

/// Reads text up to a quote. Returns it and what is behind the quote.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut rest = text.char_indices();
    while let Some((at, character)) = rest.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => match rest.next().map(|(_, escaped)| escaped) {
                Some('n') => value.push('\n'),
                Some(escaped @ ('"' | '\\')) => value.push(escaped),
                other => panic!("no escape: {other:?}"),
            },
            _ => value.push(character),
        }
    }
    panic!("no end of the value: {text}");
}
