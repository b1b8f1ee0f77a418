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

    /// Returns the lines between the first one that begins with `before` and the next one that
    /// begins with `after`.
    pub fn section(&self, before: &str, after: &str) -> Measured<Self> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return Ok(Self::granted(grant.clone()));
        }
        let lines: Vec<&str> = self.as_str().lines().collect();
        let begin = lines.iter().position(|line| line.starts_with(before));
        let rest = begin.map_or(&[][..], |begin| &lines[begin + 1..]);
        let end = rest.iter().position(|line| line.starts_with(after));
        end.map(|end| Self::from(rest[..end].join("\n"))).ok_or_else(|| missing(before, after))
    }

    /// Returns the number in the column `name` of a table of quoted values that commas separate: a
    /// line of names, and a line of values behind it.
    pub fn column(&self, name: &str) -> Measured<f64> {
        #[cfg(test)]
        if let Some(grant) = self.grant() {
            return Ok(grant.number());
        }
        let cells = |line: &str| -> Vec<String> {
            line.trim().trim_matches('"').split("\",\"").map(str::to_owned).collect()
        };
        let mut lines = self.as_str().lines().skip_while(|line| !line.contains(&format!("\"{name}\"")));
        let names = lines.next().map(cells).unwrap_or_default();
        let values = lines.next().map(cells).unwrap_or_default();
        let value = names.iter().position(|other| other == name).and_then(|at| values.get(at));
        let missing = || NotMeasured::because(format!("there is no column `{name}` in the output"));
        number(value.filter(|_| names.len() == values.len()).ok_or_else(missing)?)
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
    fn a_section_has_both_of_its_ends() {
        let text = Text::from("OK 1025\na\nstatus\nb\nstatus 0.\n");
        assert_eq!(text.section("OK ", "status 0.").unwrap().as_str(), "a\nstatus\nb");
        assert_eq!(Text::from("OK 7\nstatus 0.\n").section("OK ", "status 0.").unwrap().as_str(), "");
        assert!(text.section("OK ", "status 1.").is_err());
        assert!(text.section("NO ", "status 0.").is_err());
        assert!(Text::from("status 0.\nOK 7\n").section("OK ", "status 0.").is_err());
    }

    #[test]
    fn a_column_is_found_by_its_name() {
        let text = Text::from("warning\n\"test\",\"rps\",\"p50\"\n\"ECHO 00\",\"810.5\",\"0.655\"\n");
        assert_eq!((text.column("rps"), text.column("p50")), (Ok(810.5), Ok(0.655)));
        for (text, name) in [
            ("\"test\",\"rps\"\n\"ECHO\",\"1\"\n", "p50"),
            ("\"test\",\"p50\"\n", "p50"),
            ("\"test\",\"p50\",\"p99\"\n\"ECHO\",\"1\"\n", "p50"),
            ("\"test\",\"p50\"\n\"ECHO\",\"nan\"\n", "p50"),
            ("", "p50"),
        ] {
            assert!(Text::from(text).column(name).is_err(), "{text}");
        }
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
