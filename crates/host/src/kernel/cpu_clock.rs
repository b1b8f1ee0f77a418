//! CPU-time clocks of processes. One call tells how long all threads of a process have run, without
//! a file.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The CPU-time clock of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuClock(ClockId);

impl CpuClock {
    /// Returns the clock of the process with this number in this process's namespace, if there is
    /// one.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        clock_getcpuclockid(Pid::from_raw(pid.try_into().ok()?)).ok().map(Self)
    }

    /// Returns how long the threads of the process have run, in nanoseconds of the scheduler and
    /// with those that have ended. Returns nothing if the process has ended.
    pub(crate) fn time(self) -> Option<Duration> {
        clock_gettime(self.0).ok().map(Duration::from)
    }
}

/// Returns whether the numbers of processes in `proc` are those of this process's namespace. Then
/// clocks can be asked for by them.
pub(crate) fn has_numbers_of(proc: &Path) -> bool {
    // The number of this process in each namespace from that of `proc` down to its own.
    let status = fs::read_to_string(proc.join("self/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let mut numbers = numbers.unwrap_or_default().split_whitespace();
    numbers.next() == Some(&std::process::id().to_string()) && numbers.next().is_none()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_clock_goes_on_only_while_its_process_runs() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let clock = CpuClock::of(child.id()).unwrap();
        // The child runs for a moment before it sleeps.
        let rests = || {
            let before = clock.time().unwrap();
            std::thread::sleep(Duration::from_millis(100));
            !before.is_zero() && before == clock.time().unwrap()
        };
        assert!((0..100).any(|_| rests()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(clock.time(), None);
        let own = CpuClock::of(std::process::id()).unwrap();
        let (before, began) = (own.time().unwrap(), Instant::now());
        while own.time().unwrap() == before {
            assert!(began.elapsed() < Duration::from_secs(60), "the clock stands still");
        }
    }

    #[test]
    fn clocks_are_asked_for_by_numbers_of_the_own_namespace_only() {
        assert!(has_numbers_of(Path::new("/proc")));
        let captured = tempfile::tempdir().unwrap();
        assert!(!has_numbers_of(captured.path()), "no process of this host is there");
        fs::create_dir(captured.path().join("self")).unwrap();
        let own = std::process::id();
        for (line, is_own) in
            [(format!("{own}"), true), (format!("4711\t{own}"), false), ("0".to_owned(), false)]
        {
            fs::write(captured.path().join("self/status"), format!("Name:\tx\nNSpid:\t{line}\n")).unwrap();
            assert_eq!(has_numbers_of(captured.path()), is_own, "{line}");
        }
    }
}
