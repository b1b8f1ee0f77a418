//! Scheduling class of a thread: which it is in, and putting it into another one.
#![allow(unsafe_code, reason = "no crate in use here has sched_setscheduler")]

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A class of the kernel's scheduler (sched(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Class {
    /// `SCHED_OTHER` 0, `SCHED_FIFO` 1, and so on.
    policy: i32,
    /// Among real-time classes: 1 to 99.
    priority: i32,
}

impl Class {
    /// Before every ordinary thread; the lowest of those that are.
    pub(crate) const FIRST: Self = Self { policy: libc::SCHED_FIFO, priority: 1 };

    /// The class that a thread is in, from the folder of the thread in `/proc`; none when it has ended.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        // The name may hold anything. After it come field 3 and those that follow (proc_pid_stat(5)).
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self { priority: fields.get(37)?.parse().ok()?, policy: fields.get(38)?.parse().ok()? })
    }

    /// Puts the calling thread into [`Class::FIRST`].
    pub(crate) fn take_first() -> io::Result<()> {
        // 0 is the caller (sched_setscheduler(2)).
        Self::FIRST.put(0)
    }

    /// Puts a thread into it.
    pub(crate) fn put(self, tid: u32) -> io::Result<()> {
        set(libc::pid_t::try_from(tid).map_err(io::Error::other)?, self.policy, self.priority)
    }
}

fn set(tid: libc::pid_t, policy: i32, sched_priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the kernel reads `parameters`, which outlives the call, and nothing else of ours.
    let done = unsafe { libc::sched_setscheduler(tid, policy, &raw const parameters) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_is_read_behind_any_name() {
        let thread = tempfile::tempdir().unwrap();
        let zeros = vec!["0"; 36].join(" ");
        fs::write(thread.path().join("stat"), format!("7 (a) b) S {zeros} 4 2 0 0\n")).unwrap();
        assert_eq!(Class::of(thread.path()), Some(Class { policy: 2, priority: 4 }));
        assert_eq!(Class::of(Path::new("/nowhere")), None);
    }

    #[test]
    fn an_ordinary_thread_is_put_where_it_is() {
        let own = Path::new("/proc/thread-self");
        let class = Class::of(own).unwrap();
        class.put(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
        assert_eq!(Class::of(own), Some(class));
    }
}
