//! The mounts that all confined programs share.
//!
//! A new mount namespace is a copy of the old one, and takes the longer the more mounts the host
//! has. The skeleton has the folders of the system and nothing else, so that its copies are cheap.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::pipe::{PipeFlags, pipe_with};
use taut_launch::{DOCUMENT_FD, REPORT_FD, read_skeleton_report};

use super::{PATIENCE, in_memory, walls};
use crate::process::Process;

/// Time after which a skeleton that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// The mount namespace of the skeleton, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Skeleton(Mutex<SkeletonState>);

/// State of the skeleton.
#[derive(Debug, Default)]
enum SkeletonState {
    #[default]
    NotYet,
    Namespace(OwnedFd),
    /// Programs copy the mounts of the host until this time, after which it is tried again.
    Failed {
        until: Instant,
    },
}

impl Skeleton {
    /// Makes the namespace unless it is there, or could not be made a short time ago. Only threads
    /// with the daemon's table of descriptors may call this.
    pub(super) fn prepare(&self, launcher: &Path) {
        self.prepare_with(|| make(launcher), Instant::now());
    }

    fn prepare_with(&self, make: impl FnOnce() -> io::Result<OwnedFd>, now: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = match *state {
            SkeletonState::NotYet => true,
            SkeletonState::Namespace(_) => false,
            SkeletonState::Failed { until } => until <= now,
        };
        if is_due {
            *state = match make() {
                Ok(namespace) => SkeletonState::Namespace(namespace),
                Err(error) => {
                    tracing::warn!(%error, "each start of a VM copies all mounts of this host for {RETRY:?}");
                    SkeletonState::Failed { until: now + RETRY }
                }
            };
        }
    }

    /// Opens the namespace for the calling thread, which may have a table of descriptors of its
    /// own. Returns `None` if there is none.
    pub(super) fn namespace(&self) -> Option<OwnedFd> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            SkeletonState::Namespace(namespace) => {
                let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
                let opened = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
                let warn = |error: &_| tracing::warn!(%error, "a program copies all mounts of this host");
                opened.inspect_err(warn).ok()
            }
            SkeletonState::NotYet | SkeletonState::Failed { .. } => None,
        }
    }
}

fn make(launcher: &Path) -> io::Result<OwnedFd> {
    let document = in_memory(&walls::skeleton().to_bytes().map_err(io::Error::other)?)?;
    let (report, report_end) = pipe_with(PipeFlags::CLOEXEC)?;
    // The process waits for the end of its input.
    let (input, input_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let mut command = Command::new(launcher);
    command.arg("--skeleton").stdin(Stdio::from(input)).stdout(Stdio::null()).current_dir("/");
    let descriptors = [(document.as_fd(), DOCUMENT_FD), (report_end.as_fd(), REPORT_FD)];
    let process = Process::spawn(&mut command, &descriptors)?;
    drop((command, report_end));
    let namespace = read_skeleton_report(&report, PATIENCE)
        .map_err(|error| {
            let hint = error.hint();
            io::Error::other(format!("{:#}; {hint}", anyhow::Error::from(error)))
        })
        .and_then(|()| {
            let path = format!("/proc/{}/ns/mnt", process.pid());
            Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
        });
    drop(input_end);
    process.kill(PATIENCE);
    namespace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_failed_is_tried_again_after_a_while() {
        let skeleton = Skeleton::default();
        let (now, calls) = (Instant::now(), std::cell::Cell::new(0));
        let get = |works: bool, now| {
            let make = || {
                calls.set(calls.get() + 1);
                if works {
                    Ok(std::fs::File::open("/dev/null")?.into())
                } else {
                    Err(io::ErrorKind::Other.into())
                }
            };
            skeleton.prepare_with(make, now);
            skeleton.namespace().is_some()
        };
        assert!(!get(false, now) && !get(true, now + RETRY / 2));
        assert_eq!(calls.get(), 1);
        assert!(get(true, now + RETRY) && get(false, now + 3 * RETRY));
        assert_eq!(calls.get(), 2, "one that was made stays");
    }
}
