//! Stage of SE10 and SE16: a daemon under mixed load, whose processes are killed one after the
//! other.
//!
//! The load: a TCP connection and datagrams between two namespaces, pings to a microguest, two
//! clients that change settings, one that starts and stops a VM, and a QEMU process with its
//! console.

mod act;
mod random;

use std::time::Duration;

use super::super::vc_g::guests::micro;
use crate::lab::inventory::Inventory;
use crate::lab::{Client, DaemonOptions, Lab, Round, Testimony, Witness};
use crate::machine::Command;
use crate::reason::{Context, Measured};

use act::Back;
pub(super) use act::Kill;
pub(super) use random::Random;

/// Namespaces of the witness.
const FROM: &str = "taut-goal-a";
const TO: &str = "taut-goal-b";
/// VMs that exist from the beginning to the end.
const VMS: [&str; 6] = ["steady", "first", "second", "cycle", "started", "qemu"];
/// Address of the microguest that is pinged.
const STEADY: &str = "10.87.0.3";

/// A daemon under mixed load.
pub(super) struct Stage {
    witness: Witness,
    writers: [Client; 2],
    cycle: Client,
    random: Random,
    /// The program that kills a launcher.
    kill_child: std::path::PathBuf,
    /// What was there before the daemon was started, and when it had no load.
    before: Inventory,
    idle: Inventory,
}

/// Effects of a kill.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    /// What the witness saw.
    pub(super) round: Round,
    /// Time until the service was back, for processes that were stopped.
    pub(super) back: Option<Duration>,
    /// Acknowledged changes that were lost.
    pub(super) lost: f64,
}

/// Totals at the end of the load.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) testimony: Testimony,
    /// Acknowledged changes that were lost.
    pub(super) lost: f64,
    /// Changes that were acknowledged, and starts with stops of a VM.
    pub(super) changes: f64,
    pub(super) cycles: f64,
    /// Items left behind, and their names.
    pub(super) left: u64,
    pub(super) names: String,
}

impl Stage {
    /// Starts the daemon and the load. Clients that change settings pause for `pause` between two
    /// changes.
    pub(super) fn start(lab: &mut Lab, pause: Duration) -> Measured<Self> {
        let kill_child = lab.example("taut-bench", "kill_child")?;
        let before = lab.inventory()?;
        lab.start_lan(DaemonOptions::default())?;
        // The console process is started with the first VM.
        micro(lab, "steady", STEADY, "goals")?;
        lab.taut("vm stop --force steady")?;
        lab.taut("vm delete steady")?;
        lab.until("its processes have ended", 20, |lab| {
            let of_vms = ["taut-micro", "taut-launch"].map(|name| lab.processes_named(name));
            of_vms.into_iter().try_fold(true, |none, found| Ok(none && found?.is_empty()))
        })?;
        let idle = lab.inventory()?;

        lab.netns(FROM, "lan", "10.87.0.1")?;
        lab.netns(TO, "lan", "10.87.0.2")?;
        micro(lab, "steady", STEADY, "goals")?;
        for (at, name) in ["first", "second", "cycle", "started"].iter().enumerate() {
            let nic = format!("[[nic]]\nportgroup = \"lan\"\nip = \"10.87.0.{}/24\"\n", at + 11);
            lab.create_vm(name, &format!("kind = \"micro\"\nmemory = \"16MiB\"\n{nic}"))?;
        }
        // The firmware finds nothing to boot, and waits.
        let disk = lab.folder().join("disk");
        lab.machine().write(&disk, &"\0".repeat(1 << 20))?;
        let disk = format!("[disk]\npath = \"{}\"\n", disk.display());
        lab.create_vm("qemu", &format!("memory = \"64MiB\"\n[[nic]]\nportgroup = \"lan\"\n{disk}"))?;
        lab.taut("vm start qemu")?;
        let witness = lab.start_witness(FROM, TO, "10.87.0.2")?;
        let writers = [lab.start_writer("first", pause)?, lab.start_writer("second", pause)?];
        let cycle = lab.start_cycle("cycle")?;
        Ok(Self { witness, writers, cycle, random: Random::new(2026), kill_child, before, idle })
    }

    /// Kills, waits until everything works again, and says what happened.
    pub(super) fn kill(&mut self, lab: &mut Lab, kill: Kill) -> Measured<Outcome> {
        lab.begin_round(&mut self.witness)?;
        let done = [0, 1].map(|at| lab.done(&self.writers[at]));
        let [first, second] = done;
        let before = [first?, second?];
        // At a random moment of what the clients do.
        lab.sleep(self.random.below(0.2))?;
        let back = self.act(lab, kill).when(kill.name())?;
        let round = lab.end_round(&self.witness).when(kill.name())?;
        let back = back.map(|back| match back {
            Back::Traffic(from) => round.resumed.saturating_sub(from),
            Back::Answer(took) => took,
        });
        steady_answers(lab).when(kill.name())?;
        let mut lost = 0.0;
        for (writer, before) in self.writers.iter().zip(before) {
            lost += lab.lost_by(writer).when(kill.name())?;
            lab.progress(writer, before, 60).when(kill.name())?;
        }
        Ok(Outcome { round, back, lost })
    }

    /// Waits until the client that starts and stops a VM has done so again.
    pub(super) fn cycle_goes_on(&self, lab: &mut Lab) -> Measured<()> {
        let before = lab.done(&self.cycle)?;
        lab.progress(&self.cycle, before, 120)
    }

    /// Ends the load, removes all VMs, ends the daemon, and looks for what is left behind.
    pub(super) fn end(self, lab: &mut Lab) -> Measured<End> {
        let changes = lab.done(&self.writers[0])? + lab.done(&self.writers[1])?;
        let cycles = lab.done(&self.cycle)?;
        let mut lost = 0.0;
        for writer in &self.writers {
            lost += lab.lost_by(writer)? + lab.found_lost(writer)?;
        }
        let testimony = lab.end_witness(&self.witness)?;
        for client in self.writers.iter().chain([&self.cycle]) {
            lab.end_client(client)?;
        }
        for vm in VMS {
            // A VM that is off has nothing to stop.
            let _ = lab.taut(format!("vm stop --force {vm}"));
            lab.taut(format!("vm delete {vm}"))?;
        }
        for name in [FROM, TO] {
            lab.taut(format!("netns detach {name}"))?;
            // The daemon may have removed the namespace that it made.
            let _ = lab.machine().run(&Command::new("ip").args(["netns", "del", name]));
        }
        let still = lab.left_behind(&self.idle, 10)?;
        // This fails if something is still mounted in the daemon's folders.
        lab.stop_daemon()?;
        let after = lab.left_behind(&self.before, 10)?;
        let left = still.count() + after.count();
        let names = format!("idle: {still}; ended: {after}");
        Ok(End { testimony, lost, changes, cycles, left, names })
    }
}

/// Requires that the microguest answers from a namespace.
fn steady_answers(lab: &mut Lab) -> Measured<()> {
    lab.until("the microguest answers", 10, |lab| {
        let ping = Command::new("ping").args(["-c", "1", "-W", "1", "-q", STEADY]).in_namespace(FROM);
        Ok(lab.machine().run(&ping)?.is_success())
    })
}
