//! `taut-launch`: confines itself as a document says, then becomes the program that it names. See
//! [`taut_launch`].

mod failure;
mod launch;
mod reporter;
mod skeleton;
mod steps;
mod sys;

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match (words.next(), words.next()) {
        (None, _) => launch::run(),
        (Some(word), None) if word == "--skeleton" => skeleton::run(),
        (Some(word), None) if word == "--version" => {
            match writeln!(std::io::stdout(), "taut-launch {}", env!("CARGO_PKG_VERSION")) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        _ => {
            eprintln!("usage: taut-launch [--skeleton]\nhint: taut-launch is started by tautd, not by hand");
            ExitCode::from(2)
        }
    }
}
