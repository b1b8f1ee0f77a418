//! Looks for a text in all that a program can map.

use std::error::Error;

use crate::mapped::{Mapped, PAGE, Pipe};

/// Bytes behind the device that are tried.
const BEYOND: usize = 8 << 20;

/// Prints how often the text is in the device, and how many pages behind its end can be read.
pub(crate) fn run(device: &str, size: usize, text: &str) -> Result<(), Box<dyn Error>> {
    if text.is_empty() {
        return Err("the text is empty".into());
    }
    let memory = Mapped::new(device, size, BEYOND)?;
    let mut pipe = Pipe::new()?;
    let (mut found, mut pages, mut behind) = (0, 0, 0);
    // The end of the last page, in which the text may begin.
    let mut before = Vec::new();
    for offset in (0..memory.len() + memory.beyond()).step_by(PAGE) {
        let Some(page) = memory.page(offset, &mut pipe) else {
            before.clear();
            continue;
        };
        if offset < memory.len() {
            pages += 1;
        } else {
            behind += 1;
        }
        before.extend(page);
        found += count(&before, text.as_bytes());
        before.drain(..before.len() - (text.len() - 1).min(before.len()));
    }
    println!(
        "search: {found} places, {pages} of {} pages read, {behind} pages behind the end read.",
        memory.len() / PAGE
    );
    Ok(())
}

/// Counts the places of a text.
fn count(bytes: &[u8], text: &[u8]) -> usize {
    let Some(&first) = text.first() else { return 0 };
    let mut places = 0;
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&byte| byte == first) {
        rest = &rest[at..];
        places += usize::from(rest.starts_with(text));
        rest = &rest[1..];
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted() {
        assert_eq!(count(b"xsecretsecrets", b"secret"), 2);
        assert_eq!(count(b"secre", b"secret"), 0);
        assert_eq!(count(b"", b"secret"), 0);
    }
}
