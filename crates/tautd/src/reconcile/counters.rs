//! Port counters that start from zero when a port number gets another owner.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use taut_api::fabric::PortId;
use taut_api::fabric::counters::VmciCounters;

use crate::fabric::counters::Counters;

/// The counters of all ports, and the owner of each port number that they count for.
#[derive(Debug)]
pub(super) struct PortCounters {
    counters: Arc<Counters>,
    owners: BTreeMap<u16, String>,
}

impl PortCounters {
    /// Counts on for the owners of these port numbers.
    pub(super) fn new(counters: Arc<Counters>, numbers: &BTreeMap<String, u16>) -> Self {
        let owners = numbers.iter().map(|(owner, number)| (*number, owner.clone())).collect();
        Self { counters, owners }
    }

    /// Reads the counters of a port of the switch.
    pub(super) fn port(&self, port: PortId) -> io::Result<taut_api::fabric::counters::PortCounters> {
        self.counters.read(port)
    }

    /// Reads the counters of a VMCI device.
    pub(super) fn vmci(&self, port: PortId) -> io::Result<VmciCounters> {
        self.counters.read_vmci(port)
    }

    /// Clears the counters of port numbers that have another owner than before.
    pub(super) fn clear_new(&mut self, numbers: &BTreeMap<String, u16>) {
        for (owner, &number) in numbers {
            if self.owners.get(&number) != Some(owner) {
                if let Err(error) = self.counters.clear(PortId(number)) {
                    tracing::warn!(owner, %error, "its counters cannot be set to zero");
                }
                self.owners.insert(number, owner.clone());
            }
        }
    }
}
