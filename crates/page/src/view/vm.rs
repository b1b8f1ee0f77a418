//! The page of a VM: settings, what is decided and in force, and times of its vCPUs.

use maud::{Markup, html};
use taut_api::latency::{Decision, LatencyState};
use taut_api::placement::Numbers;
use taut_api::route::Vm;
use taut_api::statistics::{Period, Series, VmStatistics};
use taut_api::vm::{VmKind, VmSpec, VmStatus};

use crate::frame::{Frame, Page, Section, wide};
use crate::text;
use crate::view::vms::sensitivity;
use crate::view::{link, link_reason, periods, phase, state, times};

/// Facts of the page.
#[derive(Debug)]
pub struct Machine {
    /// The VM.
    pub vm: Vm,
    /// Times of its vCPUs within the period; absent if it has none.
    pub statistics: Option<VmStatistics>,
    /// The same over time; absent without samples.
    pub series: Option<Series>,
    /// The period.
    pub period: Period,
}

/// Renders the page.
pub fn page(frame: &Frame, view: &Machine) -> String {
    let Machine { vm, statistics, series, period } = view;
    let (spec, status) = (&vm.spec.vm, &vm.status);
    let address = text::vm_address(vm.name.as_str());
    let body = html! {
        p #summary role="status" {
            (phase(status.phase))
            @if let Some(reason) = &status.reason { ": " (text::shown(reason)) }
            @if let Some(pid) = status.pid { ", process " (pid) }
            @if let Some(accelerator) = status.accelerator { ", " (accelerator.to_string()) }
        }
        section #cards { h2 { "Network cards" } (cards(vm, *period)) }
        section aria-labelledby="times-title" {
            h2 #times-title { "Run and ready time" }
            (periods(&address, &period.to_string()))
            div #times {
                @match statistics {
                    Some(statistics) => (times::of_vcpus(statistics)),
                    None => p.quiet { "The VM has no samples in this period." },
                }
            }
            @if let Some(series) = series {
                div #evidence { (times::over_time(vm.name.as_str(), *period, spec.vcpus as usize, series)) }
            }
        }
        section #explanation { h2 { "Explanation" } (explanation(status)) }
        div.columns {
            section #settings { h2 { "Settings" } (settings(spec, status)) }
            section #process { h2 { "Process and console" } (process(vm)) }
        }
    };
    frame.render(&Page {
        title: format!("VM {}", vm.name),
        section: Some(Section::Vms),
        live: true,
        refresh: false,
        body,
    })
}

fn cards(vm: &Vm, period: Period) -> Markup {
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "Card" }
                th scope="col" { "Port group" }
                th scope="col" { "Address" }
                th scope="col" { "Link" }
                th scope="col" { "Receive limit" }
                th scope="col" { "Transmit limit" }
            } }
            tbody { @for (index, nic) in vm.status.nics.iter().enumerate() {
                @let owner = format!("vm/{}/nic{index}", vm.name);
                tr {
                    th scope="row" {
                        a href=(format!("{}?period={period}", text::port_address(&owner))) { "nic" (index) }
                    }
                    td { a href=(text::portgroup_address(nic.portgroup.as_str())) { (nic.portgroup.as_str()) } }
                    td { (nic.mac) }
                    td {
                        (link(nic.link))
                        @if let Some(reason) = &nic.reason { (link_reason(nic.link, reason)) }
                    }
                    td { (nic.shaping.to_guest.to_string()) }
                    td { (nic.shaping.to_switch.to_string()) }
                }
            } }
        }
    };
    html! {
        @if vm.status.nics.is_empty() { p.quiet { "The VM has no network card." } }
        @else { (wide("Network cards", &table)) }
    }
}

fn explanation(status: &VmStatus) -> Markup {
    let latency = status.latency.as_ref();
    let parts = [
        ("Latency sensitivity", latency.map(|latency| (&latency.missing, &latency.decisions))),
        (
            "Shares, limits and placement",
            status.resources.as_ref().map(|part| (&part.missing, &part.decisions)),
        ),
        ("Machine", status.machine.as_ref().map(|part| (&part.missing, &part.decisions))),
    ];
    html! {
        @if parts.iter().all(|(_, part)| part.is_none()) {
            p.quiet { "Nothing was asked for that needs a decision." }
        }
        @if let Some(latency) = latency {
            p {
                @match latency.state {
                    LatencyState::Waiting => (state("wait", "waiting")),
                    LatencyState::Granted => (state("good", "granted")),
                    LatencyState::Partly => (state("bad", "partly in force")),
                }
                @if !latency.cpus.is_empty() {
                    ", vCPUs own pCPUs "
                    (latency.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
                }
                @if !latency.idle.is_empty() {
                    ", kept idle: " (Numbers(latency.idle.iter().copied().collect()).to_string())
                }
            }
        }
        @for (name, part) in parts {
            @if let Some((missing, decisions)) = part {
                @if !missing.is_empty() || !decisions.is_empty() {
                    h3 { (name) }
                    @if !missing.is_empty() {
                        ul.missing { @for missing in missing { li { (state("bad", "missing")) ": " (missing) } } }
                    }
                    @if !decisions.is_empty() { (wide(name, &decision_table(decisions))) }
                }
            }
        }
    }
}

fn decision_table(decisions: &[Decision]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Decision" }
                th scope="col" { "Rule" }
                th scope="col" { "In force" }
            } }
            tbody { @for decision in decisions {
                tr {
                    th scope="row" { (decision.decision) }
                    td { (decision.rule) }
                    td { @if decision.restart { "from the next start on" } @else { "now" } }
                }
            } }
        }
    }
}

fn settings(spec: &VmSpec, status: &VmStatus) -> Markup {
    html! {
        dl {
            dt { "Kind" } dd { @match spec.kind { VmKind::Qemu => "QEMU", VmKind::Micro => "microguest" } }
            dt { "vCPUs" }
            dd {
                (spec.vcpus)
                @if let Some(size) = status.size.filter(|size| size.vcpus != spec.vcpus) {
                    " from the next start on; now " (size.vcpus)
                }
            }
            dt { "Memory" }
            dd {
                (spec.memory.to_string())
                @if let Some(size) = status.size.filter(|size| size.memory != spec.memory) {
                    " from the next start on; now " (size.memory.to_string())
                }
            }
            dt { "Latency sensitivity" } dd { (sensitivity(spec.latency_sensitivity)) }
            dt { "CPU" }
            dd {
                "reservation " (spec.cpu.reservation.to_string()) ", limit " (spec.cpu.limit.to_string())
                ", shares " (spec.cpu.shares.to_string())
            }
            dt { "Memory resources" }
            dd {
                "reservation " (spec.memory_reservation.to_string()) ", limit " (spec.memory_limit.to_string())
                ", shares " (spec.memory_shares.to_string())
            }
            dt { "Placement" } dd { (spec.placement.allowed()) }
            @if let Some(disk) = &spec.disk {
                dt { "Disk" }
                dd {
                    (disk.path)
                    @if let Some(bandwidth) = disk.limits.bandwidth { ", at most " (bandwidth.to_string()) "/s" }
                    @if let Some(iops) = disk.limits.iops { ", at most " (iops) " operations/s" }
                    ", shares " (disk.shares.to_string())
                }
            }
            @if let Some(boot) = &spec.boot { dt { "Kernel" } dd { (boot.kernel) } }
            @for device in &spec.passthrough { dt { "Pass-through" } dd { (device.address.to_string()) } }
            @if let Some(vmci) = &status.vmci {
                dt { "VMCI" }
                dd {
                    "CID " (vmci.cid.0) ", " (link(vmci.link))
                    @if let Some(reason) = &vmci.reason { (link_reason(vmci.link, reason)) }
                }
            }
        }
    }
}

fn process(vm: &Vm) -> Markup {
    let status = &vm.status;
    let running = status.pid.is_some();
    let commands = [
        ("Console", "taut vm console", status.console_socket.is_some()),
        ("Log of the console", "taut vm log", status.console_log.is_some()),
        ("Who disturbs its vCPUs", "taut latency", running),
        ("Best practices", "taut check vm", true),
        ("Start", "taut vm start", !running),
    ];
    html! {
        dl {
            dt { "Owner" } dd { "user " (status.owner) }
            @if let Some(confinement) = &status.confinement {
                dt { "Confinement" }
                dd {
                    "user " (confinement.user)
                    @for missing in &confinement.missing { span.reason { (missing) } }
                }
            }
            @if let Some(socket) = &status.console_socket { dt { "Console's socket" } dd { (socket) } }
            @if let Some(log) = &status.console_log { dt { "Console's log" } dd { (log) } }
            @if let Some(vmci) = &status.vmci { dt { "VMCI socket" } dd { (vmci.socket) } }
        }
        h3 { "In a terminal on the host" }
        dl {
            @for (what, command, _) in commands.iter().filter(|(.., applies)| *applies) {
                dt { (what) } dd { code { (command) " " (vm.name.as_str()) } }
            }
        }
    }
}
