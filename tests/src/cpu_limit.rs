//! A CPU limit that another program than taut sets.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A control group with a CPU limit (cgroup v1), which goes at the end. Its process must have ended
/// by then.
#[derive(Debug)]
pub struct CpuLimit(PathBuf);

impl CpuLimit {
    /// Puts a process into a group that gets 30 ms of each 100 ms.
    ///
    /// # Panics
    /// If the host has no controller `cpu` of cgroup v1.
    pub fn enter(pid: u32) -> Self {
        let group = Self(PathBuf::from(format!("/sys/fs/cgroup/cpu/taut-test-{pid}")));
        fs::create_dir(&group.0).expect("the control group is there");
        for (file, value) in
            [("cpu.cfs_period_us", 100_000), ("cpu.cfs_quota_us", 30_000), ("cgroup.procs", pid)]
        {
            fs::write(group.0.join(file), value.to_string()).expect("the control group is there");
        }
        group
    }

    /// Returns the time that the kernel kept the group from running, in nanoseconds.
    ///
    /// # Panics
    /// If the group is gone.
    pub fn throttled_ns(&self) -> f64 {
        let text = fs::read_to_string(self.0.join("cpu.stat")).expect("the control group is there");
        let line = text.lines().find_map(|line| line.strip_prefix("throttled_time "));
        line.and_then(|number| number.parse().ok()).expect("the kernel counts throttled time")
    }
}

impl Drop for CpuLimit {
    fn drop(&mut self) {
        // Its process has ended, but the kernel may not have removed it yet.
        let end = Instant::now() + Duration::from_secs(20);
        while let Err(error) = fs::remove_dir(&self.0) {
            if Instant::now() > end {
                eprintln!("the control group {} stays: {error}", self.0.display());
                break;
            }
            sleep(Duration::from_millis(20));
        }
    }
}
