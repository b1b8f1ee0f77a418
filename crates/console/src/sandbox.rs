//! The walls that the process puts up around itself before it serves.
//!
//! The process reads what guests and hostile programs write, and opens nothing: all descriptors
//! come from `tautd`. So it gives up capabilities, privileges of programs that it could execute,
//! and the file system (Landlock). Logs that were opened outside can still be truncated.
//!
//! Afterwards it uses these system calls and those of the runtime for memory and its end, so that a
//! launcher can filter the others: `read`, `pread64`, `pwrite64`, `ftruncate`, `fstat` or `statx`,
//! `epoll_ctl`, `epoll_wait` or `epoll_pwait2`, `accept4`, `recvfrom`, `recvmsg`, `sendto`,
//! `sendmsg`, `getsockopt`, `fcntl`, `close`, `clock_gettime`, `clock_nanosleep`.

use std::io;

use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError, Scope};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// A wall could not be put up.
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
    Landlock(#[source] RulesetError),
}

/// Puts up the walls around this thread and all threads that it starts afterwards. A kernel without
/// Landlock leaves the file system open.
///
/// # Errors
/// When the kernel refuses a wall that it has.
pub fn enter() -> Result<(), SandboxError> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(failed("core dumps"))?;
    // The kernel ignores the limit when a program takes the dumps.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("core dumps"))?;
    drop_privileges()?;
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))
        .and_then(|rules| rules.scope(Scope::from_all(ABI::V6)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(SandboxError::Landlock)?;
    Ok(())
}

fn failed(what: &'static str) -> impl Fn(Errno) -> SandboxError {
    move |source| SandboxError::Privileges { what, source: source.into() }
}

fn drop_privileges() -> Result<(), SandboxError> {
    rustix::thread::set_no_new_privs(true).map_err(failed("gaining privileges"))?;
    let held = rustix::thread::capabilities(None).map_err(failed("capabilities"))?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            // EINVAL: this kernel does not know the capability.
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                Ok(()) | Err(Errno::INVAL) => {}
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::ErrorKind::PermissionDenied;
    use std::time::Instant;

    use super::*;
    use crate::log::{BoundedLog, LEAST_LIMIT, Storage as _};

    /// Enters the sandbox on a thread of its own, so that the test process stays outside.
    #[test]
    fn inside_nothing_is_opened_and_a_log_from_outside_is_still_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let inside = std::thread::spawn(move || {
            enter().unwrap();
            let refused = File::open(&path).unwrap_err();
            assert_eq!(refused.kind(), PermissionDenied);
            let mut log = BoundedLog::new(file.try_clone().unwrap(), LEAST_LIMIT, Instant::now());
            for _ in 0..10 {
                log.append(&vec![b'x'; 50_000], Instant::now());
            }
            assert_eq!(log.due(), None);
            assert!(file.length().unwrap() <= LEAST_LIMIT);
        });
        inside.join().unwrap();
        assert!(File::open(dir.path().join("log")).is_ok(), "the whole process is in the sandbox");
    }
}
