//! The sandbox that the process enters before it serves.
//!
//! The process parses bytes that guests write, so it must be able only to move bytes between
//! descriptors that it was given. Four independent mechanisms ensure that: no new privileges, no
//! capabilities, no file system (Landlock), and a list of permitted system calls (seccomp), none of
//! which opens, connects, executes or reaches another process. The process leaves no core dump, and
//! no other process of its user may look into its memory.
//!
//! Any other system call ends the process with `SIGSYS`. The kernel logs the call's number if the
//! host audits (`type=1326`).
//!
//! * [`calls`]: the permitted calls and arguments; [`filter`]: the same for the kernel.

mod calls;
mod filter;
#[cfg(test)]
mod tests;

use std::io::{self, Write as _};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use tracing::{info, warn};

use self::calls::Own;
use super::thread::cpu_time;

/// Environment variable with what the kernel may lack, separated by commas. Only `landlock` may be
/// missing.
const ALLOW_MISSING: &str = "TAUT_ALLOW_MISSING";

/// Exit status after a panic: what shells show for `SIGABRT`.
const PANICKED: i32 = 134;

/// Reasons why the sandbox cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A privilege could not be dropped.
    #[error("cannot give up {what}")]
    Privileges {
        /// The privilege.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel has Landlock but refuses the rules.
    #[error("cannot close the file system")]
    Landlock(#[source] landlock::RulesetError),
    /// The kernel has no Landlock, and nobody has allowed that.
    #[error(
        "this kernel has no Landlock, or has it switched off\n\
         hint: add landlock to the kernel's parameter lsm=, or start tautd with {ALLOW_MISSING}=landlock: \
         then only the system call filter keeps files closed"
    )]
    NoLandlock,
    /// The filter's arguments are not known.
    #[error("cannot open /proc/self/fd")]
    Folder(#[source] io::Error),
    /// The kernel refuses the system call filter.
    #[error("cannot install the system call filter")]
    Seccomp(#[source] seccompiler::Error),
}

/// Enters the sandbox with this thread and all threads that it starts afterwards.
///
/// Call it before the process has other threads.
pub fn enter() -> Result<(), SandboxError> {
    let own = Own::find().map_err(SandboxError::Folder)?;
    // With the first call, rustix looks for the kernel's vDSO, by a system call that is not
    // permitted later, or in a file.
    cpu_time();
    end_at_panics();
    forbid_core_dumps()?;
    drop_privileges()?;
    close_file_system()?;
    filter::install(calls::permitted(own)).map_err(SandboxError::Seccomp)?;
    info!("sandboxed: no capabilities, no files, system calls filtered");
    Ok(())
}

/// Replaces the usual handling of panics, which opens files if `RUST_BACKTRACE` asks for a
/// backtrace. That would end the process before its message is complete.
///
/// The process ends by an exit: as the first one of its namespace it would not get `SIGABRT`, and
/// an abort would end in `SIGSEGV`.
fn end_at_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        // A failure can be reported to nobody any more.
        let _ = writeln!(io::stderr(), "thread '{}' {panic}", thread.name().unwrap_or("unnamed"));
        std::process::exit(PANICKED);
    }));
}

fn failed(what: &'static str) -> impl Fn(rustix::io::Errno) -> SandboxError {
    move |source| SandboxError::Privileges { what, source: source.into() }
}

/// The process has copies of frames and socket data of all guests. The limit alone would not do:
/// the kernel ignores it when a program takes the dumps.
fn forbid_core_dumps() -> Result<(), SandboxError> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(failed("core dumps"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("core dumps"))
}

fn drop_privileges() -> Result<(), SandboxError> {
    rustix::thread::set_no_new_privs(true).map_err(failed("gaining privileges"))?;
    let held = rustix::thread::capabilities(None).map_err(failed("capabilities"))?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            // EINVAL: this kernel does not know the capability.
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(failed("the bounding set")(error)),
            }
        }
    }
    rustix::thread::clear_ambient_capability_set().map_err(failed("ambient capabilities"))?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(failed("capabilities"))
}

/// Closes the file system, TCP, and the ways to processes outside the sandbox by signals and
/// abstract Unix sockets.
fn close_file_system() -> Result<(), SandboxError> {
    let abi = ABI::V6;
    // Without rules, every handled access is forbidden.
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(abi)))
        .and_then(|rules| rules.scope(Scope::from_all(abi)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(SandboxError::Landlock)?;
    let allowed = std::env::var(ALLOW_MISSING).unwrap_or_default();
    judge(&status.ruleset, allowed.split(',').any(|name| name.trim() == "landlock"))
}

/// Decides whether what Landlock enforces is enough.
fn judge(status: &RulesetStatus, may_be_missing: bool) -> Result<(), SandboxError> {
    match status {
        RulesetStatus::FullyEnforced => {}
        RulesetStatus::PartiallyEnforced => {
            info!("this kernel's Landlock is older than Linux 6.12: it closes less than it could");
        }
        RulesetStatus::NotEnforced if may_be_missing => {
            warn!("this kernel has no Landlock; the system call filter alone keeps files closed");
        }
        RulesetStatus::NotEnforced => return Err(SandboxError::NoLandlock),
    }
    Ok(())
}
