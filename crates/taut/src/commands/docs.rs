//! `taut completions` and `taut man`, generated from the definitions of the commands.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use taut_api::ApiError;
use taut_api::error::ErrorKind;

use crate::output::Outcome;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to print completions for
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder to write the pages to; created if it does not exist
    #[arg(default_value = "man")]
    dir: PathBuf,
}

pub(crate) fn completions(args: &CompletionsArgs, mut taut: Command) {
    clap_complete::generate(args.shell, &mut taut, "taut", &mut std::io::stdout());
}

pub(crate) fn man(args: &ManArgs, taut: Command) -> Outcome {
    let written = std::fs::create_dir_all(&args.dir).and_then(|()| clap_mangen::generate_to(taut, &args.dir));
    written.map_err(|error| {
        ApiError::new(
            ErrorKind::Unavailable,
            format!("cannot write the manual pages to {}", args.dir.display()),
            "give a folder that you can write to",
        )
        .because(&error)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use crate::Cli;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }
}
