//! The step between fork and exec for programs that get a session or priority. This program runs
//! itself for it (`taut-goals launch`), because the standard library has no safe way.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;

/// Nice value of a session with priority over everything else: ten times the weight of others.
///
/// More does harm where programs take turns every few microseconds. With -15 and -20, two guests on
/// one pCPU stop for long enough that the fabric goes to sleep between two requests, 300 to 1,000
/// times a second; with 0 to -10 it does so 70 to 200 times.
pub const PREFERRED: &str = "-10";

/// Starts a program in a session of its own, and becomes it.
#[derive(Debug, Args)]
pub struct Launch {
    /// Give the session priority over everything else on this machine.
    #[arg(long)]
    pub preferred: bool,
    /// Program with its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Becomes the program. Returns only when that fails.
pub fn launch(options: &Launch) -> io::Error {
    if let Err(error) = rustix::process::setsid() {
        return error.into();
    }
    if options.preferred {
        // Kernels without autogroups have nothing to set.
        let _ = std::fs::write("/proc/self/autogroup", PREFERRED);
    }
    Command::new(&options.words[0]).args(&options.words[1..]).exec()
}
