//! `taut completions` and `taut man`, from the same definitions as the commands themselves.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use taut_api::ApiError;
use taut_api::error::ErrorKind;

use crate::{Cli, Outcome};

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

pub(crate) fn completions(args: &CompletionsArgs) {
    clap_complete::generate(args.shell, &mut Cli::command(), "taut", &mut std::io::stdout());
}

pub(crate) fn man(args: &ManArgs) -> Outcome {
    let written =
        std::fs::create_dir_all(&args.dir).and_then(|()| clap_mangen::generate_to(Cli::command(), &args.dir));
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
    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }
}
