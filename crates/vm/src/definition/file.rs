//! taut's VM file: TOML with the keys of [`VmSpec`] and `name`.

use std::borrow::Cow;
use std::cmp::Reverse;

use serde::Deserialize as _;
use taut_api::vm::VmSpec;
use taut_api::{ApiError, Name};
use toml::de::{DeTable, DeValue, Deserializer};

use crate::error::invalid;
use crate::parsed::Parsed;

/// A key that only the file's outermost table has.
const KEY_OF_FILE: &str = "`latency_sensitivity`";

/// Reads the text of a VM file. Paths stay as written; nothing outside the text is accessed.
pub(super) fn read(text: &str) -> Result<Parsed, ApiError> {
    let mut table = DeTable::parse(text).map_err(|error| explain(text, &error))?;
    let name = match table.get_mut().remove("name") {
        None => None,
        Some(value) => Some(read_name(text, value.get_ref(), value.span().start)?),
    };
    let spec = VmSpec::deserialize(Deserializer::from(table)).map_err(|error| explain(text, &error))?;
    Ok(Parsed { name, spec, imported: Vec::new() })
}

fn read_name(text: &str, value: &DeValue<'_>, at: usize) -> Result<Name, ApiError> {
    let line = line_of(text, at);
    let DeValue::String(name) = value else {
        return Err(invalid(format!("line {line}: `name` is not text"), "write it as name = \"db1\""));
    };
    name.parse().map_err(|error| {
        invalid(format!("line {line}: {error}"), "choose another `name`, or give one with --name")
    })
}

/// The error of the TOML reader with its line, and a hint at the key that was probably meant.
fn explain(text: &str, error: &toml::de::Error) -> ApiError {
    let place = error.span().map(|span| format!("line {}: ", line_of(text, span.start))).unwrap_or_default();
    let message = with_name(error.message());
    let hint = unknown_field(&message)
        .unwrap_or_else(|| "`taut vm create --help` shows a VM file with every key".to_owned());
    invalid(format!("{place}{message}"), hint)
}

/// Adds `name`, which is read apart from the rest, to a list of the file's known keys.
fn with_name(message: &str) -> Cow<'_, str> {
    let listed = ", expected one of ";
    match message.split_once(listed) {
        Some((unknown, known)) if known.contains(KEY_OF_FILE) => {
            format!("{unknown}{listed}`name`, {known}").into()
        }
        _ => message.into(),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// The hint for an unknown field: the most similar key of this table, or all its keys.
fn unknown_field(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = quoted.next().filter(|_| message.starts_with("unknown "))?;
    let known: Vec<&str> = quoted.collect();
    // Of two keys with the same distance, the longer one: users omit letters more often than they
    // add some.
    let nearest = known.iter().min_by_key(|key| (distance(unknown, key), Reverse(key.len()), **key))?;
    Some(if distance(unknown, nearest) <= unknown.len().div_ceil(3) {
        format!("did you mean `{nearest}`?")
    } else {
        format!("known here: {}", known.join(", "))
    })
}

/// Levenshtein distance of two texts.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
