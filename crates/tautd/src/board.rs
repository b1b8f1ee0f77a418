//! The board: state as last observed, shared between the daemon's threads.
//!
//! The reconcile loop and the fabric's supervisor write it; the HTTP API reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use taut_api::Name;
use taut_api::enforcement::HostReport;
use taut_api::fabric::PortId;
use taut_api::fabric::config::SegmentId;
use taut_api::fabric::message::SegmentGroups;
use taut_api::host::{Accelerator, QemuInfo};
use taut_plan::Observed;

/// End of the documents under which problems of groups' folders are noted.
const GROUP: &str = "/vmci/group";

/// The last observed state, behind a lock that is never held during slow operations.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Seen>);

/// The last observed state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// The directory of logs.
    pub(crate) log_dir: PathBuf,
    /// Input of the plans.
    pub(crate) observed: Observed,
    /// Number of times that all VMs were observed anew.
    pub(crate) vms_observed: u64,
    /// Outcome of the last plan on the host; an input of the next one.
    pub(crate) report: HostReport,
    /// Newest revision that a whole round of the reconcile loop has worked on.
    pub(crate) reconciled: u64,
    /// Newest revision of these whose configuration the fabric has in force, if there is a fabric.
    pub(crate) in_force: u64,
    /// A connected fabric was sent a configuration that it has not put in force yet.
    pub(crate) awaits_fabric: bool,
    /// VMs that the last plan refused to start, and why.
    pub(crate) refusals: BTreeMap<Name, String>,
    /// What the start of each VM without a process does.
    pub(crate) starts: BTreeMap<Name, StartStep>,
    /// Number of failures of VMs that requests have cleared.
    pub(crate) failures_cleared: u64,
    /// What failed and is tried again, by document (`netns/NAME`, `vm/NAME/disk`), and why.
    pub(crate) problems: BTreeMap<String, String>,
    /// Ports that the fabric refused to create, and why.
    pub(crate) refused_ports: BTreeMap<PortId, String>,
    /// Multicast groups of segments with snooping.
    pub(crate) groups: BTreeMap<SegmentId, SegmentGroups>,
    /// Version of the fabric that serves; empty if it is not known.
    pub(crate) fabric_version: String,
    /// True if the fabric that serves has network I/O control.
    pub(crate) has_network_io: bool,
    /// Number of fabrics that were started.
    pub(crate) fabric_starts: u32,
    /// Number of fabrics that have served, one that was found included.
    pub(crate) fabrics_served: u32,
    /// Begin of the interval whose load dense mode tests at its end, in milliseconds since the Unix
    /// epoch; `None` while nothing is tested.
    pub(crate) tune_interval_began_ms: Option<u64>,
    /// QEMU and accelerator, once the probe has ended.
    pub(crate) host: Option<HostFacts>,
}

/// The QEMU and the accelerator that guests run with.
#[derive(Debug, Clone)]
pub(crate) struct HostFacts {
    /// KVM or emulation.
    pub(crate) accelerator: Accelerator,
    /// The QEMU that was found, if any.
    pub(crate) qemu: Option<QemuInfo>,
}

/// What the start of a VM does.
#[derive(Debug, Clone)]
pub(crate) struct StartStep {
    /// The step, such as `opening its kernel /boot/vmlinuz`.
    pub(crate) text: String,
    /// Begin of the step, if its length is of interest.
    pub(crate) since: Option<Instant>,
}

impl fmt::Display for StartStep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)?;
        match self.since.map(|since| since.elapsed().as_secs()) {
            Some(seconds) if seconds > 0 => write!(out, ", for {seconds} s now"),
            _ => Ok(()),
        }
    }
}

impl Seen {
    /// Notes that no fabric is connected: nothing of the configuration is waited for.
    pub(crate) fn lose_fabric(&mut self) {
        self.observed.fabric.ready = false;
        self.awaits_fabric = false;
    }

    /// Notes the fabric that serves from now on, by what it has told of itself.
    pub(crate) fn note_fabric(&mut self, version: &str, has_network_io: bool) {
        version.clone_into(&mut self.fabric_version);
        self.has_network_io = has_network_io;
    }

    /// Copies what the rules need to know of the host.
    pub(crate) fn for_rules(&self) -> (Observed, HostReport) {
        (self.observed.clone(), self.report.clone())
    }

    /// Forgets the problems of a VM that end with its process: those of its disk, its queue pairs
    /// and its cards.
    pub(crate) fn forget_problems_of_process(&mut self, vm: &Name) {
        let ended = [format!("vm/{vm}/disk"), queue_pairs_document(vm)];
        let cards = format!("vm/{vm}/nic");
        self.problems.retain(|document, _| !ended.contains(document) && !document.starts_with(&cards));
    }

    /// Forgets the problems of groups' folders except those of these documents. A problem of a VM
    /// that is gone would keep the same problem of the next one from being told.
    pub(crate) fn forget_group_problems(&mut self, except: &BTreeSet<String>) {
        self.problems.retain(|document, _| !document.ends_with(GROUP) || except.contains(document));
    }
}

/// Returns the document under which a problem of the memory of a VM's queue pairs is noted.
pub(crate) fn queue_pairs_document(vm: &Name) -> String {
    format!("vm/{vm}/vmci/queue-pairs")
}

/// Returns the document under which a problem of the folder of a VM's group is noted.
pub(crate) fn group_document(vm: &Name) -> String {
    format!("vm/{vm}{GROUP}")
}

impl Board {
    /// Notes a problem of a document. Returns false if it was noted already.
    pub(crate) fn is_new_problem(&self, document: &str, problem: &str) -> bool {
        let before = self.lock().problems.insert(document.to_owned(), problem.to_owned());
        before.as_deref() != Some(problem)
    }

    /// Locks the state for reading or writing.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().expect("no holder of the board panics")
    }
}
