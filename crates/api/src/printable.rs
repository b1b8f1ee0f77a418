//! Text of strangers. The owner of a foreign VM chooses its name, and a program those of its
//! threads. Such text is made harmless once, where it is read: after that, terminals, pages, files
//! and labels of metrics may hold it.

/// Most characters of a name that a stranger has chosen. vSphere allows 80 for a VM.
pub const MOST_NAME: usize = 128;

/// Returns a text of at most `most` characters. Each control character, and each character that is
/// invisible or changes the direction, is replaced by U+FFFD. A longer text ends in `…`.
pub fn printable(text: &str, most: usize) -> String {
    let shown = |c: char| if is_shown(c) { c } else { char::REPLACEMENT_CHARACTER };
    let mut chars = text.chars().map(shown);
    let mut printable: String = chars.by_ref().take(most).collect();
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
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !c.is_control() && !invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_terminal_would_obey_are_replaced() {
        assert_eq!(printable("db \"1\", größer", 80), "db \"1\", größer");
        let hostile = "a\u{1b}[2Jb\n\u{9b}c\u{202e}d\u{fe0f}\u{e0101}";
        assert_eq!(printable(hostile, 80), "a\u{fffd}[2Jb\u{fffd}\u{fffd}c\u{fffd}d\u{fffd}\u{fffd}");
    }

    #[test]
    fn long_text_is_cut() {
        let long = printable(&"x".repeat(5000), 80);
        assert_eq!((long.chars().count(), long.ends_with("x…")), (80, true));
        assert_eq!((printable("xy", 2).as_str(), printable("xy", 0).as_str()), ("xy", "…"));
    }
}
