//! Errors of a command line that cannot be parsed, with a hint at the right help text.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Command, Error};

/// Prints help or version if asked for; otherwise the error and a hint.
pub(crate) fn explain(error: &Error, taut: &Command, arguments: impl Iterator<Item = String>) -> ExitCode {
    let status = if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprintln!("{}\n{}", complaint(error), hint(taut, arguments));
    } else {
        // Printing failed, and there is no other place to report that.
        let _ = error.print();
    }
    status
}

/// Returns clap's message without its last line.
fn complaint(error: &Error) -> String {
    let text = error.render().to_string();
    let end = text.find("For more information, try").unwrap_or(text.len());
    text[..end].trim_end().to_owned()
}

/// Names the command whose help explains the arguments.
fn hint(taut: &Command, arguments: impl Iterator<Item = String>) -> String {
    let mut command = taut;
    let mut named = "taut".to_owned();
    for word in arguments {
        if let Some(found) = command.find_subcommand(&word) {
            command = found;
            named = format!("{named} {word}");
        }
    }
    format!("hint: `{named} --help` explains the arguments")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use crate::Cli;

    #[test]
    fn what_is_wrong_ends_in_a_hint_that_names_the_command() {
        let said = |line: &str| {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            format!(
                "$ {line}\n{}\n{}\n",
                super::complaint(&error),
                super::hint(&Cli::command(), line.split(' ').map(str::to_owned))
            )
        };
        let lines = [
            "taut vm crate",
            "taut vm set web1 --nix 0",
            "taut portgroup create web",
            "taut -o yaml vm list",
        ];
        let shaped = "taut portgroup create web --vswitch sw --vlan 5000";
        insta::assert_snapshot!(lines.iter().chain([&shaped]).map(|line| said(line)).collect::<String>());
    }
}
