//! `taut-inspect FORMAT`: inspects the image on descriptor 0 and prints one line of JSON.
//!
//! The exit status is 0 if there is an answer, which may be a refusal, 2 for wrong arguments, and 1
//! if the program cannot limit itself or print. After start-up it uses only the system calls
//! `prlimit64`, `fstat`, `lseek`, `pread64`, `write` and those of memory and exit.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use taut_inspect::{Answer, Format, UnknownFormat, inspect};

/// Limits that the program sets for itself: 64 MiB of address space, 1 s of CPU time, no descriptor
/// besides the three it has, no core dump.
const LIMITS: [(Resource, u64); 4] =
    [(Resource::As, 64 << 20), (Resource::Cpu, 1), (Resource::Nofile, 3), (Resource::Core, 0)];

/// Wrong arguments.
#[derive(Debug, thiserror::Error)]
enum UsageError {
    #[error("expected one argument, got {0}")]
    Count(usize),
    #[error(transparent)]
    Format(#[from] UnknownFormat),
}

fn main() -> ExitCode {
    let format = match format(&std::env::args_os().skip(1).collect::<Vec<_>>()) {
        Ok(format) => format,
        Err(error) => {
            eprintln!("taut-inspect: {error}");
            eprintln!("hint: taut-inspect raw|qcow2|vmdk <IMAGE");
            return ExitCode::from(2);
        }
    };
    match run(format) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("taut-inspect: {error}");
            ExitCode::FAILURE
        }
    }
}

fn format(arguments: &[OsString]) -> Result<Format, UsageError> {
    match arguments {
        [format] => Ok(format.to_string_lossy().parse()?),
        _ => Err(UsageError::Count(arguments.len())),
    }
}

fn run(format: Format) -> io::Result<()> {
    for (resource, limit) in LIMITS {
        lower(resource, limit)?;
    }
    let answer = Answer::from(inspect(&io::stdin().as_fd(), format));
    let mut stdout = io::stdout();
    stdout.write_all(answer.to_line()?.as_bytes())?;
    stdout.flush()
}

/// Lowers a limit for good, unless it is lower already.
fn lower(resource: Resource, limit: u64) -> io::Result<()> {
    let limit = getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit));
    setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    Ok(())
}
