//! `taut man`: manual pages of all commands and of the other programs that users call.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use clap::{Args, Command};
use clap_mangen::Man;
use taut_api::ApiError;
use taut_api::error::ErrorKind;

use crate::output::Outcome;

/// Programs beside this one, and the argument with which they write their pages to a folder.
const PROGRAMS: [(&str, &str); 2] = [("tautd", "--write-man"), ("taut-guest", "man")];

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder to write the pages to; created if it does not exist
    #[arg(default_value = "man")]
    dir: PathBuf,
}

pub(crate) fn run(args: &ManArgs, mut taut: Command) -> Outcome {
    taut.build();
    let own = fs::create_dir_all(&args.dir).and_then(|()| write_pages(&taut, &args.dir));
    let written = own.and_then(|()| {
        let beside = std::env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default();
        PROGRAMS.into_iter().try_for_each(|program| write_pages_of(program, &beside, &args.dir))
    });
    written.map_err(|error| {
        ApiError::new(
            ErrorKind::Unavailable,
            format!("cannot write the manual pages to {}", args.dir.display()),
            "give a folder that you can write to",
        )
        .because(&error)
    })
}

/// Writes the pages of a command and of all commands below it.
fn write_pages(command: &Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, dir)?;
    }
    let sample = command.get_after_long_help().map(ToString::to_string);
    let man = Man::new(command.clone().after_long_help(None::<&str>));
    let mut page = Vec::new();
    man.render(&mut page)?;
    if let Some(sample) = sample {
        page.extend_from_slice(as_it_is(&sample).as_bytes());
    }
    fs::write(dir.join(man.get_filename()), page)
}

/// Renders a text whose lines must stay as they are: a heading, and the rest unfilled.
fn as_it_is(text: &str) -> String {
    let (heading, rest) = text.split_once('\n').unwrap_or(("Example:", text));
    let mut page = format!(".SH \"{}\"\n.nf\n", heading.trim_end_matches(':').to_uppercase());
    for line in rest.trim_matches('\n').lines() {
        // A page writes some ASCII characters as typographic ones unless they are escaped.
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        let line = line.replace('`', "\\(ga").replace('^', "\\(ha").replace('~', "\\(ti");
        // A full stop at the beginning would be a request.
        let guard = if line.starts_with('.') { "\\&" } else { "" };
        page += &format!("{guard}{line}\n");
    }
    page + ".fi\n"
}

/// Has another program write its pages. A program that is not installed has none.
fn write_pages_of((program, argument): (&str, &str), beside: &Path, dir: &Path) -> io::Result<()> {
    let path = beside.join(program);
    if !path.exists() {
        eprintln!("no page for {program}: it is not installed in {}", beside.display());
        return Ok(());
    }
    let ended = Process::new(&path).arg(argument).arg(dir).stdin(Stdio::null()).output()?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    Err(io::Error::other(format!("{} {argument}: {}: {said}", path.display(), ended.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_keeps_its_lines_and_its_ascii() {
        let text = "A file:\n\n# -- it's `x`\n.dot = \"a\\b\"\n";
        let page = as_it_is(text);
        assert_eq!(page, ".SH \"A FILE\"\n.nf\n# \\-\\- it\\(aqs \\(gax\\(ga\n\\&.dot = \"a\\eb\"\n.fi\n");
    }
}
