//! Words that turn a setting on or off. The command line, VM files and the API share them.

/// Returns whether a text removes a limit, a reservation, a shape or a list: `none` or `off`.
pub fn removes(text: &str) -> bool {
    let text = text.trim();
    ["none", "off"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Reads a switch. `true` and `false` are the words of VM files and JSON.
///
/// # Errors
/// If the text is another word.
pub fn on_or_off(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err("write on or off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_has_two_states_and_a_limit_two_words_that_remove_it() {
        assert_eq!(["on", "true", "off", "false"].map(on_or_off), [Ok(true), Ok(true), Ok(false), Ok(false)]);
        assert_eq!(on_or_off("web1"), Err("write on or off"));
        assert!(removes("none") && removes(" Off ") && !removes("0") && !removes(""));
    }
}
