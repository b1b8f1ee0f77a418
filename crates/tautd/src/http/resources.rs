//! vSwitches, port groups, namespace attachments, external ports, interfaces and uplinks:
//! `/v1/vswitches` and others.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use taut_api::netdev::{NetdevSpec, NetdevStatus};
use taut_api::network::{
    ExternalPortSpec, ExternalPortStatus, NetnsSpec, NetnsStatus, PortGroupSpec, PortGroupStatus,
    VSwitchSpec, VSwitchStatus,
};
use taut_api::uplink::{UplinkSpec, UplinkStatus};
use taut_api::{ApiError, Document, Name, path};
use taut_plan::admission::documents::{
    admit_external, admit_netns, admit_portgroup, admit_portgroup_deletion, admit_vswitch_deletion,
};
use taut_plan::admission::mirrors::admit_mirrors;
use taut_plan::admission::mtu::{admit_group_mtu, admit_mtu};
use taut_plan::admission::network_io::{admit_class, admit_network_io, admit_speed};
use taut_plan::admission::uplinks::{admit_teaming, admit_uplink_removal};
use taut_plan::{Desired, Owner};

use super::Shared;
use super::body::{Body, Condition, Failure, Named};
use super::documents::{self, Resource, Stored};
use crate::board::Seen;
use crate::interface;
use crate::reconcile::{admit_interface, admit_netdev_interface, learned_address};
use crate::status;
use crate::store::{Change, Kind};

/// Defines the module with the four handlers of one kind of document and their descriptions.
macro_rules! handlers {
    (
        $module:ident, $resource:ident, $Spec:ident, $Status:ident, $tag:literal, $what:literal,
        $all:ident, $one:ident, $list:ident, $show:ident, $put:ident, $delete:ident,
        $list_text:literal, $show_text:literal, $put_text:literal, $delete_text:literal
    ) => {
        pub(super) mod $module {
            use super::*;

            #[doc = $list_text]
            #[utoipa::path(get, path = path::$all, tag = $tag,
                                responses((status = 200, body = [Document<$Spec, $Status>])))]
            pub(in crate::http) async fn $list(
                State(app): State<Shared>,
            ) -> Json<Vec<Document<$Spec, $Status>>> {
                documents::list::<$resource>(&app)
            }

            #[doc = $show_text]
            #[utoipa::path(get, path = path::$one.pattern(), tag = $tag,
                                params(("name" = Name, Path, description = $what)),
                                responses((status = 200, body = Document<$Spec, $Status>),
                                    (status = 404, body = ApiError)))]
            pub(in crate::http) async fn $show(
                State(app): State<Shared>,
                Named(name): Named,
            ) -> Result<Json<Document<$Spec, $Status>>, Failure> {
                documents::show::<$resource>(&app, &name)
            }

            #[doc = $put_text]
            #[utoipa::path(put, path = path::$one.pattern(), tag = $tag, request_body = $Spec,
                                params(("name" = Name, Path, description = $what)),
                                responses((status = 200, body = Document<$Spec, $Status>),
                                    (status = 400, body = ApiError), (status = 409, body = ApiError),
                                    (status = 412, body = ApiError), (status = 503, body = ApiError)))]
            pub(in crate::http) async fn $put(
                State(app): State<Shared>,
                Named(name): Named,
                condition: Condition,
                Body(spec): Body<$Spec>,
            ) -> Result<Json<Document<$Spec, $Status>>, Failure> {
                documents::put::<$resource>(app, name, condition, spec).await
            }

            #[doc = $delete_text]
            #[utoipa::path(delete, path = path::$one.pattern(), tag = $tag,
                                params(("name" = Name, Path, description = $what)),
                                responses((status = 204), (status = 404, body = ApiError),
                                    (status = 409, body = ApiError), (status = 503, body = ApiError)))]
            pub(in crate::http) async fn $delete(
                State(app): State<Shared>,
                Named(name): Named,
            ) -> Result<StatusCode, Failure> {
                documents::delete::<$resource>(app, name).await
            }
        }
    };
}

handlers!(
    vswitches,
    VSwitches,
    VSwitchSpec,
    VSwitchStatus,
    "Networks",
    "vSwitch",
    VSWITCHES,
    VSWITCH,
    list_vswitches,
    show_vswitch,
    put_vswitch,
    delete_vswitch,
    "Lists all vSwitches.",
    "Shows one vSwitch.",
    "Creates or replaces a vSwitch; with `If-None-Match: *` only creates, with `If-Match: \"REVISION\"` only \
     replaces that revision.",
    "Deletes a vSwitch without port groups."
);
handlers!(
    portgroups,
    PortGroups,
    PortGroupSpec,
    PortGroupStatus,
    "Networks",
    "Port group",
    PORTGROUPS,
    PORTGROUP,
    list_portgroups,
    show_portgroup,
    put_portgroup,
    delete_portgroup,
    "Lists all port groups.",
    "Shows one port group.",
    "Creates or replaces a port group; its ports follow at once. With `If-None-Match: *` only creates, with \
     `If-Match: \"REVISION\"` only replaces that revision.",
    "Deletes a port group without ports."
);
handlers!(
    netns,
    Attachments,
    NetnsSpec,
    NetnsStatus,
    "Attachments",
    "Attachment",
    NETNS,
    NETNS_ATTACHMENT,
    list_netns,
    show_netns,
    put_netns,
    delete_netns,
    "Lists all namespace attachments.",
    "Shows one namespace attachment.",
    "Attaches a network namespace, or changes its attachment; with `If-None-Match: *` only attaches, with \
     `If-Match: \"REVISION\"` only changes that revision.",
    "Detaches a network namespace and removes it if it was made for the attachment."
);
handlers!(
    external,
    ExternalPorts,
    ExternalPortSpec,
    ExternalPortStatus,
    "Attachments",
    "External port",
    EXTERNAL_PORTS,
    EXTERNAL_PORT,
    list_external,
    show_external,
    put_external,
    delete_external,
    "Lists all external ports.",
    "Shows one external port.",
    "Attaches a front end that taut did not start, or changes its port; with `If-None-Match: *` only attaches, \
     with `If-Match: \"REVISION\"` only changes that revision.",
    "Detaches an external port."
);
handlers!(
    netdevs,
    Netdevs,
    NetdevSpec,
    NetdevStatus,
    "Attachments",
    "Name of the network interface",
    NETDEVS,
    NETDEV,
    list_netdevs,
    show_netdev,
    put_netdev,
    delete_netdev,
    "Lists all interfaces on port groups.",
    "Shows one interface on a port group.",
    "Puts a network interface of the host on a port group, or changes its port; with `If-None-Match: *` only \
     a new one, with `If-Match: \"REVISION\"` only changes that revision.",
    "Gives the interface back to the host as it was."
);
handlers!(
    uplinks,
    Uplinks,
    UplinkSpec,
    UplinkStatus,
    "Networks",
    "Name of the network interface",
    UPLINKS,
    UPLINK,
    list_uplinks,
    show_uplink,
    put_uplink,
    delete_uplink,
    "Lists all uplinks.",
    "Shows one uplink.",
    "Makes a network interface of the host the uplink of a vSwitch; with `If-None-Match: *` only makes a new \
     uplink, with `If-Match: \"REVISION\"` only changes that revision.",
    "Gives the interface back to the host as it was."
);

struct VSwitches;

impl Stored for VSwitches {
    type Spec = VSwitchSpec;
    const KIND: Kind = Kind::VSwitch;

    fn specs(desired: &Desired) -> &BTreeMap<Name, VSwitchSpec> {
        &desired.vswitches
    }

    fn change(name: Name, spec: Option<VSwitchSpec>) -> Change {
        Change::VSwitch(name, spec)
    }

    fn admit(desired: &Desired, name: &Name, spec: &VSwitchSpec) -> Result<(), ApiError> {
        admit_teaming(desired, &format!("vSwitch `{name}`"), name, &spec.teaming)?;
        admit_mirrors(name, spec)?;
        admit_mtu(desired, name, spec, &interface::mtu_range)?;
        admit_network_io(desired, name, spec, &interface::speed)
    }

    fn check_unused(desired: &Desired, name: &Name) -> Result<(), ApiError> {
        admit_vswitch_deletion(desired, name)
    }
}

impl Resource for VSwitches {
    type Status = VSwitchStatus;

    fn status(desired: &Desired, seen: &Seen, name: &Name) -> VSwitchStatus {
        status::vswitch(desired, seen, name)
    }
}

struct PortGroups;

impl Stored for PortGroups {
    type Spec = PortGroupSpec;
    const KIND: Kind = Kind::PortGroup;

    fn specs(desired: &Desired) -> &BTreeMap<Name, PortGroupSpec> {
        &desired.portgroups
    }

    fn change(name: Name, spec: Option<PortGroupSpec>) -> Change {
        Change::PortGroup(name, spec)
    }

    fn admit(desired: &Desired, name: &Name, spec: &PortGroupSpec) -> Result<(), ApiError> {
        admit_portgroup(desired, name, spec)?;
        admit_group_mtu(desired, name, &spec.vswitch, &interface::mtu_range)?;
        admit_class(desired, name, spec, &interface::speed)
    }

    fn check_unused(desired: &Desired, name: &Name) -> Result<(), ApiError> {
        admit_portgroup_deletion(desired, name)
    }
}

impl Resource for PortGroups {
    type Status = PortGroupStatus;

    fn status(desired: &Desired, _: &Seen, name: &Name) -> PortGroupStatus {
        status::portgroup(desired, name)
    }
}

struct Attachments;

impl Stored for Attachments {
    type Spec = NetnsSpec;
    const KIND: Kind = Kind::Netns;

    fn specs(desired: &Desired) -> &BTreeMap<Name, NetnsSpec> {
        &desired.netns
    }

    fn change(name: Name, spec: Option<NetnsSpec>) -> Change {
        Change::Netns(name, spec)
    }

    fn complete(_: &Desired, name: &Name, spec: &mut NetnsSpec) {
        spec.mac.get_or_insert_with(|| Owner::Netns(name.clone()).derived_mac());
    }

    fn admit(desired: &Desired, name: &Name, spec: &NetnsSpec) -> Result<(), ApiError> {
        admit_netns(desired, name, spec)
    }
}

impl Resource for Attachments {
    type Status = NetnsStatus;

    fn status(desired: &Desired, seen: &Seen, name: &Name) -> NetnsStatus {
        status::netns(desired, seen, name)
    }
}

struct ExternalPorts;

impl Stored for ExternalPorts {
    type Spec = ExternalPortSpec;
    const KIND: Kind = Kind::External;

    fn specs(desired: &Desired) -> &BTreeMap<Name, ExternalPortSpec> {
        &desired.external
    }

    fn change(name: Name, spec: Option<ExternalPortSpec>) -> Change {
        Change::External(name, spec)
    }

    fn complete(_: &Desired, name: &Name, spec: &mut ExternalPortSpec) {
        spec.mac.get_or_insert_with(|| Owner::External(name.clone()).derived_mac());
    }

    fn admit(desired: &Desired, name: &Name, spec: &ExternalPortSpec) -> Result<(), ApiError> {
        admit_external(desired, name, spec)
    }
}

impl Resource for ExternalPorts {
    type Status = ExternalPortStatus;

    fn status(desired: &Desired, seen: &Seen, name: &Name) -> ExternalPortStatus {
        status::external(desired, seen, name)
    }
}

struct Netdevs;

impl Stored for Netdevs {
    type Spec = NetdevSpec;
    const KIND: Kind = Kind::Netdev;

    fn specs(desired: &Desired) -> &BTreeMap<Name, NetdevSpec> {
        &desired.netdevs
    }

    fn change(name: Name, spec: Option<NetdevSpec>) -> Change {
        Change::Netdev(name, spec)
    }

    fn complete(desired: &Desired, name: &Name, spec: &mut NetdevSpec) {
        let stored = desired.netdevs.get(name).and_then(|stored| stored.mac);
        spec.mac = spec.mac.or(stored).or_else(|| learned_address(name));
    }

    fn admit(desired: &Desired, name: &Name, spec: &NetdevSpec) -> Result<(), ApiError> {
        admit_netdev_interface(desired, name, spec)
    }
}

impl Resource for Netdevs {
    type Status = NetdevStatus;

    fn status(desired: &Desired, seen: &Seen, name: &Name) -> NetdevStatus {
        status::netdev(desired, seen, name)
    }
}

struct Uplinks;

impl Stored for Uplinks {
    type Spec = UplinkSpec;
    const KIND: Kind = Kind::Uplink;

    fn specs(desired: &Desired) -> &BTreeMap<Name, UplinkSpec> {
        &desired.uplinks
    }

    fn change(name: Name, spec: Option<UplinkSpec>) -> Change {
        Change::Uplink(name, spec)
    }

    fn admit(desired: &Desired, name: &Name, spec: &UplinkSpec) -> Result<(), ApiError> {
        admit_interface(desired, name, spec)?;
        admit_speed(desired, name, spec, &interface::speed)
    }

    fn check_unused(desired: &Desired, name: &Name) -> Result<(), ApiError> {
        admit_uplink_removal(desired, name)
    }
}

impl Resource for Uplinks {
    type Status = UplinkStatus;

    fn status(desired: &Desired, seen: &Seen, name: &Name) -> UplinkStatus {
        status::uplink(desired, seen, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_keeps_its_stored_address_if_a_document_has_none() {
        let name: Name = "no-such-if".parse().unwrap();
        let spec = |mac: Option<&str>| NetdevSpec {
            portgroup: "lan".parse().unwrap(),
            mac: mac.map(|mac| mac.parse().unwrap()),
        };
        let stored = spec(Some("52:54:00:00:00:01"));
        let desired = Desired { netdevs: [(name.clone(), stored.clone())].into(), ..Desired::default() };
        let complete = |desired: &Desired, mac: Option<&str>| {
            let mut written = spec(mac);
            Netdevs::complete(desired, &name, &mut written);
            written.mac
        };
        assert_eq!(complete(&desired, None), stored.mac);
        assert_eq!(complete(&desired, Some("02:00:00:00:00:01")), spec(Some("02:00:00:00:00:01")).mac);
        assert_eq!(complete(&Desired::default(), None), None, "no bridge knows it");
    }
}
