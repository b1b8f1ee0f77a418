//! `taut-console`: the console process, which `tautd` starts. See [`taut_console`].
//!
//! Its standard input is the socket on which it awaits `tautd`.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use anyhow::bail;
use rustix::net::sockopt::socket_acceptconn;
use taut_console::engine::Engine;
use taut_console::sandbox;

fn main() -> ExitCode {
    let done = if std::env::args().nth(1).is_some_and(|word| word == "--version") {
        writeln!(std::io::stdout(), "taut-console {}", env!("CARGO_PKG_VERSION")).map_err(Into::into)
    } else {
        serve()
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be gone, too.
            let _ = writeln!(std::io::stderr(), "taut-console: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    if !socket_acceptconn(&stdin).unwrap_or(false) {
        bail!("its standard input is no listening socket\nhint: it is started by tautd, not by hand");
    }
    let listener = stdin.as_fd().try_clone_to_owned()?;
    // Older kernels name a program that was executed by its descriptor after that number.
    let _ = rustix::thread::set_name(c"taut-console");
    sandbox::enter()?;
    Ok(Engine::new(listener)?.run()?)
}
