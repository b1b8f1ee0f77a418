//! Rig for switches: each on CPU 0, one at a time, with the generator on CPU 1.
//!
//! A switch starts at its first sample and runs (SIGCONT) only while it is measured. Its polling
//! threads, and taut's daemon, are stopped (SIGSTOP) meanwhile, so that samples of all switches
//! alternate without restarts. All switches and generators get the same priority.
//!
//! ```ignore
//! lab.with_rig(|lab, rig| {
//!     let cells = [Cell::new("taut", Switch::taut(), TAUT, "one-way 64"), …];
//!     let rounds = rig.compare(lab, &cells, None)?;
//!     rounds.ratio("taut", "ovs", "mpps")
//! })
//! ```

mod bridge;
mod cell;
mod cost;
mod generators;
mod ovs;
mod pages;
mod reading;
mod taut;
mod vhost;

use std::path::{Path, PathBuf};

use super::Lab;
use crate::machine::{Doc, Job, Signal};
use crate::reason::{Context, Measured, NotMeasured};
use crate::rounds::{Plan, Ratio, Rounds, Sample, State};

pub use cell::{Build, Cell, Flows, Generator, PortGroup, Switch};
pub use cost::Allocations;
pub use ovs::Restart;
pub use reading::limit;
use taut::TautSwitch;

/// Length of the samples of a rig, and the number of rounds.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Repeats of a sample, of which it is the median.
    pub repeats: u32,
    /// Seconds of a repeat.
    pub seconds: f64,
    /// Rounds.
    pub plan: Plan,
}

/// Rig for switches. Made by [`Lab::with_rig`].
#[derive(Debug)]
pub struct Rig {
    /// Folder of sockets and logs.
    folder: PathBuf,
    /// File system of huge pages.
    huge: PathBuf,
    /// Huge pages before the rig.
    pages_before: f64,
    pace: Pace,
    taut: Vec<TautSwitch>,
    ovs: Option<ovs::Ovs>,
    /// Settings of OVS beside those that every cell has.
    ovs_settings: Vec<&'static str>,
    vhost: Option<Job>,
    has_bridge: bool,
}

impl Lab<'_> {
    /// Opens a rig, has `body` use it, and closes it. Samples have the length that is usual for the
    /// data plane's rows.
    pub fn with_rig<T>(&mut self, body: impl FnOnce(&mut Self, &mut Rig) -> Measured<T>) -> Measured<T> {
        let full = Pace { repeats: 3, seconds: 0.5, plan: Plan { least: 6, most: 9, width: 0.05 } };
        let short = Pace { repeats: 2, seconds: 0.3, plan: Plan::exactly(2) };
        let pace = self.pick(full, short);
        self.with_rig_at(pace, body)
    }

    /// Opens a rig with samples of this length, has `body` use it, and closes it.
    pub fn with_rig_at<T>(
        &mut self,
        pace: Pace,
        body: impl FnOnce(&mut Self, &mut Rig) -> Measured<T>,
    ) -> Measured<T> {
        let mut rig = Rig::open(self, pace)?;
        let outcome = body(self, &mut rig);
        self.clean_up(|lab| rig.close(lab));
        outcome
    }
}

impl Rig {
    fn open(lab: &mut Lab, pace: Pace) -> Measured<Self> {
        let folder = lab.folder().join("rig");
        lab.machine().make_folder(&folder)?;
        let huge = folder.join("huge");
        let pages_before = pages::mount(lab, &huge)?;
        let (taut, ovs, ovs_settings, vhost, has_bridge) = (Vec::new(), None, Vec::new(), None, false);
        Ok(Self { folder, huge, pages_before, pace, taut, ovs, ovs_settings, vhost, has_bridge })
    }

    /// File system of huge pages.
    pub fn huge_pages(&self) -> &Path {
        &self.huge
    }

    /// Folder of sockets and logs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Measures cells in alternation, in as many rounds as the pace has. The ratio, if there is
    /// one, ends the rounds when it is known well enough.
    pub fn compare(&mut self, lab: &mut Lab, cells: &[Cell], watched: Option<Ratio>) -> Measured<Rounds> {
        let names: Vec<&str> = cells.iter().map(|cell| cell.name).collect();
        Rounds::take(self.pace.plan, &names, watched, |name| {
            let cell = cells.iter().find(|cell| cell.name == name);
            let cell = cell.ok_or_else(|| NotMeasured::because(format!("there is no cell {name}")))?;
            // A switch that has just started may need a second attempt.
            self.sample(lab, cell).or_else(|_| self.sample(lab, cell)).when(name)
        })
    }

    /// Takes one sample: the medians of all repeats. Its fields are those of
    /// `taut bench switch -o json`.
    pub fn sample(&mut self, lab: &mut Lab, cell: &Cell) -> Measured<Sample> {
        let result = self.load(lab, cell)?;
        let doc = reading::of_repeats(&result, cell.is_traversal())?;
        // A stand-in's answers say nothing about how near its CPUs are.
        let is_stand_in = lab.machine().is_stand_in();
        let state = if is_stand_in { State::Unknown } else { reading::state_of(&result)? };
        Ok(Sample { state, doc })
    }

    /// Loads a cell's switch and returns a document like that of `taut bench switch -o json`, with
    /// all repeats.
    pub fn load(&mut self, lab: &mut Lab, cell: &Cell) -> Measured<Doc> {
        let result = self.resume(lab, &cell.switch).and_then(|()| self.generate(lab, cell));
        // Lets the switch notice that its front end has gone, before it is stopped.
        lab.sleep(0.1)?;
        self.pause(lab, &cell.switch);
        result
    }

    /// Lets a switch run, with the ports or flows that are measured now. Starts it if it does not
    /// exist yet.
    pub fn resume(&mut self, lab: &mut Lab, switch: &Switch) -> Measured<()> {
        // Other programs may have changed the number of huge pages.
        pages::reserve(lab)?;
        self.signal(lab, switch, Signal::Continue);
        match switch {
            Switch::Taut(build, _) => self.start_taut(lab, build),
            Switch::Ovs(_) => self.start_ovs(lab),
            Switch::Vhost => self.start_vhost(lab),
            Switch::Bridge => self.start_bridge(lab),
        }
        .when(format!("{switch} does not start"))?;
        match switch {
            Switch::Taut(build, portgroup) => self.move_pair(lab, build, *portgroup),
            Switch::Ovs(flows) => self.set_flows(lab, *flows),
            Switch::Vhost | Switch::Bridge => Ok(()),
        }
    }

    /// Stops a switch's processes, with taut's daemon, until it is resumed.
    pub fn pause(&mut self, lab: &mut Lab, switch: &Switch) {
        self.signal(lab, switch, Signal::Stop);
    }

    fn signal(&mut self, lab: &mut Lab, switch: &Switch, signal: Signal) {
        for pid in self.pids(switch) {
            let _ = lab.machine().signal(pid, signal);
        }
    }

    /// Processes of a switch that was started.
    fn pids(&self, switch: &Switch) -> Vec<u32> {
        match switch {
            Switch::Taut(build, _) => self.taut_of(build).map(TautSwitch::pids).unwrap_or_default(),
            Switch::Ovs(_) => self.ovs.iter().map(|ovs| ovs.switch.pid).collect(),
            Switch::Vhost => self.vhost.iter().map(|job| job.pid).collect(),
            Switch::Bridge => Vec::new(),
        }
    }

    /// Sockets of the two ports of a switch that is prepared.
    pub fn sockets(&self, switch: &Switch) -> Measured<[PathBuf; 2]> {
        match switch {
            Switch::Taut(build, portgroup) => Ok(self.pair(build, *portgroup)),
            Switch::Ovs(_) => Ok(["ovs/vu0", "ovs/vu1"].map(|name| self.folder.join(name))),
            Switch::Vhost => Ok(["vhost-0", "vhost-1"].map(|name| self.folder.join(name))),
            Switch::Bridge => Err(NotMeasured::because("the Linux bridge has no sockets")),
        }
    }

    fn close(mut self, lab: &mut Lab) {
        let jobs = [self.vhost.take()].into_iter().flatten();
        jobs.for_each(|job| lab.end(&job));
        let outcome = [self.stop_taut(lab), self.stop_ovs(lab), self.stop_bridge(lab)];
        let pages = pages::unmount(lab, &self.huge, self.pages_before);
        for problem in outcome.into_iter().chain([pages]).filter_map(Result::err) {
            lab.note(format!("the rig's end: {problem}"));
        }
    }
}
