//! Processes of a fixture, found by its directory, so that no other process is touched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Process numbers.
pub type Pids = Vec<i32>;

/// A program that runs beside a test without output, and ends with it at the latest.
#[derive(Debug)]
pub struct Background(Child);

impl Background {
    /// Starts the program.
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("the program is installed"))
    }

    /// Number of its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Takes over a program that runs.
    pub(crate) const fn of(program: Child) -> Self {
        Self(program)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends a process by SIGKILL.
pub fn kill_9(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a process number");
    kill_process(pid, Signal::KILL).expect("the process was there to be killed");
}

/// Returns the folder of a process's group in the hierarchy of CPU time (cgroup v1).
pub fn cpu_group(pid: u64) -> PathBuf {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the process runs");
    let is_cpu = |names: &str| names.split(',').any(|name| name == "cpu");
    let line = text.lines().find(|line| line.split(':').nth(1).is_some_and(is_cpu));
    let path = line.and_then(|line| line.splitn(3, ':').nth(2)).expect("a group of CPU time");
    Path::new("/sys/fs/cgroup/cpu").join(path.trim_start_matches('/'))
}

/// Returns true if a process with this number runs. It ends with its last thread, which may be
/// later than the first: until then `/proc` shows a zombie, but its files are still open.
pub fn alive(pid: i32) -> bool {
    let Some(number) = Pid::from_raw(pid) else { return false };
    let Ok(pidfd) = pidfd_open(number, PidfdFlags::empty()) else { return false };
    let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
    poll(&mut ended, Some(&Timespec::default())).expect("a pidfd can be polled") == 0
}

/// Returns processes that name `dir` in their command line or hold a file or socket below it open.
pub(crate) fn of_directory(dir: &Path) -> Pids {
    let name = dir.to_str().expect("temporary paths are text");
    that(|pid| names(pid, name) || holds(pid, dir))
}

/// Returns processes with these words in their command line.
pub(crate) fn naming(words: &str) -> Pids {
    that(|pid| names(pid, words))
}

/// Returns other living processes that match.
fn that(are_such: impl Fn(i32) -> bool) -> Pids {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let pids = fs::read_dir("/proc").expect("/proc is mounted");
    pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid: &i32| pid != own && are_such(pid) && alive(pid))
        .collect()
}

fn names(pid: i32, words: &str) -> bool {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains(words)
}

fn holds(pid: i32, dir: &Path) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).any(|target| target.starts_with(dir))
}
