//! The ports, VMCI devices and VMs of taut that exist. They are kept from one sample to the next:
//! looking up all owners takes longer than reading their counters.

use std::collections::BTreeMap;

use taut_api::Name;
use taut_api::fabric::PortId;
use taut_plan::Desired;

use super::{ports, sockets};
use crate::board::Seen;

/// A port or VMCI device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    /// Key in the history.
    pub(super) key: String,
    /// Owner of the port, or VM of the device.
    pub(super) name: String,
    pub(super) port: PortId,
    /// Sum of a port's counters at the last sample. The sum stays the same only if none of them has
    /// grown.
    pub(super) sum: Option<u64>,
    /// True if the history has the port marked as one that rests.
    pub(super) rests: bool,
}

/// The ports, VMCI devices and VMs of one state of the host.
#[derive(Debug, Default)]
pub(super) struct Existing {
    /// Revision of the documents of that state, and number of the observation of VMs.
    of: Option<(u64, u64)>,
    /// Names of taut's VMs that run, by their processes.
    pub(super) own: BTreeMap<u32, Name>,
    /// Ports in the order of their numbers, as the counters are read.
    pub(super) ports: Vec<Subject>,
    /// VMCI devices in the order of their ports' numbers.
    pub(super) sockets: Vec<Subject>,
    /// Number of the history that has them.
    history: Option<u64>,
}

impl Existing {
    /// Lists all of them anew if documents or VMs have changed. Returns whether they have.
    pub(super) fn update(&mut self, revision: u64, desired: &Desired, seen: &Seen) -> bool {
        let of = Some((revision, seen.vms_observed));
        let before = std::mem::replace(&mut self.of, of);
        // Most observations find the same VMs.
        let has_same_documents = before.is_some_and(|(before, _)| before == revision);
        if before == of || has_same_documents && self.has_same_vms(seen) {
            return false;
        }
        self.own = running(seen).map(|(pid, name)| (pid, name.clone())).collect();
        self.ports = subjects(ports::existing(desired, seen), ports::key);
        self.sockets = subjects(sockets::existing(desired), sockets::key);
        true
    }

    fn has_same_vms(&self, seen: &Seen) -> bool {
        let mut count = 0;
        let is_same = running(seen).all(|(pid, name)| {
            count += 1;
            self.own.get(&pid) == Some(name)
        });
        is_same && count == self.own.len()
    }

    /// Notes which history has the ports from now on. In one that was opened since, no port is
    /// marked.
    pub(super) fn belongs_to(&mut self, history: u64) {
        if self.history.replace(history) != Some(history) {
            self.ports.iter_mut().for_each(|port| port.rests = false);
        }
    }

    /// Returns the keys of ports and devices.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().chain(&self.sockets).map(|subject| subject.key.as_str())
    }
}

/// Returns subjects in the order of their ports.
fn subjects(found: Vec<(String, PortId)>, key: fn(PortId, &str) -> String) -> Vec<Subject> {
    let subject = |(name, port): (String, PortId)| Subject {
        key: key(port, &name),
        name,
        port,
        sum: None,
        rests: false,
    };
    let mut subjects: Vec<_> = found.into_iter().map(subject).collect();
    subjects.sort_unstable_by_key(|subject| subject.port);
    subjects
}

/// Returns taut's VMs that run: processes and names.
fn running(seen: &Seen) -> impl Iterator<Item = (u32, &Name)> {
    seen.observed.vms.iter().filter_map(|(name, vm)| Some((vm.process.as_ref()?.pid, name)))
}
