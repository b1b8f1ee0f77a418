//! Lines of bounded length from a byte stream.

use std::io::{self, BufRead};

use super::protocol::MAX_LINE;

/// One line, or the reason why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its newline.
    Whole(Vec<u8>),
    /// A line longer than [`MAX_LINE`]; it was skipped.
    TooLong,
    /// The stream ended. Bytes without a newline before the end are dropped.
    End,
}

/// Reads up to the next newline.
pub(super) fn next(reader: &mut impl BufRead) -> io::Result<Line> {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let available = match reader.fill_buf() {
            Ok([]) => return Ok(Line::End),
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let newline = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..newline.unwrap_or(available.len())];
        // The newline counts, so the rest of a line is at most one byte shorter.
        too_long |= line.len() + part.len() >= MAX_LINE;
        if !too_long {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(newline.is_some());
        reader.consume(used);
        if newline.is_some() {
            return Ok(if too_long { Line::TooLong } else { Line::Whole(line) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn all(bytes: &[u8]) -> Vec<Line> {
        let mut reader = BufReader::with_capacity(7, bytes);
        std::iter::from_fn(|| Some(next(&mut reader).unwrap()).filter(|line| *line != Line::End)).collect()
    }

    #[test]
    fn lines_end_at_newlines_only() {
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        assert_eq!(
            all(b"\none line\n\0\xff\nhalf"),
            [whole(""), whole("one line"), Line::Whole(vec![0, 0xff])]
        );
    }

    #[test]
    fn a_line_over_the_limit_is_skipped_and_the_next_is_read() {
        let mut bytes = vec![b'x'; MAX_LINE - 1];
        bytes.push(b'\n');
        assert_eq!(all(&bytes).len(), 1);
        assert_ne!(all(&bytes)[0], Line::TooLong);
        bytes.insert(0, b'x');
        bytes.extend(b"next\n");
        assert_eq!(all(&bytes), [Line::TooLong, Line::Whole(b"next".to_vec())]);
    }
}
