//! Kills of one process or two.

use std::time::Duration;

use super::Stage;
use crate::lab::Lab;
use crate::machine::{Command, Signal};
use crate::reason::{Measured, NotMeasured, require};

/// What is killed, or stopped for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Kill {
    Daemon,
    Fabric,
    /// The launcher of a VM, half-way.
    Launcher,
    Console,
    /// Daemon and fabric at once.
    Both,
    Qemu,
    /// SIGSTOP of the fabric for 1 to 30 s.
    StopFabric,
    /// SIGSTOP of the daemon for 1 to 30 s.
    StopDaemon,
}

impl Kill {
    /// All kinds.
    pub(in super::super) const ALL: [Self; 8] = [
        Self::Daemon,
        Self::Fabric,
        Self::Launcher,
        Self::Console,
        Self::Both,
        Self::Qemu,
        Self::StopFabric,
        Self::StopDaemon,
    ];

    /// Name for results.
    pub(in super::super) const fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::Fabric => "fabric",
            Self::Launcher => "launcher",
            Self::Console => "console process",
            Self::Both => "daemon and fabric",
            Self::Qemu => "QEMU",
            Self::StopFabric => "fabric stopped",
            Self::StopDaemon => "daemon stopped",
        }
    }
}

/// How it is known when a service is back that was stopped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Back {
    /// Traffic goes on again, which has to be soon after this moment.
    Traffic(Duration),
    /// The daemon has answered, after so long.
    Answer(Duration),
}

impl Stage {
    /// Kills, and waits until there is another process. Says of one that was stopped when its
    /// service is back.
    pub(super) fn act(&mut self, lab: &mut Lab, kill: Kill) -> Measured<Option<Back>> {
        match kill {
            Kill::Daemon => restart_daemon(lab, None)?,
            Kill::Both => {
                let fabric = lab.fabric_pid()?;
                restart_daemon(lab, Some(fabric))?;
                until_another_fabric(lab, fabric)?;
            }
            Kill::Fabric => {
                let fabric = lab.fabric_pid()?;
                lab.machine().signal(fabric, Signal::Kill)?;
                until_another_fabric(lab, fabric)?;
            }
            Kill::Console => kill_console(lab)?,
            Kill::Qemu => kill_qemu(lab)?,
            Kill::Launcher => self.kill_launcher(lab)?,
            Kill::StopFabric => return self.stop_fabric(lab).map(Back::Traffic).map(Some),
            Kill::StopDaemon => return self.stop_daemon(lab).map(Back::Answer).map(Some),
        }
        Ok(None)
    }

    /// Kills a launcher while it builds the walls of a VM. The VM starts the next time.
    fn kill_launcher(&mut self, lab: &mut Lab) -> Measured<()> {
        // A launcher may be over before it is killed. Then there is another attempt.
        for _ in 0..20 {
            let after = self.random.below(6000.0) as u32;
            let mark = format!("TAUT_GOALS_LAB={}", lab.folder().display());
            let words = ["taut-launch", &mark, "--within", "5", "--after-us", &after.to_string()];
            let killer = lab.start(&Command::new(&self.kill_child).args(words))?;
            lab.until("launchers are looked for", 5, |lab| {
                Ok(lab.machine().output(&killer)?.contains("looking"))
            })?;
            // The start fails if its launcher is killed.
            let start = lab.taut_command("vm start started").limit(60);
            let _ = lab.machine().run(&start)?;
            let killed = lab.wait_for_end(&killer, Duration::from_secs(20))?;
            let is_killed = killed.is_success() && killed.stdout.contains("killed");
            lab.until("the VM starts after all", 30, |lab| {
                let command = lab.taut_command("vm start --wait started");
                Ok(lab.machine().run(&command)?.is_success())
            })?;
            lab.taut("vm stop --force started")?;
            if is_killed {
                return Ok(());
            }
        }
        Err(NotMeasured::because("no launcher was killed in 20 attempts"))
    }

    /// Stops the fabric for 1 to 30 s. Returns when it went on, or was still the old one when it
    /// was last seen before another one took its place.
    fn stop_fabric(&mut self, lab: &mut Lab) -> Measured<Duration> {
        let fabric = lab.fabric_pid()?;
        let end = lab.now() + Duration::from_secs_f64(1.0 + self.random.below(29.0));
        lab.machine().signal(fabric, Signal::Stop)?;
        let mut last_seen = lab.now();
        loop {
            let now = lab.now();
            if now >= end {
                // It may have been replaced since it was last seen.
                let _ = lab.machine().signal(fabric, Signal::Continue);
                return Ok(now);
            }
            if lab.fabric_pid().is_ok_and(|pid| pid != fabric) {
                return Ok(last_seen);
            }
            last_seen = now;
            lab.sleep(0.02)?;
        }
    }

    /// Stops the daemon for 1 to 30 s. Returns how long an answer takes after it went on.
    fn stop_daemon(&mut self, lab: &mut Lab) -> Measured<Duration> {
        let daemon = lab.daemon()?.job.pid;
        let pause = 1.0 + self.random.below(29.0);
        lab.machine().signal(daemon, Signal::Stop)?;
        let slept = lab.sleep(pause);
        lab.machine().signal(daemon, Signal::Continue)?;
        slept?;
        let from = lab.now();
        lab.taut("daemon show")?;
        Ok(lab.now().saturating_sub(from))
    }
}

/// Kills the daemon, and a fabric with it, and starts another daemon.
fn restart_daemon(lab: &mut Lab, fabric: Option<u32>) -> Measured<()> {
    let daemon = lab.daemon()?;
    lab.machine().signal(daemon.job.pid, Signal::Kill)?;
    if let Some(fabric) = fabric {
        lab.machine().signal(fabric, Signal::Kill)?;
    }
    lab.machine().wait(&daemon.job, Duration::from_secs(10))?;
    lab.restart_daemon(&daemon).map(drop)
}

fn until_another_fabric(lab: &mut Lab, before: u32) -> Measured<()> {
    lab.until("another fabric runs", 20, |lab| Ok(lab.fabric_pid().is_ok_and(|pid| pid != before)))
}

fn kill_console(lab: &mut Lab) -> Measured<()> {
    let before = lab.processes_named("taut-console")?;
    let pid = *before.first().ok_or_else(|| NotMeasured::because("there is no console process"))?;
    lab.machine().signal(pid, Signal::Kill)?;
    lab.until("another console process runs", 20, |lab| {
        Ok(lab.processes_named("taut-console")?.first().is_some_and(|now| *now != pid))
    })
}

/// Kills QEMU, waits until the daemon has noticed, and starts the VM again.
fn kill_qemu(lab: &mut Lab) -> Measured<()> {
    let pid = lab.vm_pid("qemu")?;
    lab.machine().signal(pid, Signal::Kill)?;
    lab.until("the VM is seen failed", 20, |lab| Ok(lab.vm_show("qemu")?.text("status.phase")? == "failed"))?;
    lab.taut("vm start qemu")?;
    let again = lab.vm_pid("qemu")?;
    let is_granted = lab.machine().takes_for_granted();
    require(again != pid || is_granted, "QEMU is the same process as before")
}
