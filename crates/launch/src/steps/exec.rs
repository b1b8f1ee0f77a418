//! Starting the program.

use std::ffi::CString;
use std::os::fd::BorrowedFd;

use nix::fcntl::AtFlags;
use nix::unistd::execveat;
use taut_launch::{Document, Step};

use super::confirm::Confirmation;
use crate::failure::{Failed, Within as _};
use crate::reporter::Reporter;
use crate::sys::calls::restore_sigpipe;

/// Reports that all walls are up, waits for the caller's confirmation, and becomes the program. The
/// report ends at this moment. Returns only if that fails.
pub(crate) fn start(
    document: &Document,
    program: BorrowedFd<'_>,
    confirmation: Confirmation,
    reporter: &mut Reporter,
) -> Result<(), Failed> {
    let step = Step::Exec;
    let texts = |list: &[String]| list.iter().map(|text| CString::new(text.as_str())).collect();
    let args: Result<Vec<_>, _> = texts(&document.args);
    let args = args.within(step, || "an argument".to_owned())?;
    let env: Result<Vec<_>, _> = texts(&document.env);
    let env = env.within(step, || "a variable".to_owned())?;
    reporter.missing()?;
    confirmation.wait()?;
    restore_sigpipe().within(step, || "restoring the effect of SIGPIPE".to_owned())?;
    let started = execveat(program, c"", &args, &env, AtFlags::AT_EMPTY_PATH);
    let name = document.args.first().map_or("", |name| name);
    started.map(|never| match never {}).within(step, || format!("starting `{name}`"))
}
