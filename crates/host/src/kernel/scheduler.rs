//! Scheduling class of a thread (sched(7)): reading and setting it.
#![allow(unsafe_code, reason = "no dependency wraps sched_setscheduler")]

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A scheduling policy with its priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Class {
    /// `SCHED_OTHER` 0, `SCHED_FIFO` 1, and so on.
    policy: i32,
    /// 1 to 99 for real-time policies, else 0.
    priority: i32,
}

impl Class {
    /// The lowest real-time priority: runs before every ordinary thread.
    pub(crate) const REAL_TIME: Self = Self { policy: libc::SCHED_FIFO, priority: 1 };

    /// Reads a thread's class from its folder in `/proc`. Returns `None` if the thread has ended.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        // The name may hold any byte. Field 3 follows its closing parenthesis (proc_pid_stat(5)).
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self { priority: fields.get(37)?.parse().ok()?, policy: fields.get(38)?.parse().ok()? })
    }

    /// Gives the calling thread [`Class::REAL_TIME`].
    pub(crate) fn take_real_time() -> io::Result<()> {
        // 0 is the caller (sched_setscheduler(2)).
        Self::REAL_TIME.put(0)
    }

    /// Puts a thread into this class. Threads that the thread creates do not inherit
    /// [`Class::REAL_TIME`], since they may be vCPUs. A vCPU that never sleeps would keep the
    /// thread that created it from running, as long as both share a pCPU.
    pub(crate) fn put(self, tid: u32) -> io::Result<()> {
        let not_inherited = if self == Self::REAL_TIME { libc::SCHED_RESET_ON_FORK } else { 0 };
        let tid = libc::pid_t::try_from(tid).map_err(io::Error::other)?;
        set(tid, self.policy | not_inherited, self.priority)
    }
}

fn set(tid: libc::pid_t, policy: i32, sched_priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the kernel only reads `parameters`, which outlives the call.
    let done = unsafe { libc::sched_setscheduler(tid, policy, &raw const parameters) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_is_read_for_a_thread_name_with_parentheses() {
        let thread = tempfile::tempdir().unwrap();
        let zeros = vec!["0"; 36].join(" ");
        fs::write(thread.path().join("stat"), format!("7 (a) b) S {zeros} 4 2 0 0\n")).unwrap();
        assert_eq!(Class::of(thread.path()), Some(Class { policy: 2, priority: 4 }));
        assert_eq!(Class::of(Path::new("/nowhere")), None);
    }

    #[test]
    fn setting_the_class_of_a_thread_that_is_in_it_changes_nothing() {
        let own = Path::new("/proc/thread-self");
        let class = Class::of(own).unwrap();
        class.put(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
        assert_eq!(Class::of(own), Some(class));
    }

    #[test]
    fn a_thread_of_a_thread_with_real_time_priority_is_ordinary() {
        let own = Path::new("/proc/thread-self");
        let classes = std::thread::spawn(move || {
            Class::take_real_time().map(|()| {
                let child = std::thread::spawn(move || Class::of(own).unwrap()).join().unwrap();
                (Class::of(own).unwrap(), child)
            })
        });
        match classes.join().unwrap() {
            Ok(found) => assert_eq!(found, (Class::REAL_TIME, Class { policy: 0, priority: 0 })),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
    }
}
