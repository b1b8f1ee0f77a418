//! The skeleton: a mount namespace with the system's folders only.

use std::io::{self, Read as _};
use std::process::ExitCode;

use taut_launch::{REPORT_FD, Skeleton, Step};

use crate::failure::{Failed, Within as _};
use crate::launch::without_reporter;
use crate::reporter::Reporter;
use crate::steps::{document, namespaces, root};
use crate::sys::calls::close_from;

/// Makes the skeleton and reports it, then keeps it until standard input ends.
pub(crate) fn run() -> ExitCode {
    let mut reporter = match Reporter::take() {
        Ok(reporter) => reporter,
        Err(error) => return without_reporter(&error),
    };
    if let Err(failed) = make(&mut reporter) {
        // If the caller has ended, nobody needs the report.
        let _ = reporter.failed(&failed);
        return ExitCode::FAILURE;
    }
    // The caller waits for the end of the report.
    drop(reporter);
    // Whatever happens to the caller, its end of this pipe is closed then.
    let mut ignored = [0; 64];
    while !matches!(io::stdin().read(&mut ignored), Ok(0) | Err(_)) {}
    ExitCode::SUCCESS
}

fn make(reporter: &mut Reporter) -> Result<(), Failed> {
    let skeleton = document::read(Skeleton::parse)?;
    // Nothing else is open behind the report, and the process stays for a while.
    close_from(REPORT_FD.cast_unsigned() + 1)
        .within(Step::Descriptors, || "closing the others".to_owned())?;
    namespaces::copy_mounts().within(Step::Namespaces, || "copying the host's mounts".to_owned())?;
    root::build_skeleton(&skeleton)?;
    reporter.skeleton()
}
