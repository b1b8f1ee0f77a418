//! Words that the command line, VM files, the API and messages share: those that turn a setting on
//! or off, and nouns with their number.

use std::fmt::Display;

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

/// Returns the word for a switch.
pub const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Returns the noun in the number of `count` things; its plural ends in `s`.
pub fn plural<N: PartialEq + From<u8> + Copy>(count: N, noun: &str) -> String {
    if count == N::from(1_u8) { noun.to_owned() } else { format!("{noun}s") }
}

/// Returns a number with its noun: `1 vCPU`, `2 vCPUs`.
pub fn counted<N: PartialEq + From<u8> + Display + Copy>(count: N, noun: &str) -> String {
    format!("{count} {}", plural(count, noun))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_hour_one_thing_is_singular() {
        assert_eq!([0_usize, 1, 2].map(|count| counted(count, "core")), ["0 cores", "1 core", "2 cores"]);
        assert_eq!((counted(1_u32, "vCPU"), plural(1_u64, "node")), ("1 vCPU".into(), "node".into()));
    }

    #[test]
    fn a_switch_has_two_states_and_a_limit_two_words_that_remove_it() {
        assert_eq!(["on", "true", "off", "false"].map(on_or_off), [Ok(true), Ok(true), Ok(false), Ok(false)]);
        assert_eq!(on_or_off("web1"), Err("write on or off"));
        assert!(removes("none") && removes(" Off ") && !removes("0") && !removes(""));
    }
}
