//! The number of threads that work on starts, and which queued start may have the next one.
//!
//! A thread that makes no progress for a while is *held up*: the file system that it waits for may
//! never answer. Threads that are held up have bounds of their own, for each mount too, so that
//! they leave room for VMs with files elsewhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use taut_api::Name;

use super::mounts::Mounts;
use super::stage::{Stage, Start};
use crate::access::files;

/// Time without progress after which a thread is held up. A file system that works needs less for
/// the next piece of a file.
pub(super) const SLOW: Duration = Duration::from_secs(2);
/// Maximum numbers of threads that are not held up.
pub(super) const WORKING: Bounds = Bounds { of_owner: 16, of_all: 64 };
/// Maximum numbers of threads that are held up.
pub(super) const HELD_UP: Bounds = Bounds { of_owner: 64, of_all: 256 };
/// Maximum number of held-up threads of one owner that wait for the same mount.
pub(super) const ON_MOUNT: usize = 8;
/// Maximum number of threads of one VM: those of starts that were given up, and a new one.
pub(super) const OF_VM: usize = 3;

/// Maximum numbers of threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) of_owner: usize,
    pub(super) of_all: usize,
}

impl Bounds {
    /// Number of threads reserved for owners without a thread.
    pub(super) const fn reserved(self) -> usize {
        self.of_all / 4
    }
}

/// The reason that a start waits in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wait {
    /// The threads of all owners are in use.
    OtherStarts,
    /// The threads of its owner are in use.
    OwnersStarts,
    /// Earlier starts of the VM are held up.
    EarlierStarts,
    /// This mount holds up other starts of its owner.
    Mount(PathBuf),
    /// Too many other starts are held up.
    HeldUp,
}

impl Wait {
    /// Returns the reason for users.
    pub(super) fn text(&self) -> String {
        match self {
            Self::OtherStarts => "waits for other starts".to_owned(),
            Self::OwnersStarts => "waits for other starts of its owner".to_owned(),
            Self::EarlierStarts => {
                "waits for the files of its earlier starts, which do not answer".to_owned()
            }
            Self::Mount(mount) => {
                let mount = mount.display();
                format!("waits for other starts with files on {mount}, which does not answer")
            }
            Self::HeldUp => "waits for other starts, whose files do not answer".to_owned(),
        }
    }
}

/// Numbers of threads, in all and by owner.
#[derive(Debug, Default)]
struct Count {
    all: usize,
    of_owner: BTreeMap<u32, usize>,
}

impl Count {
    fn add(&mut self, owner: u32) {
        self.all += 1;
        *self.of_owner.entry(owner).or_default() += 1;
    }

    fn of(&self, owner: u32) -> usize {
        self.of_owner.get(&owner).copied().unwrap_or_default()
    }

    /// Returns whether there is room for a thread of the owner: among its own, and among all.
    fn room(&self, owner: u32, most: Bounds) -> (bool, bool) {
        let own = self.of(owner);
        let of_all = if own == 0 { most.of_all } else { most.of_all - most.reserved() };
        (own < most.of_owner, self.all < of_all)
    }
}

/// Numbers of the threads that work on starts.
#[derive(Debug, Default)]
pub(super) struct Threads {
    working: Count,
    held_up: Count,
    of_vm: BTreeMap<Name, usize>,
    /// Held-up threads of each owner that wait for a mount.
    on_mount: BTreeMap<(u32, PathBuf), usize>,
    mounts: Mounts,
}

impl Threads {
    /// Counts the threads of these starts.
    pub(super) fn count<'a>(starts: impl Iterator<Item = &'a Start> + Clone) -> Self {
        let mut threads = Self::default();
        let with_thread = starts.filter(|start| !matches!(start.stage, Stage::Queued(_)));
        if with_thread.clone().any(is_held_up) {
            threads.mounts = Mounts::read();
        }
        with_thread.for_each(|start| threads.add(start));
        threads
    }

    /// Counts the thread of one more start.
    pub(super) fn add(&mut self, start: &Start) {
        let owner = start.request.owner.uid;
        *self.of_vm.entry(start.vm.clone()).or_default() += 1;
        if !is_held_up(start) {
            return self.working.add(owner);
        }
        self.held_up.add(owner);
        if let Some(mount) = self.mounts.of(&start.progress.path()) {
            *self.on_mount.entry((owner, mount.to_owned())).or_default() += 1;
        }
    }

    /// Returns the number of an owner's threads that are not held up.
    pub(super) fn working(&self, owner: u32) -> usize {
        self.working.of(owner)
    }

    /// Returns why a start gets no thread now; `None` if it may have one.
    pub(super) fn wait(&self, start: &Start) -> Option<Wait> {
        let owner = start.request.owner.uid;
        if self.of_vm.get(&start.vm).is_some_and(|threads| *threads >= OF_VM) {
            return Some(Wait::EarlierStarts);
        }
        if let Some(mount) = self.silent_mount(start) {
            return Some(Wait::Mount(mount.to_owned()));
        }
        match (self.working.room(owner, WORKING), self.held_up.room(owner, HELD_UP)) {
            ((true, true), (true, true)) => None,
            ((false, _), _) => Some(Wait::OwnersStarts),
            ((_, false), _) => Some(Wait::OtherStarts),
            _ => Some(Wait::HeldUp),
        }
    }

    /// Returns the mount of one of its files that holds up too many starts of its owner.
    fn silent_mount(&self, start: &Start) -> Option<&Path> {
        if self.on_mount.is_empty() {
            return None;
        }
        let owner = start.request.owner.uid;
        let full = |mount: &&Path| {
            self.on_mount.get(&(owner, mount.to_path_buf())).is_some_and(|threads| *threads >= ON_MOUNT)
        };
        files::named(&start.request.spec).iter().filter_map(|file| self.mounts.of(&file.path)).find(full)
    }

    /// Counts with these mounts instead of the host's.
    #[cfg(test)]
    pub(super) fn with_mounts<'a>(starts: impl Iterator<Item = &'a Start>, mounts: Mounts) -> Self {
        let mut threads = Self { mounts, ..Self::default() };
        starts.filter(|start| !matches!(start.stage, Stage::Queued(_))).for_each(|start| threads.add(start));
        threads
    }
}

fn is_held_up(start: &Start) -> bool {
    start.progress.idle() > SLOW
}
