//! A launch: the steps in their order.

use std::process::ExitCode;

use taut_launch::{Document, Wall};

use crate::failure::Failed;
use crate::reporter::Reporter;
use crate::steps::pid_namespace::Role;
use crate::steps::root::Sources;
use crate::steps::{
    confirm::Confirmation, descriptors, document, exec, filter, identity, landlock, limits, namespaces,
    pid_namespace, root,
};

/// Becomes the program, or reports the step that failed. Returns in a process that has nothing more
/// to do.
pub(crate) fn run() -> ExitCode {
    let mut reporter = match Reporter::take() {
        Ok(reporter) => reporter,
        Err(error) => return without_reporter(&error),
    };
    match launch(&mut reporter) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            // If the caller has ended, nobody needs the report.
            let _ = reporter.failed(&failed);
            ExitCode::FAILURE
        }
    }
}

/// Says on standard error that there is no pipe for a report.
pub(crate) fn without_reporter(error: &std::io::Error) -> ExitCode {
    eprintln!(
        "taut-launch: descriptor {} (report) is missing: {error}\n\
         hint: taut-launch is started by tautd, not by hand",
        taut_launch::REPORT_FD
    );
    ExitCode::FAILURE
}

/// Returns only in a process that does not become the program, or with the step that failed.
fn launch(reporter: &mut Reporter) -> Result<(), Failed> {
    let confirmation = Confirmation::take()?;
    let document = document::read(Document::parse)?;
    reporter.tolerate(document.may_lack.iter().copied());
    let inherited = descriptors::prepare(&document)?;
    let kept = limits::set(&document.limits, reporter)?;
    if let Some(score) = document.oom_score_adj {
        limits::set_oom_score(score, reporter)?;
    }
    let mut sources = None;
    if document.namespaces.mount {
        sources = Sources::open(&document.root, reporter)?;
    } else {
        reporter.note(Wall::MountNamespace, namespaces::TURNED_OFF);
    }
    namespaces::enter(document.namespaces, reporter)?;
    if sources.is_some() && !namespaces::enter_mounts(inherited.skeleton, reporter)? {
        sources = None;
    }
    if pid_namespace::enter(document.namespaces.pid, reporter)? == Role::Launcher {
        return Ok(());
    }
    if let Some(sources) = sources {
        root::build(&document, sources, reporter)?;
    } else if !document.root.devices.is_empty() {
        reporter.note(Wall::DeviceNodes, "without a mount namespace the host's nodes are used");
    }
    identity::change(document.uid, document.gid, kept)?;
    landlock::enter(&document, inherited.program, reporter)?;
    filter::install(document.filter, document.program, reporter)?;
    exec::start(&document, inherited.program, confirmation, reporter)
}
