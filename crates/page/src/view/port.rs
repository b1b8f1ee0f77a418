//! The Network page of a port: what it sends, receives and drops, and how it is shaped.

use maud::{Markup, html};
use taut_api::error::ApiError;
use taut_api::fabric::DropReason;
use taut_api::role::Role;
use taut_api::route::{PortInfo, Vm};
use taut_api::shaping::{PortShape, ShapeOrigin};
use taut_api::statistics::{Column, Period, PortRates, PortStatistics, Series};
use taut_api::vm::{NicModel, NicSpec, NicStatus};

use crate::chart::{self, Line, Unit};
use crate::form::{self, Fields, Subject};
use crate::frame::{Frame, Page, Section, refusal, wide};
use crate::text;
use crate::view::{about, link, link_reason, periods};

/// Facts of the page.
#[derive(Debug)]
pub struct Port {
    /// Owner of the port, such as `vm/web1/nic0`.
    pub owner: String,
    /// The port; absent while its VM is off.
    pub port: Option<PortInfo>,
    /// Statistics of the period.
    pub statistics: Option<PortStatistics>,
    /// The period.
    pub period: Period,
    /// The VM and the index of its card, for ports of VMs.
    pub card: Option<(Vm, usize)>,
    /// Rates over time; absent without samples in the period.
    pub series: Option<Series>,
    /// The form as it was sent, and why it was refused.
    pub refused: Option<(Fields, ApiError)>,
    /// True after a change by the form.
    pub changed: bool,
}

impl Port {
    /// Returns the card's description and state.
    fn nic(&self) -> Option<(&NicSpec, &NicStatus)> {
        let (vm, index) = self.card.as_ref()?;
        vm.spec.vm.nics.get(*index).zip(vm.status.nics.get(*index))
    }
}

/// Renders the page.
pub fn page(frame: &Frame, view: &Port) -> String {
    let address = text::port_address(&view.owner);
    let title = match &view.card {
        Some((vm, index)) => format!("Network of VM {}, nic{index}", vm.name),
        None => format!("Network of {}", view.owner),
    };
    let body = html! {
        @if let Some((vm, index)) = &view.card { (siblings(vm, *index, view.period)) }
        @if let Some((_, error)) = &view.refused { (refusal(error)) }
        @if view.changed {
            p.done role="status" {
                "The change is stored. "
                @if view.port.is_some() { "Traffic shaping below shows what is in force." }
                @else { "It takes effect when the VM starts." }
            }
        }
        p #summary role="status" { (summary(view)) }
        section #averages aria-labelledby="averages-title" {
            h2 #averages-title { "Receive and transmit" }
            (periods(&address, &view.period.to_string()))
            @match &view.statistics {
                Some(statistics) => div #averages-table { (averages(statistics)) },
                None => p.quiet { "The port has no statistics in this period." },
            }
        }
        @if let Some(series) = &view.series {
            section #chart {
                h2 { "Rates" }
                @let line = |name, class, column| Line { name, class, points: chart::points(series, column) };
                (wide("Chart of rates", &chart::lines(
                    &format!("Receive and transmit of {} over {}", view.owner, view.period),
                    series.step_ms,
                    Unit::BitRate,
                    &[line("Receive", "rx", Column::RxBitsPerS), line("Transmit", "tx", Column::TxBitsPerS)],
                )))
            }
        }
        @if !is_uplink(view) {
            section #shaping-section aria-labelledby="shaping-title" {
                h2 #shaping-title { "Traffic shaping" }
                (shaping(frame, view, &format!("{address}?period={}", view.period)))
            }
        }
        div.columns {
            section #card { h2 { "Port" } (port(view)) }
            section #drops { h2 { "Dropped frames" } (drops(view)) }
        }
    };
    frame.render(&Page {
        title,
        section: Some(if view.card.is_some() { Section::Vms } else { Section::Networks }),
        live: true,
        refresh: false,
        body,
    })
}

/// Links to the VM and its other cards.
fn siblings(vm: &Vm, current: usize, period: Period) -> Markup {
    html! {
        nav.siblings aria-label="Network cards" {
            a href=(text::vm_address(vm.name.as_str())) { "VM " (vm.name.as_str()) }
            @for index in 0..vm.spec.vm.nics.len() {
                @let owner = format!("vm/{}/nic{index}", vm.name);
                a href=(format!("{}?period={period}", text::port_address(&owner)))
                    aria-current=[(index == current).then_some("page")] { "nic" (index) }
            }
        }
    }
}

fn summary(view: &Port) -> Markup {
    let state = match (&view.port, view.nic()) {
        (Some(port), _) => Some((port.link, port.reason.as_ref())),
        (None, Some((_, nic))) => Some((nic.link, nic.reason.as_ref())),
        (None, None) => None,
    };
    html! {
        @if let Some((state, reason)) = state {
            "Link " (link(state))
            @match reason {
                Some(reason) => { ": " (link_reason(state, reason)) " " }
                None => ". ",
            }
        }
        @if let Some(statistics) = &view.statistics {
            "Receive " b { (text::rate(statistics.rates.rx_bits_per_s)) }
            ", transmit " b { (text::rate(statistics.rates.tx_bits_per_s)) } ". "
        }
        @if is_uplink(view) { "Uplinks are not shaped." }
        @else if is_shaped(view) { "Traffic shaping is on." } @else { "Traffic shaping is off." }
    }
}

/// Returns whether the port is an uplink, which no port group shapes.
fn is_uplink(view: &Port) -> bool {
    view.owner.starts_with("uplink/")
}

fn is_shaped(view: &Port) -> bool {
    let of_port = view.port.as_ref().map(|port| port.shaping);
    let shaping = of_port.or(view.nic().map(|(_, nic)| nic.shaping));
    shaping.is_some_and(|shaping| !shaping.shaping().is_none())
}

fn averages(statistics: &PortStatistics) -> Markup {
    let PortStatistics { rates, counted, covered_ms, to_ms, .. } = statistics;
    let PortRates {
        rx_bits_per_s,
        rx_frames_per_s,
        rx_drops_percent,
        tx_bits_per_s,
        tx_frames_per_s,
        tx_drops_percent,
        ..
    } = *rates;
    let rows = [
        ("Receive", rx_bits_per_s, rx_frames_per_s, rx_drops_percent, counted.rx_frames, counted.rx_bytes),
        ("Transmit", tx_bits_per_s, tx_frames_per_s, tx_drops_percent, counted.tx_frames, counted.tx_bytes),
    ];
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "Direction" }
                th.number scope="col" { "Bandwidth" }
                th.number scope="col" { "Frames/s" }
                th.number scope="col" { "Dropped" }
                th.number scope="col" { "Mean size" }
                th.number scope="col" { "Frames" }
                th.number scope="col" { "Amount" }
            } }
            tbody { @for (name, bits, frames, dropped, all, bytes) in rows {
                tr {
                    th scope="row" { (name) }
                    td.number { b { (text::rate(bits)) } }
                    td.number { (text::per_second(frames)) }
                    td.number { (text::percent(dropped)) }
                    td.number { @match bytes.checked_div(all) { Some(mean) => { (mean) "\u{a0}B" }, None => { "–" } } }
                    td.number { (text::count(all)) }
                    td.number { (text::bytes(bytes)) }
                }
            } }
        }
    };
    html! {
        (wide("Receive and transmit", &table))
        p.quiet {
            "Averages over " (text::duration(*covered_ms)) " until " (text::time(*to_ms)) ". "
            "Multicast and broadcast received: " (text::per_second(rates.rx_multicast_per_s)) " frames/s."
        }
    }
}

fn shaping(frame: &Frame, view: &Port, address: &str) -> Markup {
    let in_force = view
        .port
        .as_ref()
        .map(|port| port.shaping)
        .or(view.nic().map(|(_, nic)| nic.shaping))
        .unwrap_or_default();
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "In force" }
                th.number scope="col" { "Average" }
                th.number scope="col" { "Peak" }
                th.number scope="col" { "Burst" }
                th scope="col" { "Set by" }
            } }
            tbody {
                (shape_row("Receive", in_force.to_guest))
                (shape_row("Transmit", in_force.to_switch))
            }
        }
    };
    html! {
        div #shaping-in-force { (wide("Traffic shaping in force", &table)) }
        @match (view.nic(), view.port.as_ref().and_then(|port| port.portgroup.as_ref())) {
            (Some((nic, _)), _) => {
                @let sent = view.refused.as_ref().map(|(fields, _)| fields);
                (form::shaping(Subject::Card, address, &nic.shaping, sent, closed(frame)))
            }
            (None, group) => p {
                "Ports that belong to no VM are shaped by their port group"
                @if let Some(group) = group {
                    " " a href=(text::portgroup_address(group.as_str())) { (group.as_str()) }
                }
                "."
            },
        }
    }
}

/// Returns why the caller cannot use the form.
pub(super) fn closed(frame: &Frame) -> Option<&'static str> {
    (!frame.may(Role::Define)).then_some("Your role does not allow changes: they need the role define.")
}

fn shape_row(name: &str, PortShape { shape, origin }: PortShape) -> Markup {
    html! {
        tr {
            th scope="row" { (name) }
            @match shape {
                Some(shape) => {
                    td.number { (text::rate(shape.average.0 as f64)) }
                    td.number { (text::rate(shape.peak().0 as f64)) }
                    td.number { (text::bytes(shape.burst.0)) }
                }
                None => {
                    td.number { "not limited" }
                    td.number { "–" }
                    td.number { "–" }
                }
            }
            td { @match origin { ShapeOrigin::Portgroup => { "port group" }, ShapeOrigin::Own => { "card" } } }
        }
    }
}

fn port(view: &Port) -> Markup {
    let port = view.port.as_ref();
    html! {
        dl {
            @if let Some(port) = port {
                dt { "Port" } dd { (port.port) }
                dt { "vSwitch" } dd { a href=(format!("/networks#vswitch-{}", port.vswitch)) { (port.vswitch.as_str()) } }
                @if let Some(portgroup) = &port.portgroup {
                    dt { "Port group" }
                    dd { a href=(text::portgroup_address(portgroup.as_str())) { (portgroup.as_str()) } }
                }
                @if let Some(mac) = port.mac { dt { "Address" } dd { (mac) } }
                @if let Some(mac) = port.guest_mac.effective_mac {
                    dt { "Address in the guest" }
                    dd {
                        (mac)
                        @if port.guest_mac.mac_rejected { ": rejected by the port group; nothing is received" }
                        @if port.guest_mac.mac_taken { ": another port has it, or no card can have it" }
                    }
                }
                @if port.trusted { dt { "Front end" } dd { "trusted" } }
            } @else if let Some((spec, _)) = view.nic() {
                dt { "Port" } dd { "none while the VM is off" }
                dt { "Port group" }
                dd { a href=(text::portgroup_address(spec.portgroup.as_str())) { (spec.portgroup.as_str()) } }
            }
            @if let Some((spec, status)) = view.nic() {
                dt { "Model" } dd { (model(spec.model)) }
                dt { "Rings" }
                dd {
                    "receive " (spec.rings.rx) ", transmit " (spec.rings.tx) " descriptors"
                    @if spec.rings.packed { ", packed" } @else { ", split" }
                }
                dt { "Queue pairs" }
                dd {
                    (spec.queues.get()) " offered"
                    @if let Some(port) = port { ", " (port.counters.rx_queues) " in use" }
                }
                dt { "Offloads" } dd { @if spec.offloads { "offered" } @else { "not offered" } }
                dt { "LRO" } dd { @if status.lro { "on" } @else { "off" } }
            }
            @let coalescing = port.map_or_else(|| view.nic().and_then(|(_, nic)| nic.coalescing), |port| port.coalescing);
            @if let Some(coalescing) = coalescing {
                dt { "Coalescing" }
                dd {
                    (coalescing.to_string())
                    @if let Some((spec, _)) = view.nic() {
                        @if spec.coalescing.is_default() { " (the host's)" } @else { " (the card's)" }
                    }
                }
            }
            @if let Some(PortStatistics { rates, .. }) = &view.statistics {
                dt { "Interrupts" } dd { (text::per_second(rates.interrupts_per_s)) "/s" }
                dt { "Kicks" } dd { (text::per_second(rates.kicks_per_s)) "/s" }
                dt { "Waits for its full ring" } dd { (text::per_second(rates.rx_waits_per_s)) "/s" }
            }
        }
    }
}

/// Returns the word for a model of cards.
const fn model(model: NicModel) -> &'static str {
    match model {
        NicModel::Virtio => "virtio",
        NicModel::Vmxnet3 => "vmxnet3",
        NicModel::E1000 => "e1000",
        NicModel::E1000e => "e1000e",
        NicModel::Vlance => "vlance",
    }
}

fn drops(view: &Port) -> Markup {
    let empty = Vec::new();
    let of = |drops: &[(DropReason, u64)], reason: DropReason| {
        drops.iter().find(|(each, _)| *each == reason).map_or(0, |(_, count)| *count)
    };
    let counted = view.statistics.as_ref().map(|statistics| &statistics.counted);
    let total = view.port.as_ref().map(|port| &port.counters);
    let directions = [
        ("Receive", counted.map_or(&empty, |c| &c.rx_drops), total.map_or(&empty, |c| &c.rx_drops)),
        ("Transmit", counted.map_or(&empty, |c| &c.tx_drops), total.map_or(&empty, |c| &c.tx_drops)),
    ];
    let mut rows = Vec::new();
    for (direction, period, since) in directions {
        for reason in DropReason::ALL.iter().copied() {
            let counts = (of(period, reason), of(since, reason));
            if counts != (0, 0) {
                rows.push((direction, reason, counts));
            }
        }
    }
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "Direction" }
                th scope="col" { "Reason" }
                th.number scope="col" { "In the period" }
                th.number scope="col" { "In all" }
            } }
            tbody { @for (direction, reason, (period, all)) in rows {
                tr {
                    th scope="row" { (direction) }
                    td.help {
                        b { (reason.as_str()) } " " (about(reason.code(), &reason.guide()))
                        span.reason { (reason.help()) }
                    }
                    td.number { (text::count(period)) }
                    td.number { (text::count(all)) }
                }
            } }
        }
    };
    html! {
        @if directions.iter().all(|(_, period, since)| period.is_empty() && since.is_empty()) {
            p.quiet { "No frame of this port was dropped." }
        } @else {
            (wide("Dropped frames", &table))
        }
    }
}
