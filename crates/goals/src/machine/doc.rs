//! JSON documents, read by path. What is not there is not measured.

use serde_json::Value;

#[cfg(test)]
use super::stand_in::Grant;
use crate::reason::{Measured, NotMeasured};

/// JSON document, or a part of one. A path such as `cells.0.median.mbit_s` names fields and
/// indices; the empty path is the document itself. In tests a document may be granted: each path
/// then leads somewhere.
#[derive(Debug, Clone)]
pub struct Doc {
    kind: Kind,
    /// Path from the whole document, for messages.
    path: String,
}

#[derive(Debug, Clone)]
enum Kind {
    Read(Value),
    #[cfg(test)]
    Granted(Grant),
}

impl From<Value> for Doc {
    fn from(value: Value) -> Self {
        Self { kind: Kind::Read(value), path: String::new() }
    }
}

impl Doc {
    #[cfg(test)]
    pub(super) fn granted(grant: Grant) -> Self {
        Self { kind: Kind::Granted(grant), path: String::new() }
    }

    #[cfg(test)]
    fn grant(&self) -> Option<&Grant> {
        match &self.kind {
            Kind::Granted(grant) => Some(grant),
            Kind::Read(_) => None,
        }
    }

    /// Returns the value itself; null if it is granted.
    pub fn value(&self) -> &Value {
        match &self.kind {
            Kind::Read(value) => value,
            #[cfg(test)]
            Kind::Granted(_) => &Value::Null,
        }
    }

    /// Returns the part at a path, which may be null.
    fn find_path(&self, path: &str) -> Option<&Value> {
        path.split('.').filter(|step| !step.is_empty()).try_fold(self.value(), |value, step| match value {
            Value::Array(list) => list.get(step.parse::<usize>().ok()?),
            _ => value.get(step),
        })
    }

    fn named(&self, path: &str) -> String {
        [self.path.as_str(), path]
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(".")
    }

    fn lacks(&self, path: &str, wanted: &str) -> NotMeasured {
        let found = self.find_path(path).map_or_else(|| "absent".to_owned(), shortened);
        NotMeasured::because(format!("`{}` is {found}, not {wanted}", self.named(path)))
    }

    fn part(&self, value: &Value, path: &str) -> Self {
        Self { kind: Kind::Read(value.clone()), path: self.named(path) }
    }

    /// Returns true if there is something at a path other than null.
    pub fn has(&self, path: &str) -> bool {
        #[cfg(test)]
        if self.grant().is_some() {
            return true;
        }
        self.find_path(path).is_some_and(|value| !value.is_null())
    }

    /// Returns the part at a path. Fails if it is absent or null.
    pub fn at(&self, path: &str) -> Measured<Self> {
        #[cfg(test)]
        if self.grant().is_some() {
            return Ok(self.clone());
        }
        let value = self.find_path(path).filter(|value| !value.is_null());
        value.map(|value| self.part(value, path)).ok_or_else(|| self.lacks(path, "a document"))
    }

    /// Returns the number at a path. Fails unless it is a finite number.
    pub fn number(&self, path: &str) -> Measured<f64> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return Ok(grant.number());
        }
        let number = self.find_path(path).and_then(Value::as_f64).filter(|number| number.is_finite());
        number.ok_or_else(|| self.lacks(path, "a finite number"))
    }

    /// Returns the whole number at a path, such as a count or a process ID.
    pub fn count(&self, path: &str) -> Measured<u64> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return Ok(grant.number() as u64);
        }
        self.find_path(path).and_then(Value::as_u64).ok_or_else(|| self.lacks(path, "a whole number"))
    }

    /// Returns the text at a path.
    pub fn text(&self, path: &str) -> Measured<String> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return Ok(grant.word());
        }
        let text = self.find_path(path).and_then(Value::as_str).map(str::to_owned);
        text.ok_or_else(|| self.lacks(path, "a text"))
    }

    /// Returns the truth value at a path.
    pub fn flag(&self, path: &str) -> Measured<bool> {
        #[cfg(test)]
        if self.grant().is_some() {
            return Ok(true);
        }
        self.find_path(path).and_then(Value::as_bool).ok_or_else(|| self.lacks(path, "true or false"))
    }

    /// Returns the elements of the list at a path; it may be empty.
    pub fn list(&self, path: &str) -> Measured<Vec<Self>> {
        #[cfg(test)]
        if self.grant().is_some() {
            return Ok(vec![self.clone(); 3]);
        }
        let list =
            self.find_path(path).and_then(Value::as_array).ok_or_else(|| self.lacks(path, "a list"))?;
        let part = |(at, value): (usize, &Value)| self.part(value, &[path, &at.to_string()].join("."));
        Ok(list.iter().enumerate().map(part).collect())
    }

    /// Returns the number at `field` of each element of the list at a path. Fails if one is no
    /// finite number, or if the list is empty.
    pub fn numbers(&self, path: &str, field: &str) -> Measured<Vec<f64>> {
        let list = self.list(path)?;
        if list.is_empty() {
            return Err(NotMeasured::because(format!("`{}` is empty", self.named(path))));
        }
        list.iter().map(|element| element.number(field)).collect()
    }

    /// Returns the sum of the numbers at `field` of the list at a path. Fails like
    /// [`Doc::numbers`].
    pub fn sum(&self, path: &str, field: &str) -> Measured<f64> {
        Ok(self.numbers(path, field)?.iter().sum())
    }

    /// Returns the first element of the list at a path whose fields have these values; numbers are
    /// written as in JSON. Fails if there is none.
    pub fn find(&self, path: &str, fields: &[(&str, &str)]) -> Measured<Self> {
        let found = self.list(path)?.into_iter().find(|element| element.matches(fields));
        let wanted =
            || fields.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| {
            NotMeasured::because(format!("`{}` has no element with {}", self.named(path), wanted()))
        })
    }

    /// Returns true if the fields have these values; numbers are written as in JSON.
    pub fn matches(&self, fields: &[(&str, &str)]) -> bool {
        #[cfg(test)]
        if self.grant().is_some() {
            return true;
        }
        fields.iter().all(|(name, wanted)| match self.find_path(name) {
            Some(Value::String(text)) => text == wanted,
            Some(value) => serde_json::from_str::<Value>(wanted).is_ok_and(|wanted| wanted == *value),
            None => false,
        })
    }
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 {
        text
    } else {
        format!("{}…", text.chars().take(40).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_finite_number_is_not_measured() {
        let doc =
            Doc::from(json!({"a": null, "b": "7", "c": [], "d": {"e": 2.5}, "f": [{"g": 1}, {"g": null}]}));
        for path in ["a", "b", "c", "d", "x", "d.x", "c.0", "f.1.g"] {
            assert!(doc.number(path).is_err(), "{path}");
        }
        assert_eq!(doc.number("d.e"), Ok(2.5));
        assert!(doc.numbers("c", "g").is_err());
        assert!(doc.numbers("f", "g").is_err());
        assert!(doc.sum("f", "g").is_err());
        assert_eq!(doc.number("f.0.g"), Ok(1.0));
        let message = doc.list("f").unwrap()[1].number("g").unwrap_err();
        assert_eq!(message.reason(), "`f.1.g` is null, not a finite number");
    }

    #[test]
    fn elements_are_found_by_their_fields() {
        let cells = json!({"cells": [{"t": "tcp", "m": 64, "v": 1}, {"t": "vsock", "m": 64, "v": 2}]});
        let doc = Doc::from(cells);
        let found = doc.find("cells", &[("t", "vsock"), ("m", "64")]);
        assert_eq!(found.unwrap().number("v"), Ok(2.0));
        assert!(doc.find("cells", &[("t", "vsock"), ("m", "65")]).is_err());
    }
}
