//! Usage of a process: CPU time, memory, descriptors, threads, timers.

use std::path::PathBuf;

use super::Lab;
use crate::machine::Command;
use crate::reason::{Measured, require};

/// Usage of a process at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Memory of its own in KiB, without what it shares or maps.
    pub memory: f64,
    /// Open descriptors.
    pub descriptors: f64,
    /// Threads.
    pub threads: f64,
    /// Timers: timer descriptors and POSIX timers.
    pub timers: f64,
}

impl Usage {
    /// Its figures, in the order of [`Usage::NAMES`].
    pub fn figures(&self) -> [f64; 4] {
        [self.memory, self.descriptors, self.threads, self.timers]
    }

    /// Names of the figures.
    pub const NAMES: [&'static str; 4] = ["KiB of memory", "descriptors", "threads", "timers"];
}

impl Lab<'_> {
    /// CPU time that all threads of a process have used, in ns.
    pub fn cpu_ns(&mut self, pid: u32) -> Measured<f64> {
        let threads = self.machine.list(&PathBuf::from(format!("/proc/{pid}/task")))?;
        let mut sum = 0.0;
        for thread in threads {
            sum += self.read(thread.join("schedstat"))?.number_between("", " ")?;
        }
        Ok(sum)
    }

    /// Reads what a process uses. Fails if it has ended.
    pub fn usage(&mut self, pid: u32) -> Measured<Usage> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let status = self.read(folder.join("status"))?;
        let find = Command::new("find").arg(folder.join("fd")).args("-type l -printf").arg("%l\\n");
        // A descriptor may be closed while they are listed, which `find` takes for an error.
        let links = self.machine.run(&find)?.stdout;
        require(!links.lines().is_empty(), format!("process {pid} has no descriptor"))?;
        let timer_descriptors = links.lines().iter().filter(|link| link.contains("[timerfd]")).count();
        // Kernels without POSIX timers have no such file.
        let timers = self.read(folder.join("timers")).map_or(0, |text| text.all_between("ID:", "").len());
        Ok(Usage {
            memory: status.number_between("RssAnon:", "kB")?,
            descriptors: links.lines().len() as f64,
            threads: status.number_between("Threads:", "")?,
            timers: (timer_descriptors + timers) as f64,
        })
    }
}
