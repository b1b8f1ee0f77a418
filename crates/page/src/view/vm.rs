//! The page of a VM: settings, what is decided and in force, and times of its vCPUs.

use maud::{Markup, html};
use taut_api::latency::{Decision, LatencyState};
use taut_api::placement::Numbers;
use taut_api::route::Vm;
use taut_api::statistics::{Period, VmStatistics};
use taut_api::vm::{VmKind, VmSpec, VmStatus};

use crate::frame::{Frame, Page, Section, wide};
use crate::text;
use crate::view::vms::sensitivity;
use crate::view::{link, periods, phase, state};

/// Facts of the page.
#[derive(Debug)]
pub struct Machine {
    /// The VM.
    pub vm: Vm,
    /// Times of its vCPUs within the period; absent if it has none.
    pub statistics: Option<VmStatistics>,
    /// The period.
    pub period: Period,
}

/// Renders the page.
pub fn page(frame: &Frame, view: &Machine) -> String {
    let Machine { vm, statistics, period } = view;
    let (spec, status) = (&vm.spec.vm, &vm.status);
    let address = format!("/vms/{}", vm.name);
    let body = html! {
        p #summary role="status" {
            (phase(status.phase))
            @if let Some(reason) = &status.reason { ": " (reason) }
            @if let Some(pid) = status.pid { ", process " (pid) }
            @if let Some(accelerator) = status.accelerator { ", " (accelerator.to_string()) }
        }
        section #cards { h2 { "Network cards" } (cards(vm, *period)) }
        section aria-labelledby="times-title" {
            h2 #times-title { "Run and ready time" }
            (periods(&address, &period.to_string()))
            div #times {
                @match statistics {
                    Some(statistics) => (times(statistics)),
                    None => p.quiet { "The VM has no samples in this period." },
                }
            }
        }
        section #explanation { h2 { "Explanation" } (explanation(status)) }
        div.columns {
            section #settings { h2 { "Settings" } (settings(spec, status)) }
            section #process { h2 { "Process and console" } (process(status)) }
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
                    td { (nic.portgroup.as_str()) }
                    td { (nic.mac) }
                    td {
                        (link(nic.link))
                        @if let Some(reason) = &nic.reason { span.reason { (reason) } }
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

fn times(times: &VmStatistics) -> Markup {
    let row = |name: String, run: f64, ready: f64, all: f64| {
        html! {
            tr {
                th scope="row" { (name) }
                td.number { (text::percent(run)) }
                td { meter min="0" max=(all) value=(format!("{run:.2}")) aria-label={ "Run time of " (name) } {} }
                td.number { (text::ready(ready)) }
                td {
                    meter min="0" max=(all) high=(all / 10.0) value=(format!("{ready:.2}"))
                        aria-label={ "Ready time of " (name) } {}
                }
            }
        }
    };
    let all = 100.0 * times.vcpus.len().max(1) as f64;
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "vCPU" }
                th scope="col" colspan="2" { "Run" }
                th scope="col" colspan="2" { "Ready (ms of 20 s)" }
            } }
            tbody {
                (row("All".to_owned(), times.run_percent, times.ready_percent, all))
                @for vcpu in &times.vcpus {
                    (row(format!("vCPU {}", vcpu.vcpu), vcpu.run_percent, vcpu.ready_percent, 100.0))
                }
            }
        }
    };
    html! {
        (wide("Run and ready time", &table))
        p.quiet {
            "Percent of one pCPU over " (text::duration(times.covered_ms)) " until " (text::time(times.to_ms)) ". "
            "Other threads of the VM: " (text::percent(times.others_percent)) ". "
            "A vCPU that is ready could run and waits for a pCPU."
        }
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
                dt { "VMCI" } dd { "CID " (vmci.cid.0) ", " (link(vmci.link)) }
            }
        }
    }
}

fn process(status: &VmStatus) -> Markup {
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
            @if let Some(socket) = &status.console_socket { dt { "Console" } dd { (socket) } }
            @if let Some(log) = &status.console_log { dt { "Console's log" } dd { (log) } }
            @if let Some(vmci) = &status.vmci { dt { "VMCI socket" } dd { (vmci.socket) } }
        }
        p.quiet { "The console is attached to in a terminal, by the command line." }
    }
}
