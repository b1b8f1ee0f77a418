//! vSwitches, drawn and as tables.

use maud::{Markup, html};
use taut_api::link::Link;
use taut_api::route::{PortGroup, PortInfo, Uplink, VSwitch, Vm};
use taut_api::uplink::UplinkStatus;
use taut_api::word::counted;

use crate::drawing::{self, End, Group, Switch};
use crate::frame::{Frame, Page, Section, wide};
use crate::text;
use crate::view::{link, link_reason, state};

/// Facts of the page.
#[derive(Debug)]
pub struct Networks {
    /// All vSwitches.
    pub vswitches: Vec<VSwitch>,
    /// All port groups.
    pub portgroups: Vec<PortGroup>,
    /// All ports.
    pub ports: Vec<PortInfo>,
    /// All uplinks.
    pub uplinks: Vec<Uplink>,
    /// All VMs, for the cards of those that are off.
    pub vms: Vec<Vm>,
}

/// A row of a port group: a port, or a card of a VM that is off.
struct Row<'a> {
    owner: String,
    port: Option<&'a PortInfo>,
    /// Reason that the card of a VM that is off has no link.
    off: Option<&'a str>,
}

/// Renders the page.
pub fn page(frame: &Frame, view: &Networks) -> String {
    let body = html! {
        @if view.vswitches.is_empty() {
            p.quiet { "There is no vSwitch yet. The guide's page on networks begins with one." }
        }
        @for vswitch in &view.vswitches { (one(view, vswitch)) }
    };
    frame.render(&Page {
        title: "Networks".to_owned(),
        section: Some(Section::Networks),
        live: true,
        refresh: true,
        body,
    })
}

fn one(view: &Networks, vswitch: &VSwitch) -> Markup {
    let groups: Vec<_> = view.portgroups.iter().filter(|group| group.spec.vswitch == vswitch.name).collect();
    let rows: Vec<Vec<Row<'_>>> = groups.iter().map(|group| rows(view, group)).collect();
    let uplinks: Vec<_> = view.uplinks.iter().filter(|uplink| uplink.spec.vswitch == vswitch.name).collect();
    let drawn = Switch {
        name: vswitch.name.to_string(),
        groups: groups.iter().zip(&rows).map(|(group, rows)| drawn_group(group, rows)).collect(),
        uplinks: uplinks.iter().map(|uplink| drawn_uplink(vswitch, uplink)).collect(),
    };
    let teaming = &vswitch.spec.teaming;
    html! {
        section #{ "vswitch-" (vswitch.name) } {
            h2 { "vSwitch " (vswitch.name.as_str()) }
            p.quiet {
                "MTU " (vswitch.spec.mtu.get()) ", teaming by " (teaming.policy)
                @if !teaming.failback { ", no failback" }
                @if vswitch.spec.network_io.enabled { ", network I/O control" }
                @if !vswitch.spec.mirrors.is_empty() { ", " (counted(vswitch.spec.mirrors.len(), "mirroring session")) }
                ", multicast: " (vswitch.spec.multicast.as_str())
                ", " (counted(vswitch.status.ports, "port"))
            }
            (wide(&format!("Drawing of vSwitch {}", vswitch.name), &drawing::switch(&drawn)))
            details {
                summary { "The same as tables" }
                h3 { "Port groups and ports" }
                (wide(&format!("Ports of vSwitch {}", vswitch.name), &ports(&groups, &rows)))
                @if !uplinks.is_empty() {
                    h3 { "Uplinks" }
                    (wide(&format!("Uplinks of vSwitch {}", vswitch.name), &uplink_table(vswitch, &uplinks)))
                }
            }
        }
    }
}

/// Returns the ports of a group, and the cards of VMs that are off.
fn rows<'a>(view: &'a Networks, group: &PortGroup) -> Vec<Row<'a>> {
    let of_group = view.ports.iter().filter(|port| port.portgroup.as_ref() == Some(&group.name));
    let mut rows: Vec<_> =
        of_group.map(|port| Row { owner: port.owner.clone(), port: Some(port), off: None }).collect();
    for vm in &view.vms {
        for (index, _) in vm.spec.vm.nics.iter().enumerate().filter(|(_, nic)| nic.portgroup == group.name) {
            let owner = format!("vm/{}/nic{index}", vm.name);
            if !view.ports.iter().any(|port| port.owner == owner) {
                let off = vm.status.nics.get(index).and_then(|nic| nic.reason.as_deref());
                rows.push(Row { owner, port: None, off });
            }
        }
    }
    rows.sort_by(|a, b| a.owner.cmp(&b.owner));
    rows
}

fn drawn_group(group: &PortGroup, rows: &[Row<'_>]) -> Group {
    let port = |row: &Row<'_>| End {
        text: row.owner.clone(),
        address: Some(text::port_address(&row.owner)),
        link: row.port.map(|port| port.link),
    };
    Group {
        name: format!("{}, VLAN {}", group.name, group.spec.vlan),
        address: text::portgroup_address(group.name.as_str()),
        ports: rows.iter().map(port).collect(),
    }
}

fn drawn_uplink(vswitch: &VSwitch, uplink: &Uplink) -> End {
    let UplinkStatus { link, speed_mbit, .. } = &uplink.status;
    let speed = speed_mbit.map(|mbit| format!(", {}", text::rate(mbit as f64 * 1e6))).unwrap_or_default();
    End {
        text: format!("{}, {}{speed}", uplink.name, duty(vswitch, uplink)),
        address: Some(text::port_address(&format!("uplink/{}", uplink.name))),
        link: Some(*link),
    }
}

/// Returns the place of an uplink in its vSwitch's team.
fn duty(vswitch: &VSwitch, uplink: &Uplink) -> &'static str {
    let teaming = &vswitch.spec.teaming;
    if teaming.standby.contains(&uplink.name) {
        "standby"
    } else if teaming.active.as_ref().is_none_or(|active| active.contains(&uplink.name)) {
        "active"
    } else {
        "not used"
    }
}

fn ports(groups: &[&PortGroup], rows: &[Vec<Row<'_>>]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Port group" }
                th.number scope="col" { "VLAN" }
                th scope="col" { "Port" }
                th scope="col" { "Address" }
                th scope="col" { "Link" }
            } }
            tbody { @for (group, rows) in groups.iter().zip(rows) {
                @if rows.is_empty() {
                    tr {
                        th scope="row" { a href=(text::portgroup_address(group.name.as_str())) { (group.name.as_str()) } }
                        td.number { (group.spec.vlan.to_string()) }
                        td.quiet colspan="3" { "no ports" }
                    }
                }
                @for row in rows {
                    tr {
                        th scope="row" { a href=(text::portgroup_address(group.name.as_str())) { (group.name.as_str()) } }
                        td.number { (group.spec.vlan.to_string()) }
                        td { a href=(text::port_address(&row.owner)) { (row.owner) } }
                        td { @if let Some(mac) = row.port.and_then(|port| port.mac) { (mac) } }
                        td {
                            @match row.port {
                                Some(port) => {
                                    (link(port.link))
                                    @if let Some(reason) = &port.reason { (link_reason(port.link, reason)) }
                                }
                                None => {
                                    (state("off", "VM is off"))
                                    @if let Some(reason) = row.off { (link_reason(Link::Down, reason)) }
                                }
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn uplink_table(vswitch: &VSwitch, uplinks: &[&Uplink]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Uplink" }
                th scope="col" { "Teaming" }
                th scope="col" { "Link" }
                th.number scope="col" { "Speed" }
                th.number scope="col" { "MTU" }
                th scope="col" { "Address" }
                th.number scope="col" { "Lost by the kernel" }
            } }
            tbody { @for uplink in uplinks {
                @let status = &uplink.status;
                tr {
                    th scope="row" {
                        a href=(text::port_address(&format!("uplink/{}", uplink.name))) { (uplink.name.as_str()) }
                    }
                    td { (duty(vswitch, uplink)) @if !status.attached { ", not attached" } }
                    td {
                        (link(status.link))
                        @if let Some(reason) = &status.reason { (link_reason(status.link, reason)) }
                        @for missing in &status.missing { span.reason { (missing) } }
                    }
                    td.number {
                        @match status.speed_mbit { Some(mbit) => (text::rate(mbit as f64 * 1e6)), None => "–" }
                    }
                    td.number { @match status.mtu { Some(mtu) => (mtu), None => "–" } }
                    td { @if let Some(mac) = status.mac { (mac) } }
                    td.number { (text::count(status.lost)) }
                }
            } }
        }
    }
}
