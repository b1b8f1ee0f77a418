//! Text of strangers: a VM's owner chooses its name, and a program the names of its threads.

/// Largest number of characters that are shown of a name.
const LONGEST: usize = 80;

/// Returns a name that a terminal or a page can show: no control characters, none that change the
/// direction or have no width, and not too many.
pub fn printable(text: &str) -> String {
    printable_up_to(LONGEST, text)
}

/// Does the same for a text of at most so many characters, one or more.
pub fn printable_up_to(longest: usize, text: &str) -> String {
    let shown = |c: char| if is_shown(c) { c } else { char::REPLACEMENT_CHARACTER };
    let mut chars = text.chars().map(shown);
    let mut printable: String = chars.by_ref().take(longest).collect();
    if chars.next().is_some() {
        printable.pop();
        printable.push('…');
    }
    printable
}

/// Returns whether a character only appears where it stands.
fn is_shown(c: char) -> bool {
    let invisible = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !c.is_control() && !invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_replaced() {
        assert_eq!(printable("db \"1\", größer"), "db \"1\", größer");
        assert_eq!(printable("a\u{1b}[2Jb\n\u{9b}c\u{202e}d"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}c\u{fffd}d");
        let long = printable(&"x".repeat(5000));
        assert_eq!((long.chars().count(), long.ends_with("x…")), (80, true));
        assert_eq!(printable_up_to(3, "abcd"), "ab…");
    }
}
