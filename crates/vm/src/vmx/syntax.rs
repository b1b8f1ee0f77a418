//! The syntax of a `.vmx`: lines of `key = "value"`, and comments behind `#`.

/// Limits of a file. Real files stay far below them.
const MOST_LINES: usize = 4_000;
const MOST_KEY: usize = 256;
const MOST_VALUE: usize = 8192;

/// One line that sets a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Line number, from 1.
    pub(super) line: usize,
    /// The key as written. Keys are compared without regard to case.
    pub(super) key: String,
    /// The value between the quotes, with escapes such as `|22` resolved.
    pub(super) value: String,
}

/// Reason why a text is not a `.vmx`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SyntaxError {
    #[error("line {line} is not of the form key = \"value\": `{text}`")]
    NotAnEntry { line: usize, text: String },
    #[error("line {line}: the {what} has {length} bytes, more than {most}")]
    TooLong { line: usize, what: &'static str, length: usize, most: usize },
    #[error("the file has more than {MOST_LINES} lines")]
    TooManyLines,
}

/// Splits the text into its entries, in order. Skips empty lines, comments and a byte-order mark.
pub(super) fn entries(text: &str) -> Result<Vec<Entry>, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut entries = Vec::new();
    for (index, text) in text.lines().enumerate() {
        if index >= MOST_LINES {
            return Err(SyntaxError::TooManyLines);
        }
        let text = text.trim();
        if !text.is_empty() && !text.starts_with('#') {
            entries.push(entry(index + 1, text)?);
        }
    }
    Ok(entries)
}

fn entry(line: usize, text: &str) -> Result<Entry, SyntaxError> {
    let not_an_entry = || SyntaxError::NotAnEntry { line, text: text.chars().take(80).collect() };
    let (key, value) = text.split_once('=').ok_or_else(not_an_entry)?;
    let (key, value) = (key.trim(), value.trim());
    let legal = |c: char| c.is_ascii_graphic() && c != '"';
    if key.is_empty() || !key.chars().all(legal) {
        return Err(not_an_entry());
    }
    for (what, length, most) in [("key", key.len(), MOST_KEY), ("value", value.len(), MOST_VALUE)] {
        if length > most {
            return Err(SyntaxError::TooLong { line, what, length, most });
        }
    }
    Ok(Entry { line, key: key.to_owned(), value: unescaped(unquoted(value).ok_or_else(not_an_entry)?) })
}

/// The value without its quotes. Old files have none around plain words.
fn unquoted(value: &str) -> Option<&str> {
    match value.strip_prefix('"') {
        None => (!value.contains('"')).then(|| value.split('#').next().unwrap_or_default().trim()),
        Some(rest) => {
            let (inside, behind) = rest.split_once('"')?;
            let behind = behind.trim();
            (behind.is_empty() || behind.starts_with('#')).then_some(inside)
        }
    }
}

/// Resolves `|XX`, the byte with that hexadecimal number. Other bars stand for themselves.
fn unescaped(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, behind @ ..] = rest {
        let code = (*first == b'|').then(|| behind.get(..2)).flatten().and_then(hex);
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digits =
        std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        entries(text).unwrap().into_iter().map(|entry| (entry.key, entry.value)).collect()
    }

    #[test]
    fn entries_are_read_in_every_valid_form() {
        let text = "\u{feff}#!/usr/bin/vmware\r\n.encoding = \"UTF-8\"\r\n\n  memSize=\"512\"  # half a gig\r\n\
                    annotation = \"say |22hi|22|0Atwice | and |zz\"\nold = plain # word\nempty = \"\"\n";
        let expected = [
            (".encoding", "UTF-8"),
            ("memSize", "512"),
            ("annotation", "say \"hi\"\ntwice | and |zz"),
            ("old", "plain"),
            ("empty", ""),
        ];
        assert_eq!(pairs(text), expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn syntax_errors_name_their_line() {
        let message = |text: &str| entries(text).unwrap_err().to_string();
        assert_eq!(message("a = \"1\"\nnonsense\n"), "line 2 is not of the form key = \"value\": `nonsense`");
        for bad in ["= \"1\"", "a b = \"1\"", "a = \"1", "a = \"1\" 2", "a = x\"y", "ä = \"1\"", "[section]"]
        {
            assert!(entries(bad).is_err(), "{bad}");
        }
        let long = format!("a = \"{}\"", "x".repeat(9000));
        assert_eq!(message(&long), "line 1: the value has 9002 bytes, more than 8192");
        assert_eq!(message(&"\n".repeat(MOST_LINES + 2)), "the file has more than 4000 lines");
    }
}
