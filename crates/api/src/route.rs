//! Bodies of HTTP requests and answers that are not documents themselves.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fabric::counters::{PortCounters, WorkerCounters};
use crate::import::ImportedKey;
use crate::link::Link;
use crate::netdev::{NetdevSpec, NetdevStatus};
use crate::network::{
    ExternalPortSpec, ExternalPortStatus, NetnsSpec, NetnsStatus, PortGroupSpec, PortGroupStatus,
    VSwitchSpec, VSwitchStatus,
};
use crate::pnic::{PnicSettings, PnicStatus};
use crate::role::Role;
use crate::shaping::PortShaping;
use crate::token::RemoteInfo;
use crate::uplink::{UplinkSpec, UplinkStatus};
use crate::vm::{Power, VmDesired, VmStatus};
use crate::{Coalescing, Document, GuestMac, MacAddr, Name};

/// A VM as the API returns it.
pub type Vm = Document<VmDesired, VmStatus>;
/// A vSwitch as the API returns it.
pub type VSwitch = Document<VSwitchSpec, VSwitchStatus>;
/// A port group as the API returns it.
pub type PortGroup = Document<PortGroupSpec, PortGroupStatus>;
/// A namespace attachment as the API returns it.
pub type Netns = Document<NetnsSpec, NetnsStatus>;
/// An external port as the API returns it.
pub type ExternalPort = Document<ExternalPortSpec, ExternalPortStatus>;
/// An interface on a port group as the API returns it.
pub type Netdev = Document<NetdevSpec, NetdevStatus>;
/// An uplink as the API returns it.
pub type Uplink = Document<UplinkSpec, UplinkStatus>;
/// A network card as the API returns it. Its revision is 0 while it has no settings of taut.
pub type Pnic = Document<PnicSettings, PnicStatus>;

/// `POST /v1/vms`: a VM file as the user wrote it. The daemon parses the file, so that every client
/// gets the same answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVm {
    /// Name of the VM; overrides the name in the file (`name`, `displayName`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// Format of `text`.
    pub format: VmFormat,
    /// Content of the file.
    pub text: String,
    /// Absolute directory that relative paths in the file are relative to.
    pub base_dir: String,
    /// Power state after creation.
    #[serde(default)]
    pub power: Power,
    /// Port group for vNICs of a `.vmx` whose `networkName` is absent or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_portgroup: Option<Name>,
}

/// Format of a VM file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VmFormat {
    /// taut's own format.
    Toml,
    /// VMware's format.
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
    /// Wanted power state.
    pub power: Power,
    /// With `off`: kill the process instead of asking the guest through ACPI first.
    #[serde(default)]
    pub force: bool,
}

/// `PATCH /v1/host/settings`: keys of `HostSettings` with their new values. An empty value,
/// or `default`, restores the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeHostSettings(pub BTreeMap<String, String>);

/// `GET /v1/ports`: one port of the fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortInfo {
    /// Number of the port in the fabric.
    pub port: u32,
    /// Owner of the port: `vm/NAME/nic0`, `netns/NAME`, `external/NAME`, `netdev/NAME`
    /// or `uplink/NAME`.
    pub owner: String,
    /// Configured Ethernet address; absent for an uplink, which stands for all addresses outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Address that the guest's driver has set.
    #[serde(flatten)]
    pub guest_mac: GuestMac,
    /// vSwitch of the port.
    pub vswitch: Name,
    /// Port group of the port; absent for an uplink, which has frames of all port groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portgroup: Option<Name>,
    /// State of the link.
    pub link: Link,
    /// Reason that the link is not up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Moderation in force; absent for ports without moderation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalescing: Option<Coalescing>,
    /// Traffic shaping in force, and its origin.
    #[serde(default)]
    pub shaping: PortShaping,
    /// True if the port admits a front end that could disturb other guests.
    #[serde(default)]
    pub trusted: bool,
    /// Counters of frames, bytes, and drops by reason.
    pub counters: PortCounters,
}

/// `GET /v1/daemon`: version, processes and state of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DaemonInfo {
    /// Version of taut.
    pub version: String,
    /// Process ID of `tautd`.
    pub pid: u32,
    /// Process ID of the fabric, while it runs.
    pub fabric_pid: Option<u32>,
    /// Version of taut that the running fabric belongs to: that of the daemon, or an earlier one
    /// until the fabric is upgraded. Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric_version: Option<String>,
    /// Number of times that this daemon started the fabric.
    pub fabric_starts: u32,
    /// Newest revision in the store.
    pub revision: u64,
    /// Newest revision that the daemon has worked on, and the fabric, if it runs. What the host
    /// refuses is not in force; a resource's status tells.
    #[serde(default)]
    pub reconciled: u64,
    /// Directory of the store and of the ledger of changed host settings.
    pub state_dir: String,
    /// The fabric's worker threads.
    #[serde(default)]
    pub workers: Vec<WorkerInfo>,
    /// The caller, as the daemon sees it; absent from earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<CallerInfo>,
    /// Access over TCP; absent if it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteInfo>,
}

/// Sender of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallerInfo {
    /// User ID; absent for a caller over TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Name of the token that a caller over TCP has shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Name>,
    /// Role that the roles file gives the user, or that the token has.
    pub role: Role,
}

/// A worker thread of the fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerInfo {
    /// Index, from 0.
    pub worker: u32,
    /// pCPU that the worker is bound to; absent if it is unbound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// When the worker sleeps: `interrupt`, `adaptive` or `polling`.
    pub mode: String,
    /// Counters of the worker.
    pub counters: WorkerCounters,
}

/// `POST /v1/upgrade-fabric`: what the new fabric took over, and the duration of each step in
/// microseconds. Traffic stops only during the last two steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpgradedFabric {
    /// Process ID of the fabric that ended.
    pub old_pid: u32,
    /// Process ID of the fabric that serves now.
    pub new_pid: u32,
    /// Number of ports whose session or device was handed over.
    pub ports: u32,
    /// Start of the program, sandbox and threads, until the first answer.
    pub start_us: u64,
    /// Configuration.
    pub configure_us: u64,
    /// Transfer of all sessions, with guest memory mapped.
    pub prepare_us: u64,
    /// The old fabric publishes every ring and stops.
    pub stop_us: u64,
    /// The new fabric starts every ring.
    pub take_over_us: u64,
    /// Time without service: the sum of the last two steps.
    pub gap_us: u64,
}

/// `POST /v1/shutdown`: end the daemon, and the fabric too if no VM runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {
    /// Stop every VM, detach every namespace and end the fabric first. The store keeps its
    /// documents.
    #[serde(default)]
    pub everything: bool,
}
