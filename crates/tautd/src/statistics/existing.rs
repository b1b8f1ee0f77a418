//! The ports and VMCI devices that exist, with their keys. They are kept from one sample to the
//! next: looking up all owners takes longer than reading their counters.

use std::collections::BTreeMap;

use taut_api::fabric::PortId;
use taut_plan::Desired;

use super::{machines, ports, sockets};
use crate::board::Seen;

/// A port or VMCI device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    /// Key in the history.
    pub(super) key: String,
    /// Owner of the port, or VM of the device.
    pub(super) name: String,
    pub(super) port: PortId,
}

/// The ports and VMCI devices of one state of the host.
#[derive(Debug, Default)]
pub(super) struct Existing {
    /// Revision of the documents and taut's VMs of that state.
    of: Option<(u64, BTreeMap<u32, String>)>,
    pub(super) ports: Vec<Subject>,
    pub(super) sockets: Vec<Subject>,
}

impl Existing {
    /// Lists ports and devices anew if documents or VMs have changed. Returns whether they have.
    pub(super) fn update(&mut self, revision: u64, desired: &Desired, seen: &Seen) -> bool {
        let of = Some((revision, machines::own(seen)));
        if self.of == of {
            return false;
        }
        let subject = |key: fn(PortId, &str) -> String| {
            move |(name, port): (String, PortId)| Subject { key: key(port, &name), name, port }
        };
        self.ports = ports::existing(desired, seen).into_iter().map(subject(ports::key)).collect();
        self.sockets = sockets::existing(desired).into_iter().map(subject(sockets::key)).collect();
        self.of = of;
        true
    }

    /// Returns the port or device with the highest number.
    pub(super) fn last(&self) -> Option<PortId> {
        self.ports.iter().chain(&self.sockets).map(|subject| subject.port).max()
    }

    /// Returns the keys of ports and devices.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().chain(&self.sockets).map(|subject| subject.key.as_str())
    }
}
