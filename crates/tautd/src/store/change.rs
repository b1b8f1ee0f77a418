//! One write to one document.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use taut_api::Name;
use taut_api::host::HostSettings;
use taut_api::netdev::NetdevSpec;
use taut_api::network::{ExternalPortSpec, NetnsSpec, PortGroupSpec, VSwitchSpec};
use taut_api::pnic::PnicSettings;
use taut_api::uplink::UplinkSpec;
use taut_api::vm::VmDesired;
use taut_plan::Desired;

use super::difference::describe;

/// Kinds of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Vm,
    VSwitch,
    PortGroup,
    Netns,
    External,
    Netdev,
    Uplink,
    Pnic,
    Host,
}

impl Kind {
    /// All kinds, each after those that it refers to.
    pub(crate) const ALL: [Self; 9] = [
        Self::Host,
        Self::Pnic,
        Self::VSwitch,
        Self::Uplink,
        Self::PortGroup,
        Self::Vm,
        Self::Netns,
        Self::External,
        Self::Netdev,
    ];

    /// Returns the name of the kind in messages to users.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Vm => "VM",
            Self::VSwitch => "vSwitch",
            Self::PortGroup => "port group",
            Self::Netns => "namespace attachment",
            Self::External => "external port",
            Self::Netdev => "interface on a port group",
            Self::Uplink => "uplink",
            Self::Pnic => "pNIC document",
            Self::Host => "host document",
        }
    }

    /// Returns the name of the kind in the store's file, events and paths.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::VSwitch => "vswitch",
            Self::PortGroup => "portgroup",
            Self::Netns => "netns",
            Self::External => "external",
            Self::Netdev => "netdev",
            Self::Uplink => "uplink",
            Self::Pnic => "pnic",
            Self::Host => "host",
        }
    }
}

/// A write: a new document, a new version of one, or (`None`) a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum Change {
    Vm(Name, Option<VmDesired>),
    VSwitch(Name, Option<VSwitchSpec>),
    PortGroup(Name, Option<PortGroupSpec>),
    Netns(Name, Option<NetnsSpec>),
    External(Name, Option<ExternalPortSpec>),
    Netdev(Name, Option<NetdevSpec>),
    Uplink(Name, Option<UplinkSpec>),
    Pnic(Name, Option<PnicSettings>),
    /// There is only one document of this kind; see [`Change::host`].
    Host(Name, Option<HostSettings>),
}

impl Change {
    /// Returns a write of the host's settings.
    pub(crate) fn host(settings: HostSettings) -> Self {
        Self::Host("settings".parse().expect("a name"), Some(settings))
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Vm(..) => Kind::Vm,
            Self::VSwitch(..) => Kind::VSwitch,
            Self::PortGroup(..) => Kind::PortGroup,
            Self::Netns(..) => Kind::Netns,
            Self::External(..) => Kind::External,
            Self::Netdev(..) => Kind::Netdev,
            Self::Uplink(..) => Kind::Uplink,
            Self::Pnic(..) => Kind::Pnic,
            Self::Host(..) => Kind::Host,
        }
    }

    pub(crate) fn name(&self) -> &Name {
        match self {
            Self::Vm(name, _)
            | Self::VSwitch(name, _)
            | Self::PortGroup(name, _)
            | Self::Netns(name, _)
            | Self::External(name, _)
            | Self::Netdev(name, _)
            | Self::Uplink(name, _)
            | Self::Pnic(name, _)
            | Self::Host(name, _) => name,
        }
    }

    pub(crate) fn is_deletion(&self) -> bool {
        match self {
            Self::Vm(_, spec) => spec.is_none(),
            Self::VSwitch(_, spec) => spec.is_none(),
            Self::PortGroup(_, spec) => spec.is_none(),
            Self::Netns(_, spec) => spec.is_none(),
            Self::External(_, spec) => spec.is_none(),
            Self::Netdev(_, spec) => spec.is_none(),
            Self::Uplink(_, spec) => spec.is_none(),
            Self::Pnic(_, spec) => spec.is_none(),
            Self::Host(_, spec) => spec.is_none(),
        }
    }

    /// Applies the write in memory.
    pub(crate) fn apply(&self, desired: &mut Desired) {
        match self.clone() {
            Self::Vm(name, spec) => set(&mut desired.vms, name, spec),
            Self::VSwitch(name, spec) => set(&mut desired.vswitches, name, spec),
            Self::PortGroup(name, spec) => set(&mut desired.portgroups, name, spec),
            Self::Netns(name, spec) => set(&mut desired.netns, name, spec),
            Self::External(name, spec) => set(&mut desired.external, name, spec),
            Self::Netdev(name, spec) => set(&mut desired.netdevs, name, spec),
            Self::Uplink(name, spec) => set(&mut desired.uplinks, name, spec),
            Self::Pnic(name, spec) => set(&mut desired.pnics, name, spec),
            Self::Host(_, spec) => desired.host = spec.unwrap_or_default(),
        }
    }

    /// Describes the write for the event log: what is new, or which values it changes to which.
    pub(crate) fn describe(&self, desired: &Desired) -> String {
        fn values<T: Serialize>(before: Option<&T>, after: Option<&T>) -> (Value, Value) {
            // A document that is no JSON is refused when it is saved.
            let json = |document: Option<&T>| serde_json::to_value(document).unwrap_or_default();
            (json(before), json(after))
        }
        let (before, after) = match self {
            Self::Vm(name, spec) => values(desired.vms.get(name), spec.as_ref()),
            Self::VSwitch(name, spec) => values(desired.vswitches.get(name), spec.as_ref()),
            Self::PortGroup(name, spec) => values(desired.portgroups.get(name), spec.as_ref()),
            Self::Netns(name, spec) => values(desired.netns.get(name), spec.as_ref()),
            Self::External(name, spec) => values(desired.external.get(name), spec.as_ref()),
            Self::Netdev(name, spec) => values(desired.netdevs.get(name), spec.as_ref()),
            Self::Uplink(name, spec) => values(desired.uplinks.get(name), spec.as_ref()),
            Self::Pnic(name, spec) => values(desired.pnics.get(name), spec.as_ref()),
            Self::Host(_, spec) => values(Some(&desired.host), spec.as_ref()),
        };
        describe(&before, &after)
    }

    /// Returns the document before and after the write as JSON, as the store's file has it.
    pub(crate) fn texts(&self, desired: &Desired) -> (Option<String>, Option<String>) {
        fn text<T: Serialize>(document: Option<&T>) -> Option<String> {
            // A document that is no JSON is refused when it is saved.
            document.and_then(|document| serde_json::to_string(document).ok())
        }
        let before = match self {
            Self::Vm(name, _) => text(desired.vms.get(name)),
            Self::VSwitch(name, _) => text(desired.vswitches.get(name)),
            Self::PortGroup(name, _) => text(desired.portgroups.get(name)),
            Self::Netns(name, _) => text(desired.netns.get(name)),
            Self::External(name, _) => text(desired.external.get(name)),
            Self::Netdev(name, _) => text(desired.netdevs.get(name)),
            Self::Uplink(name, _) => text(desired.uplinks.get(name)),
            Self::Pnic(name, _) => text(desired.pnics.get(name)),
            Self::Host(..) => text(Some(&desired.host)),
        };
        (before, self.to_json().ok().filter(|_| !self.is_deletion()))
    }

    /// Returns the document as JSON; `null` for a deletion.
    pub(super) fn to_json(&self) -> serde_json::Result<String> {
        match self {
            Self::Vm(_, spec) => serde_json::to_string(spec),
            Self::VSwitch(_, spec) => serde_json::to_string(spec),
            Self::PortGroup(_, spec) => serde_json::to_string(spec),
            Self::Netns(_, spec) => serde_json::to_string(spec),
            Self::External(_, spec) => serde_json::to_string(spec),
            Self::Netdev(_, spec) => serde_json::to_string(spec),
            Self::Uplink(_, spec) => serde_json::to_string(spec),
            Self::Pnic(_, spec) => serde_json::to_string(spec),
            Self::Host(_, spec) => serde_json::to_string(spec),
        }
    }

    /// Reads a document of the store's file as the write that made it.
    pub(super) fn from_json(kind: Kind, name: Name, json: &str) -> serde_json::Result<Self> {
        fn read<T: DeserializeOwned>(json: &str) -> serde_json::Result<Option<T>> {
            serde_json::from_str(json).map(Some)
        }
        Ok(match kind {
            Kind::Vm => Self::Vm(name, read(json)?),
            Kind::VSwitch => Self::VSwitch(name, read(json)?),
            Kind::PortGroup => Self::PortGroup(name, read(json)?),
            Kind::Netns => Self::Netns(name, read(json)?),
            Kind::External => Self::External(name, read(json)?),
            Kind::Netdev => Self::Netdev(name, read(json)?),
            Kind::Uplink => Self::Uplink(name, read(json)?),
            Kind::Pnic => Self::Pnic(name, read(json)?),
            Kind::Host => Self::Host(name, read(json)?),
        })
    }
}

fn set<T>(table: &mut std::collections::BTreeMap<Name, T>, name: Name, spec: Option<T>) {
    match spec {
        Some(spec) => table.insert(name, spec),
        None => table.remove(&name),
    };
}
