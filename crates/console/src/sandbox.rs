//! The walls that the process puts up around itself before it serves.
//!
//! The process reads what guests and hostile programs write, and opens nothing: all descriptors
//! come from `tautd`. The launcher has taken its privileges away; the process closes the rest of
//! the file system (Landlock) and forbids dumps. Logs that were opened outside can still be
//! truncated.

use std::io;

use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetError, Scope};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// A wall could not be put up.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Core dumps could not be forbidden.
    #[error("cannot forbid core dumps")]
    Dumps(#[source] io::Error),
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
    // The kernel ignores the limit when a program takes the dumps.
    setrlimit(Resource::Core, none)
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable))
        .map_err(|error| SandboxError::Dumps(error.into()))?;
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))
        .and_then(|rules| rules.scope(Scope::from_all(ABI::V6)))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(SandboxError::Landlock)?;
    Ok(())
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
