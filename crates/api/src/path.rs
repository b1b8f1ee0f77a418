//! Paths of the HTTP API, used by the daemon's router and by its clients.

use crate::Name;

/// A path with the placeholder `{name}`, as the router and OpenAPI write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedPath(&'static str);

impl NamedPath {
    /// Returns the pattern with the placeholder.
    pub const fn pattern(self) -> &'static str {
        self.0
    }

    /// Returns the path of the resource `name`. Names need no escape.
    pub fn of(self, name: &Name) -> String {
        self.0.replace("{name}", name.as_str())
    }
}

/// A path with the placeholder `{port}`, which stands for the number of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortPath(&'static str);

impl PortPath {
    /// Returns the pattern with the placeholder.
    pub const fn pattern(self) -> &'static str {
        self.0
    }

    /// Returns the path of the port with this number.
    pub fn of(self, port: u32) -> String {
        self.0.replace("{port}", &port.to_string())
    }
}

/// All VMs.
pub const VMS: &str = "/v1/vms";
/// One VM.
pub const VM: NamedPath = NamedPath("/v1/vms/{name}");
/// Power state of one VM.
pub const VM_POWER: NamedPath = NamedPath("/v1/vms/{name}/power");
/// KVM's counters of one VM.
pub const VM_KVM: NamedPath = NamedPath("/v1/vms/{name}/kvm");
/// All connections of VMCI sockets.
pub const VMCI_CONNECTIONS: &str = "/v1/vmci/connections";
/// All vSwitches.
pub const VSWITCHES: &str = "/v1/vswitches";
/// One vSwitch.
pub const VSWITCH: NamedPath = NamedPath("/v1/vswitches/{name}");
/// All port groups.
pub const PORTGROUPS: &str = "/v1/portgroups";
/// One port group.
pub const PORTGROUP: NamedPath = NamedPath("/v1/portgroups/{name}");
/// All namespace attachments.
pub const NETNS: &str = "/v1/netns";
/// One namespace attachment.
pub const NETNS_ATTACHMENT: NamedPath = NamedPath("/v1/netns/{name}");
/// All external ports.
pub const EXTERNAL_PORTS: &str = "/v1/external-ports";
/// One external port.
pub const EXTERNAL_PORT: NamedPath = NamedPath("/v1/external-ports/{name}");
/// All interfaces on port groups.
pub const NETDEVS: &str = "/v1/netdevs";
/// One interface on a port group.
pub const NETDEV: NamedPath = NamedPath("/v1/netdevs/{name}");
/// All uplinks.
pub const UPLINKS: &str = "/v1/uplinks";
/// One uplink.
pub const UPLINK: NamedPath = NamedPath("/v1/uplinks/{name}");
/// All network cards.
pub const PNICS: &str = "/v1/pnics";
/// The settings of one network card.
pub const PNIC: NamedPath = NamedPath("/v1/pnics/{name}");
/// All ports of the fabric.
pub const PORTS: &str = "/v1/ports";
/// Counts and rates of all ports within a period.
pub const PORT_STATISTICS: &str = "/v1/statistics/ports";
/// Times of all VMs of the host within a period.
pub const VM_STATISTICS: &str = "/v1/statistics/vms";
/// VMCI sockets of all VMs within a period.
pub const SOCKET_STATISTICS: &str = "/v1/statistics/sockets";
/// Averages of the host over a period.
pub const HOST_STATISTICS: &str = "/v1/statistics/host";
/// Rates of one port, uplink or VM, or of the host, over a period, step by step.
pub const SERIES: &str = "/v1/statistics/series";
/// Frames of one port, as they pass.
pub const PORT_CAPTURE: PortPath = PortPath("/v1/ports/{port}/capture");
/// The event log.
pub const EVENTS: &str = "/v1/events";
/// The audit record.
pub const AUDIT: &str = "/v1/audit";
/// Check of the audit record's hash chain.
pub const AUDIT_CHECK: &str = "/v1/audit/check";
/// All tokens for access over TCP.
pub const TOKENS: &str = "/v1/tokens";
/// One token.
pub const TOKEN: NamedPath = NamedPath("/v1/tokens/{name}");
/// The host.
pub const HOST: &str = "/v1/host";
/// Settings of the host.
pub const HOST_SETTINGS: &str = "/v1/host/settings";
/// Best practices that the host follows or not.
pub const HOST_CHECK: &str = "/v1/host/check";
/// Dense mode.
pub const HOST_TUNE: &str = "/v1/host/tune";
/// Restoring the host's settings.
pub const HOST_RESTORE: &str = "/v1/host/restore";
/// The daemon.
pub const DAEMON: &str = "/v1/daemon";
/// Replacing the running fabric.
pub const UPGRADE_FABRIC: &str = "/v1/upgrade-fabric";
/// Ending the daemon.
pub const SHUTDOWN: &str = "/v1/shutdown";
/// Metrics for Prometheus.
pub const METRICS: &str = "/metrics";
/// The description of this API.
pub const OPENAPI: &str = "/openapi.json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_or_a_number_takes_the_placeholders_place() {
        assert_eq!(VM_POWER.of(&"db1".parse().unwrap()), "/v1/vms/db1/power");
        assert_eq!(VM_POWER.pattern(), "/v1/vms/{name}/power");
        assert_eq!(PORT_CAPTURE.of(7), "/v1/ports/7/capture");
    }
}
