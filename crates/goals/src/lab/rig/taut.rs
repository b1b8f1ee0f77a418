//! taut as a switch under test: a tautd of its own, its fabric sandboxed as usual, with one polling
//! worker on CPU 0.

use std::path::PathBuf;

use super::{Build, PortGroup, Rig};
use crate::lab::{Daemon, DaemonOptions, Lab};
use crate::machine::{Command, Signal, Words};
use crate::reason::{Measured, NotMeasured};

/// A fabric of a build, with one pair of listening ports. The pair moves to the port group that is
/// measured.
#[derive(Debug)]
pub(super) struct TautSwitch {
    build: Build,
    daemon: Daemon,
    /// Process of the fabric, kept because a daemon that is stopped does not answer.
    pub(super) fabric: u32,
    portgroups: Vec<PortGroup>,
    on: Option<PortGroup>,
}

impl TautSwitch {
    /// Processes that are stopped while another switch is measured. A daemon that was not stopped
    /// would replace a fabric that has not answered for five seconds. The new one would take time
    /// from the CPU of the switch that is measured.
    pub(super) fn pids(&self) -> Vec<u32> {
        vec![self.daemon.job.pid, self.fabric]
    }

    fn run(&self, lab: &mut Lab, words: impl Words) -> Measured<()> {
        let command = Command::new(self.daemon.programs.join("taut")).args(words);
        lab.run(&command.env("TAUT_SOCKET", &self.daemon.socket)).map(drop)
    }
}

impl Rig {
    pub(super) fn taut_of(&self, build: &Build) -> Option<&TautSwitch> {
        self.taut.iter().find(|taut| taut.build == *build)
    }

    pub(super) fn start_taut(&mut self, lab: &mut Lab, build: &Build) -> Measured<()> {
        if self.taut_of(build).is_some() {
            return Ok(());
        }
        let mut options = DaemonOptions::default()
            .args("--fabric-cpus 0 --fabric-mode polling")
            .named(&format!("rig-{}", build.name()))
            .preferred();
        if let Build::Other(_, programs) = build {
            options = options.programs(programs);
        }
        // The daemon that the row itself uses stays the current one.
        let current = lab.daemon().ok();
        let daemon = lab.start_daemon(options)?;
        let fabric = lab.fabric_pid()?;
        if let Some(current) = current {
            lab.use_daemon(&current);
        }
        let taut = TautSwitch { build: build.clone(), daemon, fabric, portgroups: Vec::new(), on: None };
        taut.run(lab, "vswitch create sw")?;
        self.taut.push(taut);
        Ok(())
    }

    /// Sockets of the pair on a port group.
    pub(super) fn pair(&self, build: &Build, portgroup: PortGroup) -> [PathBuf; 2] {
        ["0", "1"].map(|end| self.folder.join(format!("{}-{}-{end}", build.name(), portgroup.name())))
    }

    /// Moves the pair of ports to a port group, which is made if it is missing.
    pub(super) fn move_pair(&mut self, lab: &mut Lab, build: &Build, portgroup: PortGroup) -> Measured<()> {
        let sockets = self.pair(build, portgroup);
        let taut = self.taut.iter_mut().find(|taut| taut.build == *build);
        let taut = taut.ok_or_else(|| NotMeasured::because(format!("{} was not started", build.name())))?;
        if taut.on == Some(portgroup) {
            return Ok(());
        }
        let name = portgroup.name();
        if !taut.portgroups.contains(&portgroup) {
            taut.run(lab, format!("portgroup create {name} --vswitch sw {}", portgroup.options()))?;
            taut.portgroups.push(portgroup);
        }
        for (end, socket) in sockets.iter().enumerate() {
            if taut.on.is_some() {
                taut.run(lab, format!("port detach end{end}"))?;
            }
            let (socket, options) = (socket.display(), portgroup.port_options());
            let to = format!("end{end} --portgroup {name} --mac 02:11:00:00:00:0{end}");
            // Neither lgen nor DPDK seals its memory. Other builds do not ask for that.
            let trusted = if *build == Build::This { "--trusted" } else { "" };
            taut.run(lab, format!("port attach {to} --path {socket} --listen {options} {trusted}"))?;
        }
        taut.on = Some(portgroup);
        lab.until("the ports listen", 5, |lab| Ok(sockets.iter().all(|socket| lab.machine().exists(socket))))
    }

    /// Frames that the ports of taut's fabric have received so far.
    pub(super) fn frames_of_taut(&mut self, lab: &mut Lab) -> Measured<f64> {
        let taut = self.taut_of(&Build::This);
        let taut = taut.ok_or_else(|| NotMeasured::because("taut was not started"))?;
        let command = Command::new(taut.daemon.programs.join("taut")).args("-o json port list");
        let command = command.env("TAUT_SOCKET", &taut.daemon.socket);
        lab.run(&command)?.json()?.sum("", "counters.rx_frames")
    }

    pub(super) fn stop_taut(&mut self, lab: &mut Lab) -> Measured<()> {
        let mut outcome = Ok(());
        for taut in std::mem::take(&mut self.taut) {
            for pid in taut.pids() {
                let _ = lab.machine().signal(pid, Signal::Continue);
            }
            outcome = outcome.and(lab.stop(&taut.daemon));
        }
        outcome
    }
}
