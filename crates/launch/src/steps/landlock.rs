//! Landlock: which files remain reachable, whatever their modes permit.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, AddRuleError, AddRulesError, BitFlags, CompatLevel,
    Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _,
    RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{FileType, fstat};
use taut_launch::{Document, Step, Wall};

use crate::failure::{Failed, Within as _};
use crate::reporter::Reporter;

/// The newest rights that this program knows. Each group that older kernels lack is tried by
/// itself, so that the report can name it.
const NEWEST: ABI = ABI::V6;

/// Rights that every kernel with Landlock must have: those of Linux 5.19.
const OLDEST: ABI = ABI::V2;

/// Reason for rights that the kernel does not know.
const UNKNOWN: &str = "the kernel does not know it";

/// Groups of rights that the kernel knows.
#[derive(Debug)]
struct Known {
    files: BitFlags<AccessFs>,
    tcp: bool,
    scopes: bool,
}

/// Restricts this process to the listed paths and to the program's file.
pub(crate) fn enter(
    document: &Document,
    program: BorrowedFd<'_>,
    reporter: &mut Reporter,
) -> Result<(), Failed> {
    let step = Step::Landlock;
    if !knows_files(AccessFs::from_all(OLDEST)) {
        return reporter.lack(step, Wall::Landlock, "the kernel has none, or an older one");
    }
    let known = known(document, reporter)?;
    let mut ruleset = ruleset(&known).within(step, || "creating the rules".to_owned())?;
    add_program(&mut ruleset, program).within(step, || "adding the program".to_owned())?;
    let lists = &document.landlock;
    for (paths, rights) in [
        (&lists.read, AccessFs::ReadFile | AccessFs::ReadDir),
        (&lists.execute, AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir),
        (&lists.write, writing()),
        (&lists.devices, AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::IoctlDev),
    ] {
        add(&mut ruleset, paths, rights & known.files)?;
    }
    let status = ruleset.restrict_self().within(step, || "entering the rules".to_owned())?;
    if status.ruleset == RulesetStatus::FullyEnforced {
        Ok(())
    } else {
        Err(Failed::new(step, format!("the rules are not in force: {:?}", status.ruleset)))
    }
}

/// Rights on files and folders that are written: all but those to execute and to make devices.
fn writing() -> BitFlags<AccessFs> {
    AccessFs::from_all(NEWEST) & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock)
}

/// Finds out what the kernel knows, and reports what it lacks.
fn known(document: &Document, reporter: &mut Reporter) -> Result<Known, Failed> {
    let step = Step::Landlock;
    let mut files = AccessFs::from_all(OLDEST);
    for (wall, right) in
        [(Wall::LandlockTruncate, AccessFs::Truncate), (Wall::LandlockIoctl, AccessFs::IoctlDev)]
    {
        if knows_files(right.into()) {
            files |= right;
        } else {
            reporter.lack(step, wall, UNKNOWN)?;
        }
    }
    let probe = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let knows_tcp = probe().handle_access(AccessNet::from_all(NEWEST)).is_ok();
    if !knows_tcp {
        reporter.lack(step, Wall::LandlockTcp, UNKNOWN)?;
    }
    let scopes = probe().scope(Scope::from_all(NEWEST)).is_ok();
    if !scopes {
        reporter.lack(step, Wall::LandlockScope, UNKNOWN)?;
    }
    // A program that shares the host's network is meant to use it.
    Ok(Known { files, tcp: knows_tcp && document.namespaces.net, scopes })
}

fn knows_files(rights: BitFlags<AccessFs>) -> bool {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(rights).is_ok()
}

fn ruleset(known: &Known) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(known.files)?;
    if known.tcp {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
    }
    if known.scopes {
        ruleset = ruleset.scope(Scope::from_all(NEWEST))?;
    }
    ruleset.create()
}

/// Permits to execute the program. A file without a name, such as a memfd, needs no rule and cannot
/// have one: the kernel answers EBADFD.
fn add_program(ruleset: &mut RulesetCreated, program: BorrowedFd<'_>) -> Result<(), RulesetError> {
    let rule = PathBeneath::new(program, AccessFs::Execute | AccessFs::ReadFile);
    match permit(ruleset, rule) {
        Err(RulesetError::AddRules(AddRulesError::Fs(AddRuleError::AddRuleCall { source, .. })))
            if source.raw_os_error() == Some(libc::EBADFD) =>
        {
            Ok(())
        }
        added => added,
    }
}

fn add(ruleset: &mut RulesetCreated, paths: &[PathBuf], rights: BitFlags<AccessFs>) -> Result<(), Failed> {
    for path in paths {
        let at = || path.display().to_string();
        let opened = PathFd::new(path).within(Step::Landlock, at)?;
        let stat = fstat(opened.as_fd()).within(Step::Landlock, at)?;
        let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let rights = if is_folder { rights } else { rights & AccessFs::from_file(NEWEST) };
        permit(ruleset, PathBeneath::new(opened, rights)).within(Step::Landlock, at)?;
    }
    Ok(())
}

fn permit<F: AsFd>(ruleset: &mut RulesetCreated, rule: PathBeneath<F>) -> Result<(), RulesetError> {
    ruleset.add_rule(rule).map(|_| ())
}
