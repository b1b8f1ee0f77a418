//! What was last seen: written by the reconcile loop and the fabric's supervisor, read by everybody.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use taut_api::Name;
use taut_api::enforcement::HostReport;
use taut_api::fabric::PortId;
use taut_api::host::{Accelerator, QemuInfo};
use taut_plan::Observed;

/// What was last seen, behind a lock that is never held across anything slow.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Seen>);

/// What was last seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// What plans are made from.
    pub(crate) observed: Observed,
    /// What the last plan left on the host; plans are made from it as well.
    pub(crate) report: HostReport,
    /// VMs that the last plan did not allow, and why.
    pub(crate) refusals: BTreeMap<Name, String>,
    /// Attachments that could not be made, by document (`netns/NAME`), and why.
    pub(crate) problems: BTreeMap<String, String>,
    /// Ports that the fabric could not make, and why.
    pub(crate) refused_ports: BTreeMap<PortId, String>,
    /// How often a fabric was started.
    pub(crate) fabric_starts: u32,
    /// How guests run on this host, once that is known.
    pub(crate) host: Option<HostFacts>,
}

/// How guests run on this host.
#[derive(Debug, Clone)]
pub(crate) struct HostFacts {
    /// KVM or emulation.
    pub(crate) accelerator: Accelerator,
    /// The QEMU found, if any.
    pub(crate) qemu: Option<QemuInfo>,
}

impl Seen {
    /// What the rules need to know of the host.
    pub(crate) fn for_rules(&self) -> (Observed, HostReport) {
        (self.observed.clone(), self.report.clone())
    }
}

impl Board {
    /// A look at it, or a change to it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().expect("no holder of the board panics")
    }
}
