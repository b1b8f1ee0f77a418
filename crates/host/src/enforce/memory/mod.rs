//! Moving a running VM's memory to other NUMA nodes of the host (LS-5).
//!
//! Each step examines a bounded part of one VM's memory and moves the pages that are elsewhere, so
//! that the caller never waits long. A pass covers all of it once. Further passes retry pages that
//! were held (I/O in progress, pinned by a device) and find pages allocated on the old nodes
//! meanwhile.
//!
//! Moves are neither recorded nor undone: memory has no original place, and the next process's
//! first pass finds most of it moved.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use taut_api::enforcement::{HostPlan, HostReport, MemoryMove};
use taut_api::{Bytes, Name};

use crate::kernel::pages::{Kernel, PAGE, Pages};
use crate::kernel::{maps, topology};

/// Bytes examined in one call of the kernel.
const PIECE: u64 = 16 << 20;
/// Bytes per call when pages that stayed are retried. The kernel may stop at the first page that
/// stays. A huge page is no larger than this.
const RETRY: u64 = 2 << 20;
/// Bytes moved after which a step ends.
const STEP: u64 = 64 << 20;
/// Bytes examined after which a step ends.
const LOOK: u64 = 256 << 20;
/// Time after which a step ends with its present piece.
const LONG: Duration = Duration::from_millis(50);
/// Maximum number of passes.
const PASSES: u32 = 5;
/// Time between two passes.
const PAUSE: Duration = Duration::from_secs(1);

/// The part of enforcement that moves memory.
#[derive(Debug)]
pub(super) struct MemoryMover {
    root: PathBuf,
    jobs: BTreeMap<Name, Job>,
}

impl MemoryMover {
    /// Creates a mover without jobs.
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), jobs: BTreeMap::new() }
    }

    /// Takes one step, begun `now`, for one of the plan's VMs. A VM that the plan does not move is
    /// forgotten; one with another process or other nodes than before starts again.
    pub(super) fn step(&mut self, plan: &HostPlan, now: Instant, report: &mut HostReport) {
        let target = |name: &Name| {
            let vm = plan.vms.get(name)?;
            (!vm.memory.is_empty()).then(|| Target { pid: vm.pid, nodes: vm.memory.clone() })
        };
        self.jobs.retain(|name, job| target(name).as_ref() == Some(&job.target));
        for (name, target) in plan.vms.keys().filter_map(|name| Some((name, target(name)?))) {
            // No VM has more memory than the host.
            let most = || topology::memory_total(&self.root);
            self.jobs.entry(name.clone()).or_insert_with(|| Job::new(target, most(), now));
        }
        if let Some(job) = self.jobs.values_mut().find(|job| job.is_due(now)) {
            job.step(&self.root, &Kernel, now);
        }
        for vm in report.vms.values_mut() {
            vm.memory = None;
        }
        for (name, job) in &self.jobs {
            report.vms.entry(name.clone()).or_default().memory = Some(job.progress());
        }
    }

    /// Returns whether there is a step to take now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.jobs.values().any(|job| job.is_due(now))
    }
}

/// The destination of a process's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    pid: u32,
    /// Any of these nodes; never empty.
    nodes: BTreeSet<u32>,
}

/// The move of one VM's memory.
#[derive(Debug)]
struct Job {
    target: Target,
    /// Maximum number of bytes examined. A process may map far more than its guest has.
    most: Bytes,
    /// Addresses that this pass has not examined.
    ahead: VecDeque<Range<u64>>,
    /// Start of the next pass, unless one is under way.
    next: Option<Instant>,
    passes: u32,
    moved: u64,
    /// Value of `moved` when this pass began.
    before: u64,
    left: u64,
    why: Option<String>,
}

impl Job {
    fn new(target: Target, most: Bytes, now: Instant) -> Self {
        let ahead = VecDeque::new();
        Self { target, most, ahead, next: Some(now), passes: 0, moved: 0, before: 0, left: 0, why: None }
    }

    fn is_due(&self, now: Instant) -> bool {
        !self.ahead.is_empty() || self.next.is_some_and(|at| at <= now)
    }

    fn step(&mut self, root: &Path, pages: &impl Pages, now: Instant) {
        if self.ahead.is_empty() {
            self.passes += 1;
            self.before = self.moved;
            self.left = 0;
            self.why = None;
            match maps::read(root, self.target.pid, self.most.0) {
                // QEMU may have just been started.
                Ok(ranges) if ranges.is_empty() => {
                    self.why = Some("its process has no such memory".to_owned());
                }
                Ok(ranges) => self.ahead = ranges.into(),
                Err(error) => self.why = Some(format!("its process cannot be looked at: {error}")),
            }
        }
        let (enough, mut looked) = (self.moved + STEP, 0);
        while looked < LOOK && self.moved < enough && now.elapsed() < LONG {
            let Some(piece) = self.piece() else { break };
            looked += piece.end - piece.start;
            if let Err(error) = self.move_there(pages, &piece) {
                self.why = Some(format!("move_pages: {error}"));
                self.ahead.clear();
            }
        }
        if self.ahead.is_empty() {
            let again = self.why.is_some() || self.moved > self.before;
            self.next = (again && self.passes < PASSES).then(|| now + PAUSE);
        }
    }

    /// Takes the next part of the memory.
    fn piece(&mut self) -> Option<Range<u64>> {
        let first = self.ahead.front_mut()?;
        let piece = first.start..first.end.min(first.start.saturating_add(PIECE));
        first.start = piece.end;
        if first.is_empty() {
            self.ahead.pop_front();
        }
        Some(piece)
    }

    /// Moves the pages of a piece that are on other nodes.
    fn move_there(&mut self, kernel: &impl Pages, piece: &Range<u64>) -> io::Result<()> {
        let all: Vec<u64> = piece.clone().step_by(PAGE as usize).collect();
        let far = self.elsewhere(kernel, &all)?;
        let (mut stay, mut refused) = (far.clone(), None);
        for size in [PIECE, RETRY] {
            for pages in stay.chunk_by(|a, b| a / size == b / size) {
                refused = self.put(kernel, pages, piece.start / PIECE).err();
            }
            stay = self.elsewhere(kernel, &stay)?;
        }
        self.moved += (far.len() - stay.len()) as u64 * PAGE;
        self.left += stay.len() as u64 * PAGE;
        if !stay.is_empty() {
            let held = "something holds them: I/O in progress, or a device";
            self.why = Some(refused.map_or_else(|| held.to_owned(), |error| error.to_string()));
        }
        Ok(())
    }

    fn elsewhere(&self, kernel: &impl Pages, pages: &[u64]) -> io::Result<Vec<u64>> {
        let nodes = kernel.nodes(self.target.pid, pages)?;
        let far = |node: Option<u32>| node.is_some_and(|node| !self.target.nodes.contains(&node));
        Ok(pages.iter().zip(nodes).filter(|(_, node)| far(*node)).map(|(page, _)| *page).collect())
    }

    /// Moves pages to one of the nodes, chosen by `number` in turn. If a node takes none, the next
    /// is tried.
    fn put(&self, kernel: &impl Pages, pages: &[u64], number: u64) -> io::Result<()> {
        let nodes = &self.target.nodes;
        let first = number as usize % nodes.len().max(1);
        let mut result = Ok(());
        for node in nodes.iter().cycle().skip(first).take(nodes.len()) {
            result = kernel.put(self.target.pid, pages, *node).map_err(|error| explained(&error, *node));
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn progress(&self) -> MemoryMove {
        MemoryMove {
            nodes: self.target.nodes.clone(),
            moved: Bytes(self.moved),
            ahead: Bytes(self.ahead.iter().map(|range| range.end - range.start).sum()),
            left: Bytes(self.left),
            why: self.why.clone(),
            passes: self.passes,
            done: self.ahead.is_empty() && self.next.is_none(),
        }
    }
}

/// Adds the meaning of an error of move_pages(2).
fn explained(error: &io::Error, node: u32) -> io::Error {
    let what = match error.raw_os_error() {
        Some(libc::ENOMEM) => "has no free memory",
        Some(libc::ENODEV) => "has no memory",
        Some(libc::EACCES) => "is not among those that its cpuset allows",
        _ => "takes none",
    };
    io::Error::new(error.kind(), format!("node {node} {what}: {error}"))
}

#[cfg(test)]
mod tests;
