//! Preparation of starts: whatever touches a path that a user named happens on a thread per start.
//!
//! A start is queued, prepared by its thread, launched by the same thread at the loop's order,
//! confirmed by the loop, and ends with its thread. The loop never waits for any of it. A start
//! that makes no progress for [`PATIENCE`], or whose VM is not to start any more, is given up: its
//! thread is left behind and counted until it ends. A process that is not confirmed ends.

mod boot_files;
mod mounts;
mod progress;
mod stage;
mod thread;
mod threads;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use taut_api::error::ErrorKind;
use taut_api::vm::VmSpec;
use taut_api::{ApiError, Name};
use taut_vm::launch::{self, RunPaths};

pub(super) use progress::Progress;
use stage::{Decision, Launching, Stage, Start};
pub(super) use stage::{Launched, Outcome};
pub(super) use thread::Prepared;
use thread::{Job, Report, Reports};
use threads::{Threads, Wait};

use super::budget::Budget;
use super::copies::Copies;
use super::record::Facts;
use crate::access::rights::Rights;
use crate::board::StartStep;
use crate::confine::{Confiner, Devices};
use crate::inbox::Inbox;
use crate::process::own_table;

/// Maximum time without progress. A piece of a copy is progress.
const PATIENCE: Duration = Duration::from_secs(30);

/// The starts in progress.
#[derive(Debug)]
pub(super) struct Preparations {
    starts: BTreeMap<u64, Start>,
    /// Number of the next start.
    next: u64,
    /// Sender that each start's thread clones. A report carries the start's number.
    reports: Sender<(u64, Report)>,
    reported: Receiver<(u64, Report)>,
    /// Starts for which there was no thread.
    refused: Vec<(Name, ApiError)>,
    inbox: Inbox,
    tools: Tools,
}

/// What threads need for their work.
#[derive(Debug, Clone)]
pub(super) struct Tools {
    /// Starts processes behind walls.
    pub(super) confiner: Confiner,
    /// Folder of taut's programs.
    pub(super) libexec: PathBuf,
    /// Copies of kernels and initrds.
    pub(super) copies: Copies,
    /// Memory for copies that are being made.
    pub(super) budget: Budget,
}

/// What a start is prepared for. The result serves no other description and no other owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) spec: VmSpec,
    /// Files are opened with the rights of the VM's owner.
    pub(super) owner: Rights,
}

/// The order to launch a process whose files are open.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) start: launch::Start,
    pub(super) paths: RunPaths,
    pub(super) user: u32,
    pub(super) devices: Devices,
    pub(super) locks_memory: bool,
    pub(super) threads: u64,
    pub(super) facts: Facts,
}

impl Preparations {
    /// Creates an empty set of starts.
    pub(super) fn new(tools: Tools, inbox: Inbox) -> Self {
        let (reports, reported) = channel();
        Self { starts: BTreeMap::new(), next: 0, reports, reported, refused: Vec::new(), inbox, tools }
    }

    /// Queues the start of a VM unless it is there. Returns whether it can be launched.
    pub(super) fn want(&mut self, vm: &Name, request: Request) -> bool {
        if let Some(start) = self.present(vm)
            && start.request == request
        {
            return matches!(start.stage, Stage::Prepared(..)) && !self.is_launching(vm);
        }
        self.give_up(vm);
        if self.present(vm).is_none() {
            let progress = Arc::new(Progress::new());
            let stage = Stage::Queued(Wait::OtherStarts);
            let start = Start { vm: vm.clone(), request, progress, given_up: false, stage };
            self.starts.insert(self.next, start);
            self.next += 1;
        }
        false
    }

    /// Returns the disk chain and the copies made from a VM's files; `None` unless it can be
    /// launched.
    pub(super) fn prepared(&self, vm: &Name) -> Option<&Prepared> {
        match &self.present(vm)?.stage {
            Stage::Prepared(_, prepared) => Some(prepared),
            _ => None,
        }
    }

    /// Orders the launch of a VM that can be launched.
    pub(super) fn launch(&mut self, vm: &Name, order: Order) -> Result<(), ApiError> {
        let mut of_vm = self.starts.values_mut().filter(|start| start.vm == *vm && start.is_present());
        let Some(start) = of_vm.next() else { return Ok(()) };
        if let Stage::Prepared(orders, prepared) = &start.stage {
            let copies = prepared.share(&self.tools.copies).map_err(|error| {
                let message = "the copies of its kernel and initrd cannot be opened";
                ApiError::new(ErrorKind::Unavailable, message, "start the VM again").because(&error)
            })?;
            let (confirm, confirmed) = channel();
            let orders = orders.clone();
            start.stage = Stage::Launching(Launching { user: order.user, copies, confirm });
            // Time without an order does not count.
            let _ = start.progress.advance();
            // Fails only for a thread that has panicked, and the report of its end tells that.
            let _ = orders.send((order, confirmed));
        }
        Ok(())
    }

    /// Gives up the start of a VM, unless its process was confirmed.
    pub(super) fn give_up(&mut self, vm: &Name) {
        for start in self.starts.values_mut().filter(|start| start.vm == *vm) {
            start.give_up();
        }
        self.starts.retain(|_, start| !(start.given_up && is_queued(start)));
    }

    /// Gives up the starts of all VMs that are not wanted.
    pub(super) fn give_up_unless(&mut self, is_wanted: impl Fn(&Name) -> bool) {
        let present = self.starts.values().filter(|start| start.is_present()).map(|start| start.vm.clone());
        let unwanted: Vec<Name> = present.filter(|vm| !is_wanted(vm)).collect();
        for vm in unwanted {
            self.give_up(&vm);
        }
    }

    /// Returns what has become of starts since the last call.
    pub(super) fn outcomes(&mut self) -> Vec<(Name, Outcome)> {
        let refused = std::mem::take(&mut self.refused).into_iter();
        let mut outcomes: Vec<_> = refused.map(|(vm, error)| (vm, Outcome::Failed(error))).collect();
        while let Ok((number, report)) = self.reported.try_recv() {
            let has_ended = matches!(report, Report::Ended);
            let Some(start) = self.starts.get_mut(&number) else { continue };
            outcomes.extend(start.take(report).map(|outcome| (start.vm.clone(), outcome)));
            if has_ended {
                self.starts.remove(&number);
            }
        }
        for start in self.starts.values_mut() {
            outcomes.extend(start.overdue().map(|error| (start.vm.clone(), Outcome::Failed(error))));
        }
        outcomes
    }

    /// Returns what each VM's start does, for users.
    pub(super) fn steps(&self) -> BTreeMap<Name, StartStep> {
        let present = self.starts.values().filter(|start| start.is_present());
        present.map(|start| (start.vm.clone(), self.step(start))).collect()
    }

    /// Returns the users of processes that are being launched.
    pub(super) fn users(&self) -> BTreeSet<u32> {
        self.starts.values().filter_map(|start| start.stage.user()).collect()
    }

    fn step(&self, start: &Start) -> StartStep {
        let text = match &start.stage {
            Stage::Queued(wait) => wait.text(),
            Stage::Prepared(..) if self.is_launching(&start.vm) => {
                "waits for the end of its last start".to_owned()
            }
            Stage::Prepared(..) => "its files are open; waits to be launched".to_owned(),
            Stage::Preparing(_) | Stage::Launching(_) | Stage::Deciding(_) | Stage::Ending => {
                return start.progress.step();
            }
        };
        StartStep { text, since: None }
    }

    /// The start of a VM whose result is wanted.
    pub(super) fn is_present(&self, vm: &Name) -> bool {
        self.present(vm).is_some()
    }

    fn present(&self, vm: &Name) -> Option<&Start> {
        self.of(vm).find(|start| start.is_present())
    }

    /// Returns whether a process of this VM is being launched. An earlier start that was given up
    /// may still hold its sockets.
    fn is_launching(&self, vm: &Name) -> bool {
        self.of(vm).any(|start| start.stage.user().is_some())
    }

    fn of(&self, vm: &Name) -> impl Iterator<Item = &Start> {
        self.starts.values().filter(move |start| start.vm == *vm)
    }

    /// Begins queued starts while there is room for threads: next the oldest one of the owner with
    /// the fewest threads. Notes for the others why they wait.
    pub(super) fn begin_queued(&mut self) {
        if !self.starts.values().any(is_queued) {
            return;
        }
        let mut threads = Threads::count(self.starts.values());
        loop {
            let mut next = None;
            for (number, start) in &mut self.starts {
                let Stage::Queued(wait) = &start.stage else { continue };
                match threads.wait(start) {
                    Some(now) if now == *wait => {}
                    Some(now) => start.stage = Stage::Queued(now),
                    None => {
                        let place = (threads.working(start.request.owner.uid), *number);
                        next = Some(next.map_or(place, |other: (usize, u64)| other.min(place)));
                    }
                }
            }
            let Some((_, number)) = next else { return };
            self.begin(number);
            if let Some(start) = self.starts.get(&number) {
                threads.add(start);
            }
        }
    }

    /// Starts the thread of a queued start.
    fn begin(&mut self, number: u64) {
        let Some(start) = self.starts.get_mut(&number) else { return };
        let (orders, received) = channel();
        start.stage = Stage::Preparing(orders);
        // Time in the queue does not count.
        let _ = start.progress.advance();
        self.tools.confiner.prepare();
        let job = Job {
            vm: start.vm.clone(),
            request: start.request.clone(),
            progress: start.progress.clone(),
            tools: self.tools.clone(),
            reports: Reports { start: number, sender: self.reports.clone(), inbox: self.inbox.clone() },
            orders: received,
        };
        if let Err(error) = own_table::spawn("start", move || thread::run(&job)) {
            let message = "no thread can be started that opens its files";
            let hint = "raise the limit of the daemon's threads, then start the VM again";
            let error = ApiError::new(ErrorKind::Unavailable, message, hint).because(&error);
            start.give_up();
            self.refused.push((start.vm.clone(), error));
        }
    }
}

fn is_queued(start: &Start) -> bool {
    matches!(start.stage, Stage::Queued(_))
}

#[cfg(test)]
mod tests;
