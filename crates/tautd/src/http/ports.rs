//! `/v1/ports`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use taut_api::fabric::PortId;
use taut_api::fabric::counters::PortCounters;
use taut_api::link::Link;
use taut_api::route::PortInfo;
use taut_api::shaping::PortShaping;
use taut_api::{ApiError, GuestMac, path};
use taut_plan::network::addresses::{effective_address, is_rejected};
use taut_plan::network::coalescing::choose_coalescing;
use taut_plan::network::front_ends::limit_front_end;
use taut_plan::network::shaping::choose_shaping;
use taut_plan::{Desired, Owner};

use super::body::Failure;
use super::{App, Shared};
use crate::board::Seen;
use crate::status;

/// Lists all ports of the fabric with their counters.
#[utoipa::path(get, path = path::PORTS, tag = "Ports",
    responses((status = 200, body = [PortInfo]), (status = 500, body = ApiError)))]
pub(super) async fn list_ports(State(app): State<Shared>) -> Result<Json<Vec<PortInfo>>, Failure> {
    Ok(Json(all(&app)?))
}

/// Returns all ports that are wanted or still exist, by number.
pub(super) fn all(app: &App) -> Result<Vec<PortInfo>, Failure> {
    let (state, seen) = app.look();
    let desired = &state.desired;
    let mut ports = Vec::new();
    for (owner, portgroup, mac) in
        desired.ports().filter(|(owner, ..)| status::port_exists(desired, &seen, owner))
    {
        let Some(port) = desired.numbers.port(&owner) else { continue };
        let Some(group) = desired.portgroups.get(portgroup) else { continue };
        let (link, reason) = status::port_link(desired, &seen, &owner);
        let counters = counters(app, port)?;
        let effective_mac = effective_address(&seen.observed, &owner).map(|set| set.mac);
        ports.push(PortInfo {
            port: u32::from(port.0),
            owner: owner.to_string(),
            mac: Some(mac),
            guest_mac: GuestMac {
                effective_mac,
                mac_rejected: effective_mac.is_some_and(|to| is_rejected(desired, portgroup, mac, to)),
                mac_taken: effective_mac.is_some() && counters.address_refused,
            },
            vswitch: group.vswitch.clone(),
            portgroup: Some(portgroup.clone()),
            link,
            reason,
            coalescing: choose_coalescing(desired, &seen.observed, &owner),
            shaping: choose_shaping(desired, &owner, portgroup),
            trusted: limit_front_end(desired, &seen.observed, &owner).trusted,
            counters,
        });
    }
    for (name, uplink) in &desired.uplinks {
        let owner = Owner::Uplink(name.clone());
        let Some(port) = desired.numbers.port(&owner) else { continue };
        let status = status::uplink(desired, &seen, name);
        ports.push(PortInfo {
            port: u32::from(port.0),
            owner: owner.to_string(),
            mac: None,
            guest_mac: GuestMac::default(),
            vswitch: uplink.vswitch.clone(),
            portgroup: None,
            link: status.link,
            reason: status.reason,
            coalescing: None,
            shaping: PortShaping::default(),
            trusted: false,
            counters: counters(app, port)?,
        });
    }
    ports.sort_by_key(|port| port.port);
    Ok(ports)
}

/// Returns link and reason of the cards of VMs that are off, by owner. These have no port.
pub(super) fn of_vms_that_are_off(
    desired: &Desired,
    seen: &Seen,
) -> BTreeMap<String, (Link, Option<String>)> {
    let owners = desired.ports().map(|(owner, ..)| owner);
    let off = owners.filter(|owner| !status::port_exists(desired, seen, owner));
    off.map(|owner| (owner.to_string(), status::port_link(desired, seen, &owner))).collect()
}

fn counters(app: &App, port: PortId) -> Result<PortCounters, Failure> {
    app.counters.read(port).map_err(|error| Failure::internal("the counters cannot be read", &error))
}
