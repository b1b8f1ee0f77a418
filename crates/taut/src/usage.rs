//! Help, and errors of a command line that cannot be parsed, with a hint at the right help text.

use std::error::Error as _;
use std::num::{IntErrorKind, ParseIntError};
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, Error};
use taut_api::{ApiError, error};

use crate::output::{self, Format};

/// Guesses of clap, which compares only spellings: what it suggests may do something else.
const TIPS: [ContextKind; 5] = [
    ContextKind::SuggestedSubcommand,
    ContextKind::SuggestedArg,
    ContextKind::SuggestedValue,
    ContextKind::SuggestedCommand,
    ContextKind::Suggested,
];

/// Prints help or version if asked for; otherwise the error and a hint.
pub(crate) fn explain(error: Error, taut: &Command, arguments: &[String]) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return print_help(&error, taut, arguments);
    }
    let complaint = Complaint::of(error);
    let (_, named) = command(taut, arguments);
    let hint = format!("`{named} --help` explains the arguments");
    match format(arguments) {
        Format::Table => eprintln!("error: {}{}\nhint: {hint}", complaint.message, complaint.usage),
        Format::Json => {
            let error = ApiError::new(error::ErrorKind::Invalid, complaint.message, hint);
            output::print_error(Format::Json, &error);
        }
    }
    ExitCode::from(2)
}

/// Prints help or version. A sample after the long help is printed as it is: clap would wrap its
/// lines, and what is copied from the screen would not parse.
fn print_help(error: &Error, taut: &Command, arguments: &[String]) -> ExitCode {
    let status = if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    let (mut asked, _) = command(taut, arguments);
    let is_long = error.kind() == ErrorKind::DisplayHelp && arguments.iter().any(|word| word == "--help");
    let sample = asked.get_after_long_help().filter(|_| is_long).map(ToString::to_string);
    match sample {
        Some(sample) => {
            asked = asked.after_long_help(None::<&str>);
            // Printing failed, and there is no other place to report that.
            let _ = asked.print_long_help();
            output::write(&format!("\n{}\n", sample.trim_end()));
        }
        None => {
            let _ = error.print();
        }
    }
    status
}

/// An error as clap states it, without tips.
struct Complaint {
    message: String,
    usage: String,
}

impl Complaint {
    fn of(mut error: Error) -> Self {
        for tip in TIPS {
            error.remove(tip);
        }
        let mut text = error.render().to_string();
        if let Some(bad) = error.source().and_then(|cause| cause.downcast_ref::<ParseIntError>()) {
            text = text.replace(&bad.to_string(), number(bad));
        }
        let end = text.find("For more information, try").unwrap_or(text.len());
        let text = text[..end].trim_end();
        let text = text.strip_prefix("error: ").unwrap_or(text);
        let usage = text.find("\n\nUsage:").unwrap_or(text.len());
        Self { message: text[..usage].trim_end().to_owned(), usage: text[usage..].to_owned() }
    }
}

/// Says why a text is not a number.
fn number(error: &ParseIntError) -> &'static str {
    match error.kind() {
        IntErrorKind::Empty => "a number is missing",
        IntErrorKind::PosOverflow => "the number is too large",
        IntErrorKind::NegOverflow => "the number is too small",
        _ => "write a whole number, from 0 on",
    }
}

/// Returns the command that the arguments name, and its words.
fn command(taut: &Command, arguments: &[String]) -> (Command, String) {
    let mut built = taut.clone();
    built.build();
    let mut command = &built;
    let mut named = "taut".to_owned();
    for word in arguments {
        if let Some(found) = command.find_subcommand(word) {
            command = found;
            named = format!("{named} {word}");
        }
    }
    (command.clone(), named)
}

/// Returns the format that the arguments ask for, even if others of them are wrong.
fn format(arguments: &[String]) -> Format {
    let after = |word: &String| ["-o", "--output"].contains(&word.as_str());
    let pairs = arguments.iter().zip(arguments.iter().skip(1));
    let apart = pairs.filter(|(word, _)| after(word)).any(|(_, value)| value == "json");
    let joined = ["-ojson", "-o=json", "--output=json"];
    let is_json = apart || arguments.iter().any(|word| joined.contains(&word.as_str()));
    if is_json { Format::Json } else { Format::Table }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::Cli;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').skip(1).map(str::to_owned).collect()
    }

    fn complaint(line: &str) -> Complaint {
        Complaint::of(Cli::try_parse_from(line.split(' ')).unwrap_err())
    }

    #[test]
    fn what_is_wrong_ends_in_a_hint_that_names_the_command() {
        let said = |line: &str| {
            let Complaint { message, usage } = complaint(line);
            let (_, named) = command(&Cli::command(), &words(line));
            format!("$ {line}\nerror: {message}{usage}\nhint: `{named} --help` explains the arguments\n")
        };
        let lines = [
            "taut vm crate",
            "taut vm set web1 --nix 0",
            "taut vm set web1 --memory-reservatoin full",
            "taut vm set web1 --nic x --lro on",
            "taut vm set web1 --nic -1 --lro on",
            "taut portgroup create web",
            "taut portgroup create web --vswitch sw --vlan 5000",
            "taut -o yaml vm list",
        ];
        insta::assert_snapshot!(lines.map(said).concat());
    }

    #[test]
    fn clap_guesses_nothing() {
        for line in ["taut vm crate", "taut vm set web1 --memory-reservatoin full", "taut -o jsn vm list"] {
            assert!(!complaint(line).message.contains("tip:"), "{line}: {}", complaint(line).message);
        }
    }

    #[test]
    fn the_format_is_known_although_the_rest_is_wrong() {
        for line in ["taut -o json vm crate", "taut vm crate --output=json", "taut vm --output json x"] {
            assert_eq!(format(&words(line)), Format::Json, "{line}");
        }
        assert_eq!(format(&words("taut vm show json")), Format::Table);
    }
}
