//! A running VM's memory, moved to other NUMA nodes of the host a piece at a time (SPEC LS-5).
//!
//! Each step looks at a bounded part of one VM's memory and moves what is elsewhere, so whoever takes the steps is never held up for
//! long. A pass goes over all of it once. Pages that are held (input and output under way, a device that has them pinned) are tried
//! again in a few more passes, and so is what came to the old nodes while a pass went by. There is nothing to note and to take back: memory has no place that it would go back to, and a daemon
//! that starts anew looks once more and finds most of it moved.

mod pages;
mod ranges;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use taut_api::{Bytes, Name};

use pages::{Kernel, PAGE, Pages};

/// How much is looked at in one call of the kernel.
const PIECE: u64 = 16 << 20;
/// The same for pages that stayed: the kernel may give up a call at the first of them, and a huge page is no larger than this.
const RETRY: u64 = 2 << 20;
/// No more is moved in a step, a piece aside.
const STEP: u64 = 64 << 20;
/// No more is looked at in a step.
const LOOK: u64 = 256 << 20;
/// A step that has taken so long ends with its present piece.
const LONG: Duration = Duration::from_millis(50);
/// How many passes there are at most.
const PASSES: u32 = 5;
/// How long after a pass the next one begins.
const PAUSE: Duration = Duration::from_secs(1);

/// Where a VM's memory is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its process.
    pub pid: u32,
    /// On any of these nodes; never empty.
    pub nodes: BTreeSet<u32>,
    /// It has no more memory than that. A process may map far more, at which nobody looks.
    pub most: Bytes,
}

/// How far that is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// It is moved to these nodes.
    pub nodes: BTreeSet<u32>,
    /// So much has been moved there.
    pub moved: Bytes,
    /// So much has not been looked at yet in this pass.
    pub ahead: Bytes,
    /// So much stayed elsewhere in this pass.
    pub left: Bytes,
    /// Why some of it did, or nothing could be looked at.
    pub why: Option<String>,
    /// Passes so far, this one among them.
    pub passes: u32,
    /// No pass will follow.
    pub done: bool,
}

/// Moves memory of VMs.
#[derive(Debug)]
pub struct Mover {
    root: PathBuf,
    jobs: BTreeMap<Name, Job>,
}

impl Mover {
    /// One that has moved nothing.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), jobs: BTreeMap::new() }
    }

    /// Takes one step, begun `now`, for one of these VMs; others are forgotten. One whose process or nodes are others than before begins anew.
    pub fn step(&mut self, wanted: &BTreeMap<Name, Wanted>, now: Instant) {
        self.jobs.retain(|name, job| wanted.get(name) == Some(&job.wanted));
        for (name, wanted) in wanted {
            self.jobs.entry(name.clone()).or_insert_with(|| Job::new(wanted.clone(), now));
        }
        if let Some(job) = self.jobs.values_mut().find(|job| job.is_due(now)) {
            job.step(&self.root, &Kernel, now);
        }
    }

    /// Is there a step to take now?
    pub fn is_due(&self, now: Instant) -> bool {
        self.jobs.values().any(|job| job.is_due(now))
    }

    /// How far each VM's memory is.
    pub fn progress(&self) -> BTreeMap<Name, Progress> {
        self.jobs.iter().map(|(name, job)| (name.clone(), job.progress())).collect()
    }
}

/// One VM's memory on its way to one set of nodes.
#[derive(Debug)]
struct Job {
    wanted: Wanted,
    /// What this pass has not looked at.
    ahead: VecDeque<Range<u64>>,
    /// When the next pass begins, unless one is under way.
    next: Option<Instant>,
    passes: u32,
    moved: u64,
    /// The same when this pass began.
    before: u64,
    left: u64,
    why: Option<String>,
}

impl Job {
    fn new(wanted: Wanted, now: Instant) -> Self {
        let ahead = VecDeque::new();
        Self { wanted, ahead, next: Some(now), passes: 0, moved: 0, before: 0, left: 0, why: None }
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
            match ranges::read(root, self.wanted.pid, self.wanted.most.0) {
                // QEMU may only just have been started.
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

    /// The next part of its memory.
    fn piece(&mut self) -> Option<Range<u64>> {
        let first = self.ahead.front_mut()?;
        let piece = first.start..first.end.min(first.start.saturating_add(PIECE));
        first.start = piece.end;
        if first.is_empty() {
            self.ahead.pop_front();
        }
        Some(piece)
    }

    /// Moves what of a piece is on other nodes.
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
            let held = "something holds them: input and output under way, or a device";
            self.why = Some(refused.map_or_else(|| held.to_owned(), |error| error.to_string()));
        }
        Ok(())
    }

    fn elsewhere(&self, kernel: &impl Pages, pages: &[u64]) -> io::Result<Vec<u64>> {
        let nodes = kernel.nodes(self.wanted.pid, pages)?;
        let far = |node: Option<u32>| node.is_some_and(|node| !self.wanted.nodes.contains(&node));
        Ok(pages.iter().zip(nodes).filter(|(_, node)| far(*node)).map(|(page, _)| *page).collect())
    }

    /// Puts pages on one of the nodes, in turn by `number`; one that takes none of them leaves them to the next.
    fn put(&self, kernel: &impl Pages, pages: &[u64], number: u64) -> io::Result<()> {
        let nodes = &self.wanted.nodes;
        let first = number as usize % nodes.len().max(1);
        let mut result = Ok(());
        for node in nodes.iter().cycle().skip(first).take(nodes.len()) {
            result = kernel.put(self.wanted.pid, pages, *node).map_err(|error| explained(&error, *node));
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn progress(&self) -> Progress {
        Progress {
            nodes: self.wanted.nodes.clone(),
            moved: Bytes(self.moved),
            ahead: Bytes(self.ahead.iter().map(|range| range.end - range.start).sum()),
            left: Bytes(self.left),
            why: self.why.clone(),
            passes: self.passes,
            done: self.ahead.is_empty() && self.next.is_none(),
        }
    }
}

/// What an error of move_pages(2) means.
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
