//! The HTTP API's bodies that are not resources themselves. Paths are documented in the generated OpenAPI.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fabric::counters::{PortCounters, WorkerCounters};
use crate::import::ImportedKey;
use crate::link::Link;
use crate::network::{
    ExternalPortSpec, ExternalPortStatus, NetnsSpec, NetnsStatus, PortGroupSpec, PortGroupStatus,
    VSwitchSpec, VSwitchStatus,
};
use crate::vm::{Power, VmDesired, VmStatus};
use crate::{Coalescing, Document, MacAddr, Name};

/// A VM as the API returns it.
pub type Vm = Document<VmDesired, VmStatus>;
/// A vSwitch as the API returns it.
pub type VSwitch = Document<VSwitchSpec, VSwitchStatus>;
/// A port group as the API returns it.
pub type PortGroup = Document<PortGroupSpec, PortGroupStatus>;
/// A namespace attachment as the API returns it.
pub type Netns = Document<NetnsSpec, NetnsStatus>;
/// An external port as the API returns it (`/v1/external-ports/{name}`).
pub type ExternalPort = Document<ExternalPortSpec, ExternalPortStatus>;

/// `POST /v1/vms`: a VM file as its user wrote it. The daemon parses it, so every client gets the same answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVm {
    /// Name of the VM; a file may carry its own (`name`, `displayName`), which this overrides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// How `text` is written.
    pub format: VmFormat,
    /// The file's content.
    pub text: String,
    /// Absolute directory that relative paths in the file start from.
    pub base_dir: String,
    /// Start it at once?
    #[serde(default)]
    pub power: Power,
    /// Port group for vNICs of a `.vmx` whose `networkName` is absent or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_portgroup: Option<Name>,
}

/// How a VM file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VmFormat {
    /// taut's own.
    Toml,
    /// VMware's.
    Vmx,
}

/// Answer to [`CreateVm`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedVm {
    /// The new VM.
    #[schema(value_type = Document<VmDesired, VmStatus>)]
    pub vm: Vm,
    /// For `.vmx`: every key and its fate, in the file's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub imported: Vec<ImportedKey>,
}

/// `POST /v1/vms/{name}/power`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPower {
    /// Wanted state.
    pub power: Power,
    /// With `off`: kill the process instead of asking the guest (ACPI) first.
    #[serde(default)]
    pub force: bool,
}

/// `PATCH /v1/host/settings`: keys of `HostSettings` and their new values; an empty value stands for the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeHostSettings(pub BTreeMap<String, String>);

/// `GET /v1/ports`: one port of the fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortInfo {
    /// Port number in the fabric.
    pub port: u32,
    /// Whose it is: `vm/NAME/nic0`, `netns/NAME`, `external/NAME`.
    pub owner: String,
    /// Its address.
    pub mac: MacAddr,
    /// Its port group.
    pub portgroup: Name,
    /// State of the link.
    pub link: Link,
    /// Why it is not up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Moderation in force; absent for ports that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalescing: Option<Coalescing>,
    /// Frames, bytes, drops with their reasons.
    pub counters: PortCounters,
}

/// `GET /v1/daemon`: who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DaemonInfo {
    /// taut's version.
    pub version: String,
    /// Process of `tautd`.
    pub pid: u32,
    /// Process of the fabric, while there is one.
    pub fabric_pid: Option<u32>,
    /// How often the fabric was started in this daemon's life.
    pub fabric_starts: u32,
    /// Newest revision in the store.
    pub revision: u64,
    /// Where its store is, and the ledger of what is changed on the host.
    pub state_dir: String,
    /// The fabric's worker threads.
    #[serde(default)]
    pub workers: Vec<WorkerInfo>,
}

/// A worker thread of the fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerInfo {
    /// Its number, from 0.
    pub worker: u32,
    /// The pCPU that it is bound to, if it is to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// When it sleeps: `interrupt`, `adaptive` or `polling`.
    pub mode: String,
    /// What it has done so far.
    pub counters: WorkerCounters,
}

/// `POST /v1/upgrade-fabric`: what a new fabric took over, and how long each step took, in microseconds. Traffic stood still
/// only for the last two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradedFabric {
    /// Process of the fabric that ended.
    pub old_pid: u32,
    /// Process of the fabric that serves now.
    pub new_pid: u32,
    /// Ports with a session or a device that were handed over.
    pub ports: u32,
    /// From its start to its first answer: program, sandbox, threads.
    pub start_us: u64,
    /// Until it had its configuration.
    pub configure_us: u64,
    /// Until it had every session, guest memory mapped.
    pub prepare_us: u64,
    /// Until the old fabric had published every ring and stopped.
    pub stop_us: u64,
    /// Until the new one had started every ring.
    pub take_over_us: u64,
    /// How long nobody served: the last two together.
    pub gap_us: u64,
}

/// `POST /v1/shutdown`: end the daemon, and the fabric with it when no VM runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {
    /// Stop every VM, detach every namespace and end the fabric first. Desired state in the store is kept.
    #[serde(default)]
    pub everything: bool,
}
