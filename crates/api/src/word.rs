//! Words that turn a setting on or off. The command line, VM files and the API share them.

/// Returns whether a text removes a limit, a reservation, a shape or a list: `none` or `off`.
pub fn removes(text: &str) -> bool {
    let text = text.trim();
    ["none", "off"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// An option of the command line that is on or off.
#[cfg(feature = "clap")]
pub trait SwitchArg {
    /// Takes `on` or `off`, and `on` if no value follows.
    #[must_use]
    fn on_or_off(self) -> Self;
}

#[cfg(feature = "clap")]
impl SwitchArg for clap::Arg {
    fn on_or_off(self) -> Self {
        self.value_name("on|off").num_args(0..=1).default_missing_value("on").value_parser(on_or_off)
    }
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
