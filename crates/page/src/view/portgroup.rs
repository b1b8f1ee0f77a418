//! The page of a port group: VMs and ports, policy, teaming, and the form of its shaping.

use maud::{Markup, html};
use taut_api::error::ApiError;
use taut_api::link::Link;
use taut_api::network::PortGroupSpec;
use taut_api::route::{PortGroup, PortInfo, VSwitch, Vm};
use taut_api::statistics::{Period, PortStatistics};
use taut_api::teaming::Teaming;

use crate::form::{self, Fields, Subject};
use crate::frame::{Frame, Page, Section, refusal, wide};
use crate::text;
use crate::view::port::closed;
use crate::view::{link, link_reason, periods, phase};

/// Facts of the page.
#[derive(Debug)]
pub struct Group {
    /// The port group.
    pub group: PortGroup,
    /// Its vSwitch.
    pub vswitch: VSwitch,
    /// All ports.
    pub ports: Vec<PortInfo>,
    /// All VMs.
    pub vms: Vec<Vm>,
    /// Statistics of all ports within the period.
    pub statistics: Vec<PortStatistics>,
    /// The period.
    pub period: Period,
    /// The form as it was sent, and why it was refused.
    pub refused: Option<(Fields, ApiError)>,
    /// True after a change by the form.
    pub changed: bool,
}

/// Renders the page.
pub fn page(frame: &Frame, view: &Group) -> String {
    let Group { group, vswitch, period, .. } = view;
    let address = text::portgroup_address(group.name.as_str());
    let sent = view.refused.as_ref().map(|(fields, _)| fields);
    let rows = rows(view);
    let up = rows.iter().filter(|row| row.link == Link::Up).count();
    let body = html! {
        @if let Some((_, error)) = &view.refused { (refusal(error)) }
        @if view.changed { p.done role="status" { "The change is stored. Running ports follow at once." } }
        p #summary role="status" {
            "vSwitch " a href=(format!("/networks#vswitch-{}", vswitch.name)) { (vswitch.name.as_str()) }
            ", VLAN " (group.spec.vlan.to_string()) ". " (up) " of " (rows.len()) " links are up."
        }
        section aria-labelledby="ports-title" {
            h2 #ports-title { "VMs and ports" }
            (periods(&address, &period.to_string()))
            div #ports {
                @if rows.is_empty() { p.quiet { "The port group has no ports." } }
                @else { (wide("VMs and ports", &table(&rows, *period))) }
            }
        }
        section aria-labelledby="shaping-title" {
            h2 #shaping-title { "Traffic shaping" }
            p.quiet {
                "Limits hold for each port by itself, not for their sum. A card with limits of its own keeps these"
                @if !group.status.own_shaping.is_empty() { ": " (group.status.own_shaping.join(", ")) }
                "."
            }
            (form::shaping(
                Subject::PortGroup,
                &format!("{address}?period={period}"),
                &form::of_group(&group.spec.shaping),
                sent,
                closed(frame),
            ))
        }
        div.columns {
            section #policy { h2 { "Policy" } (policy(&group.spec)) }
            section #teaming { h2 { "Teaming" } (teaming(&group.spec, vswitch)) }
        }
    };
    frame.render(&Page {
        title: format!("Port group {}", group.name),
        section: Some(Section::Networks),
        live: true,
        refresh: false,
        body,
    })
}

/// A port of the group, or a card of a VM that is off.
struct Row<'a> {
    owner: String,
    vm: Option<&'a Vm>,
    link: Link,
    reason: Option<&'a String>,
    shaping: [String; 2],
    statistics: Option<&'a PortStatistics>,
}

fn rows(view: &Group) -> Vec<Row<'_>> {
    let name = &view.group.name;
    let statistics = |owner: &str| view.statistics.iter().find(|each| each.owner == owner);
    let mut rows = Vec::new();
    for vm in &view.vms {
        for (index, nic) in vm.status.nics.iter().enumerate().filter(|(_, nic)| nic.portgroup == *name) {
            let owner = format!("vm/{}/nic{index}", vm.name);
            rows.push(Row {
                statistics: statistics(&owner),
                owner,
                vm: Some(vm),
                link: nic.link,
                reason: nic.reason.as_ref(),
                shaping: [nic.shaping.to_guest.to_string(), nic.shaping.to_switch.to_string()],
            });
        }
    }
    let others = view.ports.iter().filter(|port| port.portgroup.as_ref() == Some(name));
    rows.extend(others.filter(|port| !port.owner.starts_with("vm/")).map(|port| Row {
        owner: port.owner.clone(),
        vm: None,
        link: port.link,
        reason: port.reason.as_ref(),
        shaping: [port.shaping.to_guest.to_string(), port.shaping.to_switch.to_string()],
        statistics: statistics(&port.owner),
    }));
    rows
}

fn table(rows: &[Row<'_>], period: Period) -> Markup {
    let rate = |row: &Row<'_>, of: fn(&PortStatistics) -> f64| {
        row.statistics.map_or("–".to_owned(), |statistics| text::rate(of(statistics)))
    };
    html! {
        table {
            thead { tr {
                th scope="col" { "Port" }
                th scope="col" { "VM" }
                th scope="col" { "Link" }
                th.number scope="col" { "Receive" }
                th.number scope="col" { "Transmit" }
                th scope="col" { "Receive limit" }
                th scope="col" { "Transmit limit" }
            } }
            tbody { @for row in rows {
                tr {
                    th scope="row" {
                        a href=(format!("{}?period={period}", text::port_address(&row.owner))) { (row.owner) }
                    }
                    td {
                        @match row.vm {
                            Some(vm) => {
                                a href=(text::vm_address(vm.name.as_str())) { (vm.name.as_str()) }
                                " " (phase(vm.status.phase))
                            }
                            None => { "none" }
                        }
                    }
                    td {
                        (link(row.link))
                        @if let Some(reason) = row.reason { (link_reason(row.link, reason)) }
                    }
                    td.number { (rate(row, |statistics| statistics.rates.rx_bits_per_s)) }
                    td.number { (rate(row, |statistics| statistics.rates.tx_bits_per_s)) }
                    td { (row.shaping[0]) }
                    td { (row.shaping[1]) }
                }
            } }
        }
    }
}

fn policy(spec: &PortGroupSpec) -> Markup {
    let accepted = |is: bool| if is { "accepted" } else { "rejected" };
    html! {
        dl {
            dt { "Promiscuous mode" } dd { (accepted(spec.security.promiscuous)) }
            dt { "Changes of the address" } dd { (accepted(spec.security.mac_changes)) }
            dt { "Forged transmits" } dd { (accepted(spec.security.forged_transmits)) }
            dt { "MAC learning" }
            dd {
                @match &spec.mac_learning {
                    Some(learning) => {
                        "on, " (learning.limit) " addresses a port, forgotten after " (learning.ageing_s) " s"
                    }
                    None => "off",
                }
            }
            dt { "Traffic class" } dd { (spec.traffic_class.to_string()) }
        }
    }
}

fn teaming(spec: &PortGroupSpec, vswitch: &VSwitch) -> Markup {
    let own = spec.teaming.as_ref();
    let Teaming { policy, active, standby, failback, notify_switches, probe } =
        own.unwrap_or(&vswitch.spec.teaming);
    let list = |names: &[taut_api::Name]| match names {
        [] => "none".to_owned(),
        names => names.iter().map(taut_api::Name::as_str).collect::<Vec<_>>().join(", "),
    };
    let yes = |is: bool| if is { "yes" } else { "no" };
    html! {
        dl {
            dt { "Set by" } dd { @if own.is_some() { "the port group" } @else { "the vSwitch" } }
            dt { "Policy" } dd { (policy) }
            dt { "Active uplinks" }
            dd { (active.as_deref().map_or("all that are not in standby".to_owned(), list)) }
            dt { "Standby uplinks" } dd { (list(standby)) }
            dt { "Failback" } dd { (yes(*failback)) }
            dt { "Notifies switches" } dd { (yes(*notify_switches)) }
            dt { "Probe" } dd { (probe.to_string()) }
        }
    }
}
