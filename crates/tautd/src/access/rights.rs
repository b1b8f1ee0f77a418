//! The permissions of a user, lent to a thread.
//!
//! Only the *effective* IDs of a thread change, which is enough for files: the effective user is
//! who opens, and without uid 0 the kernel clears the effective capabilities. The real and saved
//! IDs stay root's. Otherwise the user might send that thread a signal, and SIGKILL to a thread
//! ends the whole daemon.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde::{Deserialize, Serialize};

use crate::process::own_table;

/// Maximum number of threads that one user's file systems can hold up at a time.
const MOST_OF_USER: usize = 4;
/// Maximum number of such threads of all users.
const MOST: usize = 64;

/// Threads with lent rights that have not ended, by user.
static THREADS: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());

/// A user with groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rights {
    /// User ID.
    pub(crate) uid: u32,
    /// Group ID.
    pub(crate) gid: u32,
    /// Supplementary groups.
    pub(crate) groups: Vec<u32>,
}

/// Why a task could not be done with lent rights.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LendError {
    /// Earlier tasks of the user, or of all users, still wait for a file system.
    #[error("{0} earlier checks for user {1} still wait for a file system")]
    Busy(usize, u32),
    /// The file system does not answer.
    #[error("the file system did not answer within {0:?}")]
    Slow(Duration),
    /// The kernel refused to lend them.
    #[error("the daemon may not act as user {0}")]
    NotAllowed(u32, #[source] Errno),
    /// No thread could be started.
    #[error("no thread can be started")]
    NoThread(#[source] std::io::Error),
    /// The task panicked.
    #[error("the check panicked")]
    Panicked,
}

impl Rights {
    /// Returns the rights of root, which include everything.
    pub(crate) const fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new() }
    }

    /// Returns the rights of the kernel's overflow user, who owns nothing, without groups.
    pub(crate) const fn nobody() -> Self {
        Self { uid: 65_534, gid: 65_534, groups: Vec::new() }
    }

    /// Returns whether these are root's.
    pub(crate) const fn are_roots(&self) -> bool {
        self.uid == 0
    }

    /// Does a task with these rights, on a thread that ends with it, and waits at most `patience`:
    /// a file system may not answer.
    ///
    /// A task must not start threads or processes: they would inherit the rights. It neither gets
    /// nor returns descriptors, because the thread has a table of its own.
    pub(crate) fn lend<T: Send + 'static>(
        &self,
        patience: Duration,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, LendError> {
        let place = Place::take(self.uid)?;
        let rights = self.clone();
        let (answer, answered) = sync_channel(1);
        let lent = move || {
            let _place = place;
            let done = if rights.are_roots() { Ok(task()) } else { rights.take_on().map(|()| task()) };
            // Whoever asked may have lost patience.
            let _ = answer.send(done);
        };
        own_table::spawn("as-user", lent).map_err(LendError::NoThread)?;
        match answered.recv_timeout(patience) {
            Ok(done) => done.map_err(|error| LendError::NotAllowed(self.uid, error)),
            Err(RecvTimeoutError::Timeout) => Err(LendError::Slow(patience)),
            Err(RecvTimeoutError::Disconnected) => Err(LendError::Panicked),
        }
    }

    /// Runs a task with these rights and waits for it as long as it takes, for callers that are
    /// bounded themselves. The task shares the descriptors of the calling thread.
    pub(crate) fn run_as<T: Send>(&self, task: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        if self.are_roots() {
            return task();
        }
        thread::scope(|scope| {
            let run = || {
                self.take_on().map_err(|error| io::Error::other(LendError::NotAllowed(self.uid, error)))?;
                task()
            };
            let thread = thread::Builder::new().name("as-user".into()).spawn_scoped(scope, run);
            let done = thread.map_err(|error| io::Error::other(LendError::NoThread(error)))?.join();
            done.map_err(|_| io::Error::other(LendError::Panicked))?
        })
    }

    /// Gives the calling thread these rights and no capability.
    fn take_on(&self) -> rustix::io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(None::<Gid>, gid, None::<Gid>)?;
        set_thread_res_uid(None::<Uid>, uid, None::<Uid>)?;
        // A security bit of the process can keep the capabilities.
        let took = geteuid() == uid && getegid() == gid && capabilities(None)?.effective.is_empty();
        if took { Ok(()) } else { Err(Errno::PERM) }
    }
}

/// Permission for one more thread of a user.
#[derive(Debug)]
struct Place(u32);

impl Place {
    fn take(uid: u32) -> Result<Self, LendError> {
        let mut threads = THREADS.lock().expect("no holder of the list panics");
        let of_all = threads.values().sum::<usize>();
        let of_user = threads.entry(uid).or_default();
        if *of_user >= MOST_OF_USER || of_all >= MOST {
            return Err(LendError::Busy(*of_user, uid));
        }
        *of_user += 1;
        Ok(Self(uid))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut threads = THREADS.lock().expect("no holder of the list panics");
        if let Some(of_user) = threads.get_mut(&self.0) {
            *of_user -= 1;
            if *of_user == 0 {
                threads.remove(&self.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use taut_tests::{Prerequisite, require};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn nobody(uid: u32) -> Rights {
        Rights { uid, gid: 65_534, groups: vec![7, 8] }
    }

    #[test]
    fn a_task_has_the_users_rights_and_the_process_keeps_its_own() {
        if !require(Prerequisite::Root) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "x").unwrap();
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let path = secret.clone();
        let seen = nobody(65_534).lend(PATIENCE, move || {
            let groups: Vec<u32> =
                rustix::process::getgroups().unwrap().into_iter().map(Gid::as_raw).collect();
            let real = rustix::process::getuid().as_raw();
            (geteuid().as_raw(), real, groups, std::fs::read(path).map_err(|error| error.kind()))
        });
        let denied = Err(std::io::ErrorKind::PermissionDenied);
        assert_eq!(seen.unwrap(), (65_534, 0, vec![7, 8], denied));
        assert!(geteuid().is_root() && std::fs::read(&secret).is_ok());
        assert!(!capabilities(None).unwrap().effective.is_empty());
        assert!(Rights::root().lend(PATIENCE, move || std::fs::read(secret).is_ok()).unwrap());
    }

    #[test]
    fn a_file_system_that_does_not_answer_holds_up_its_user_alone() {
        if !require(Prerequisite::Root) {
            return;
        }
        let (ends, end) = channel::<()>();
        let end = std::sync::Arc::new(Mutex::new(end));
        for _ in 0..MOST_OF_USER {
            let end = end.clone();
            let waits = move || end.lock().unwrap().recv().is_err();
            let error = nobody(60_001).lend(Duration::from_millis(20), waits).unwrap_err();
            assert!(matches!(error, LendError::Slow(_)), "{error}");
        }
        let error = nobody(60_001).lend(PATIENCE, || ()).unwrap_err();
        assert_eq!(error.to_string(), "4 earlier checks for user 60001 still wait for a file system");
        nobody(60_002).lend(PATIENCE, || ()).unwrap();
        drop(ends);
        while THREADS.lock().unwrap().contains_key(&60_001) {
            thread::sleep(Duration::from_millis(5));
        }
        nobody(60_001).lend(PATIENCE, || ()).unwrap();
    }

    #[test]
    fn a_task_shares_the_descriptors_of_a_caller_that_waits() {
        if !require(Prerequisite::Root) {
            return;
        }
        let opened = nobody(60_004).run_as(|| std::fs::File::open("/dev/zero")).unwrap();
        let mut read = [1];
        std::io::Read::read_exact(&mut &opened, &mut read).expect("it is open here, too");
        assert_eq!(read, [0]);
        let path = tempfile::tempdir().unwrap().path().join("file");
        let error = nobody(60_004).run_as(|| std::fs::File::open(&path)).unwrap_err();
        assert!(geteuid().is_root(), "{error}");
    }

    #[test]
    fn a_task_that_panics_is_an_error() {
        if !require(Prerequisite::Root) {
            return;
        }
        let error = nobody(60_003).lend(PATIENCE, || panic!("on purpose")).unwrap_err();
        assert!(matches!(error, LendError::Panicked), "{error}");
    }
}
