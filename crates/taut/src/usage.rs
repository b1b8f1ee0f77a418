//! A command line that cannot be understood: what is wrong with it, and where to look.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Command, Error};

/// Prints what was asked for (help, version), or what is wrong with these arguments and a hint.
pub(crate) fn explain(error: &Error, taut: &Command, arguments: impl Iterator<Item = String>) -> ExitCode {
    let status = if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        eprintln!("{}\n{}", complaint(error), hint(taut, arguments));
    } else {
        // Nobody is left to be told that it could not be printed.
        let _ = error.print();
    }
    status
}

/// Everything that clap says but its own last line.
fn complaint(error: &Error) -> String {
    let text = error.render().to_string();
    let end = text.find("For more information, try").unwrap_or(text.len());
    text[..end].trim_end().to_owned()
}

/// Names the command that explains the one that was written.
fn hint(taut: &Command, arguments: impl Iterator<Item = String>) -> String {
    let mut command = taut;
    let mut named = "taut".to_owned();
    for word in arguments {
        if let Some(found) = command.find_subcommand(&word) {
            command = found;
            named = format!("{named} {word}");
        }
    }
    format!("hint: `{named} --help` says what can be written")
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
