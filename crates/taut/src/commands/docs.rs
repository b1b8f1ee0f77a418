//! `taut completions` and `taut man`, from the same definitions as the commands themselves.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;
use taut_api::ApiError;
use taut_api::error::ErrorKind;

use crate::output::Outcome;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages; made when it does not exist.
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
            format!("the manual pages could not be written to {}", args.dir.display()),
            "name a folder that you may write to",
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
