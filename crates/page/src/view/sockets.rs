//! VMCI sockets: devices of VMs, and their connections.

use maud::{Markup, html};
use taut_api::route::Vm;
use taut_api::vmci::{Carrier, SocketKind, VmciConnection, VmciEnd};
use taut_api::word::counted;

use crate::frame::{Frame, Page, Section, wide};
use crate::text;
use crate::view::{link, link_reason};

/// Most connections in the table.
const MOST: usize = 500;

/// Renders the page.
pub fn page(frame: &Frame, vms: &[Vm], connections: &[VmciConnection]) -> String {
    let devices = vms.iter().filter(|vm| vm.status.vmci.is_some()).count();
    let body = html! {
        p #summary role="status" { (counted(devices, "VMCI device")) ", " (counted(connections.len(), "open connection")) "." }
        section #devices {
            h2 { "Devices" }
            @if devices == 0 { p.quiet { "No VM has a VMCI device." } }
            @else { (wide("VMCI devices", &devices_table(vms))) }
        }
        section #connections {
            h2 { "Connections" }
            @if connections.is_empty() { p.quiet { "There is no connection." } }
            @else { (wide("Connections", &connection_table(connections))) }
            @if connections.len() > MOST { p.quiet { "The first " (MOST) " are listed." } }
        }
    };
    frame.render(&Page {
        title: "Sockets".to_owned(),
        section: Some(Section::Sockets),
        live: true,
        refresh: true,
        body,
    })
}

fn devices_table(vms: &[Vm]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "VM" }
                th.number scope="col" { "CID" }
                th scope="col" { "Link" }
                th.number scope="col" { "Open" }
                th.number scope="col" { "By rings" }
                th.number scope="col" { "Opened" }
                th.number scope="col" { "Received" }
                th.number scope="col" { "Sent" }
                th.number scope="col" { "Refused" }
                th.number scope="col" { "Limited" }
                th.number scope="col" { "Resets" }
                th.number scope="col" { "Stalls" }
            } }
            tbody { @for (vm, device) in vms.iter().filter_map(|vm| Some((vm, vm.status.vmci.as_ref()?))) {
                @let counters = &device.counters;
                tr {
                    th scope="row" { a href=(format!("/vms/{}", vm.name)) { (vm.name.as_str()) } }
                    td.number { (device.cid.0) }
                    td {
                        (link(device.link))
                        @if let Some(reason) = &device.reason { (link_reason(device.link, reason)) }
                    }
                    td.number { (text::count(counters.connections)) }
                    td.number { (text::count(counters.attached)) }
                    td.number { (text::count(counters.opened)) }
                    td.number { (text::bytes(counters.rx_bytes)) }
                    td.number { (text::bytes(counters.tx_bytes)) }
                    td.number { (text::count(counters.refused)) }
                    td.number { (text::count(counters.limited)) }
                    td.number { (text::count(counters.resets)) }
                    td.number { (text::count(counters.stalls)) }
                }
            } }
        }
    }
}

fn connection_table(connections: &[VmciConnection]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "From" }
                th scope="col" { "By" }
                th scope="col" { "To" }
                th scope="col" { "By" }
                th scope="col" { "Type" }
            } }
            tbody { @for connection in connections.iter().take(MOST) {
                tr {
                    th scope="row" { (end(&connection.from)) }
                    td { (carrier(connection.from.carrier)) }
                    td { (end(&connection.to)) }
                    td { (carrier(connection.to.carrier)) }
                    td {
                        @match connection.kind {
                            SocketKind::Stream => "stream",
                            SocketKind::SeqPacket => "records",
                        }
                    }
                }
            } }
        }
    }
}

fn end(end: &VmciEnd) -> Markup {
    html! {
        @match &end.vm { Some(vm) => a href=(format!("/vms/{vm}")) { (vm.as_str()) }, None => "host" }
        " " (end.cid.0) ":" (end.port)
    }
}

const fn carrier(carrier: Carrier) -> &'static str {
    match carrier {
        Carrier::Ring => "rings",
        Carrier::Packets => "packets",
        Carrier::Socket => "socket",
        Carrier::Service => "service",
    }
}
