//! Text that a program or the kernel wrote.

use super::Doc;
#[cfg(test)]
use super::stand_in::Grant;
use crate::reason::{Measured, NotMeasured};

/// Text that a program or the kernel wrote. In tests it may be granted: each question finds an
/// answer then.
#[derive(Debug, Clone)]
pub struct Text(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Read(String),
    #[cfg(test)]
    Granted(Grant),
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Kind::Read(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Kind::Read(text.to_owned()))
    }
}

impl Text {
    #[cfg(test)]
    pub(super) fn granted(grant: Grant) -> Self {
        Self(Kind::Granted(grant))
    }

    #[cfg(test)]
    fn grant(&self) -> Option<&Grant> {
        match &self.0 {
            Kind::Granted(grant) => Some(grant),
            Kind::Read(_) => None,
        }
    }

    /// The text itself; empty if it is granted.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Kind::Read(text) => text,
            #[cfg(test)]
            Kind::Granted(_) => "",
        }
    }

    /// The text without spaces and line breaks around it.
    pub fn trimmed(&self) -> &str {
        self.as_str().trim()
    }

    /// Returns true if the text contains `part`.
    pub fn contains(&self, part: &str) -> bool {
        #[cfg(test)]
        if self.grant().is_some() {
            return true;
        }
        self.as_str().contains(part)
    }

    /// Returns what is between `before` and `after` where they first are in one line. An empty
    /// `after` stands for the end of the line.
    pub fn between(&self, before: &str, after: &str) -> Measured<String> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return Ok(grant.word());
        }
        self.all_between(before, after).into_iter().next().ok_or_else(|| missing(before, after))
    }

    /// Returns what is between `before` and `after` in every line that has them.
    pub fn all_between(&self, before: &str, after: &str) -> Vec<String> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return vec![grant.word()];
        }
        let found = self.as_str().lines().filter_map(|line| {
            let rest = line.split_once(before)?.1;
            let part = if after.is_empty() { rest } else { rest.split_once(after)?.0 };
            Some(part.trim().to_owned())
        });
        found.collect()
    }

    /// Returns the number between `before` and `after` like [`Text::between`].
    pub fn number_between(&self, before: &str, after: &str) -> Measured<f64> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return Ok(grant.number());
        }
        number(&self.between(before, after)?)
    }

    /// Returns the numbers between `before` and `after` in every line that has them.
    pub fn numbers_between(&self, before: &str, after: &str) -> Measured<Vec<f64>> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return Ok(vec![grant.number(), grant.number(), grant.number()]);
        }
        self.all_between(before, after).iter().map(|text| number(text)).collect()
    }

    /// Returns the whole text as a number.
    pub fn number(&self) -> Measured<f64> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return Ok(grant.number());
        }
        number(self.trimmed())
    }

    /// Parses the text as one JSON document.
    pub fn json(&self) -> Measured<Doc> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return Ok(Doc::granted(grant.clone()));
        }
        Ok(Doc::from(serde_json::from_str::<serde_json::Value>(self.as_str())?))
    }

    /// Parses the text as JSON documents, one after the other.
    pub fn jsons(&self) -> Measured<Vec<Doc>> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return Ok(vec![Doc::granted(grant.clone()); 3]);
        }
        let documents = serde_json::Deserializer::from_str(self.as_str()).into_iter::<serde_json::Value>();
        documents.map(|document| Ok(Doc::from(document?))).collect()
    }

    /// Returns the lines; one if the text is granted.
    pub fn lines(&self) -> Vec<&str> {
        #[cfg(test)]
        if self.grant().is_some() {
            return vec![""];
        }
        self.as_str().lines().collect()
    }

    /// Returns the parts that each end with `end`, such as the words of a command line.
    pub fn parts(&self, end: char) -> Vec<String> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return vec![grant.word()];
        }
        self.as_str().split_terminator(end).map(str::to_owned).collect()
    }

    /// Returns the last lines that are not empty.
    pub fn last_lines(&self, count: usize) -> String {
        let lines: Vec<&str> = self.as_str().lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }
}

fn missing(before: &str, after: &str) -> NotMeasured {
    NotMeasured::because(format!("there is nothing between `{before}` and `{after}` in the output"))
}

fn number(text: &str) -> Measured<f64> {
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| NotMeasured::because(format!("`{text}` is no finite number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_or_missing() {
        let text = Text::from("a\ntest result: ok. 12 passed; 0 failed\nloss NaN %\nlost inf %\n");
        assert_eq!(text.number_between("ok. ", " passed"), Ok(12.0));
        assert!(text.number_between("loss ", " %").is_err());
        assert!(text.number_between("lost ", " %").is_err());
        assert!(text.number_between("took ", " ms").is_err());
        assert_eq!(text.between("ok. 12 ", ""), Ok("passed; 0 failed".to_owned()));
    }

    #[test]
    fn what_is_no_json_is_no_document() {
        for text in ["", "{", "{\"a\": NaN}", "Killed"] {
            assert!(Text::from(text).json().is_err(), "{text}");
        }
        assert_eq!(Text::from("{\"a\": 1}\n{\"a\": 2}\n").jsons().unwrap().len(), 2);
        assert!(Text::from("{\"a\": 1}\n{\"a\": ").jsons().is_err());
    }
}
