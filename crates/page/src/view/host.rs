//! The page of the host: topology with the owners of pCPUs, load, dense mode, and checks.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use taut_api::ApiError;
use taut_api::check::{CheckLine, CheckReport, Profile, TakesEffect, Verdict};
use taut_api::host::{AcceleratorKind, Cpu, HostInfo};
use taut_api::latency::LatencyState;
use taut_api::route::{DaemonInfo, Vm};
use taut_api::tune::{HostTune, TuneMode};
use taut_api::word::counted;

use crate::frame::{Frame, Page, Section, alert, wide};
use crate::guide::Document;
use crate::text;
use crate::view::{about, state};

/// Facts of the page.
#[derive(Debug)]
pub struct Host {
    /// The host.
    pub info: HostInfo,
    /// Dense mode, with the load of the host.
    pub tune: HostTune,
    /// Daemon and workers.
    pub daemon: DaemonInfo,
    /// All VMs, some of which own pCPUs.
    pub vms: Vec<Vm>,
    /// Comparison with best practices, or why there is none.
    pub checks: Result<CheckReport, ApiError>,
}

/// Renders the page.
pub fn page(frame: &Frame, view: &Host) -> String {
    let Host { info, tune, daemon, vms, checks } = view;
    let body = html! {
        p #summary role="status" {
            (info.cpus.len()) " pCPUs, " (text::bytes(info.memory_available.0)) " of "
            (text::bytes(info.memory_total.0)) " memory available. Dense mode is "
            @if tune.state.on { "on." } @else { "off." }
        }
        div.columns {
            section #facts { h2 { "Host" } (facts(info, daemon)) }
            section #dense { h2 { "Load and dense mode" } (dense(tune)) }
        }
        section #topology { h2 { "pCPUs" } (topology(info, daemon, vms)) }
        section #checks { h2 { "Checks" } (comparison(checks)) }
        section #workers {
            h2 { "Workers of the data plane" }
            (wide("Workers", &workers(daemon)))
        }
    };
    frame.render(&Page {
        title: format!("Host {}", info.hostname),
        section: Some(Section::Host),
        live: true,
        refresh: true,
        body,
    })
}

fn facts(info: &HostInfo, daemon: &DaemonInfo) -> Markup {
    html! {
        dl {
            dt { "CPU" } dd { (info.cpu_model) }
            dt { "NUMA nodes" }
            dd { @for (index, node) in info.nodes.iter().enumerate() {
                @if index > 0 { ", " }
                "node " (node.id) ": " (text::bytes(node.memory.0))
            } }
            dt { "System" } dd { (info.os) ", Linux " (info.kernel) }
            @let accelerator = match info.accelerator.kind {
                AcceleratorKind::Kvm => "KVM",
                AcceleratorKind::Tcg => "emulation",
            };
            dt { "Accelerator" } dd { (accelerator) ": " (info.accelerator.why) }
            dt { "QEMU" }
            dd {
                @match &info.qemu {
                    Some(qemu) => { (qemu.version) ", " (qemu.path) }
                    None => "not found",
                }
            }
            dt { "Daemon" } dd { (daemon.version) ", process " (daemon.pid) }
            dt { "Data plane" }
            dd {
                @match (daemon.fabric_pid, &daemon.fabric_version) {
                    (Some(pid), Some(version)) => { (version) ", process " (pid) }
                    (Some(pid), None) => { "process " (pid) }
                    (None, _) => (state("bad", "does not run")),
                }
                ", " (counted(daemon.fabric_starts, "start"))
            }
            dt { "Revision" }
            dd {
                (daemon.revision)
                @if daemon.reconciled < daemon.revision { ", in force: " (daemon.reconciled) }
            }
        }
    }
}

fn dense(tune: &HostTune) -> Markup {
    let test = tune.state.test.as_ref();
    let held = tune.held.unwrap_or_default();
    let reading =
        |read: fn(&taut_api::tune::TuneReading) -> Option<u32>| test.and_then(|test| read(&test.reading));
    let rows = [
        ("Running VMs", reading(|reading| Some(reading.vms)), tune.limits.vms, ""),
        ("Their vCPUs", reading(|reading| Some(reading.vcpus)), tune.limits.vcpus, ""),
        ("Use of all pCPUs", reading(|reading| reading.utilisation), tune.limits.utilisation, "\u{a0}%"),
    ];
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "Load" }
                th.number scope="col" { "Now" }
                th.number scope="col" { "Threshold" }
                th scope="col" { "Reached" }
            } }
            tbody { @for ((name, now, limit, unit), held) in rows.into_iter().zip(held) {
                tr {
                    th scope="row" { (name) }
                    td.number { @match now { Some(now) => { (now) (unit) }, None => "–" } }
                    td.number { (limit) (unit) }
                    td { @if held { "yes" } @else { "no" } }
                }
            } }
        }
    };
    html! {
        (wide("Load and thresholds of dense mode", &table))
        p.quiet {
            @match tune.mode {
                TuneMode::Default => "Net.NetTuneHostMode is default: dense mode is never on. ",
                TuneMode::Dense => {
                    "Net.NetTuneHostMode is dense: it is on while all three thresholds are reached. "
                }
            }
            @if let Some(test) = test { "Last test: " (text::time(test.at_ms)) ". " }
            "Tested every " (tune.interval_s) " s; it governs " (counted(tune.governs.len(), "port"))
            " and leaves " (tune.leaves_alone.len()) " alone."
        }
    }
}

/// A pCPU's use: who has it, and the class of its box.
struct Use {
    class: &'static str,
    text: String,
    address: Option<String>,
}

/// Returns who has each pCPU: VMs that own it or keep it idle, and workers.
fn uses(daemon: &DaemonInfo, vms: &[Vm]) -> BTreeMap<u32, Vec<Use>> {
    let mut uses = BTreeMap::<u32, Vec<Use>>::new();
    for vm in vms {
        let Some(latency) = &vm.status.latency else { continue };
        let is_bound = latency.state != LatencyState::Waiting;
        let address = Some(text::vm_address(vm.name.as_str()));
        for (vcpu, cpu) in latency.cpus.iter().enumerate() {
            let waits = if is_bound { "" } else { " (waiting)" };
            let text = format!("{} vCPU {vcpu}{waits}", vm.name);
            uses.entry(*cpu).or_default().push(Use { class: "owned", text, address: address.clone() });
        }
        for cpu in &latency.idle {
            let text = format!("kept idle for {}", vm.name);
            uses.entry(*cpu).or_default().push(Use { class: "idle", text, address: address.clone() });
        }
    }
    for worker in &daemon.workers {
        if let Some(cpu) = worker.cpu {
            let text = format!("worker {} ({})", worker.worker, worker.mode);
            uses.entry(cpu).or_default().push(Use { class: "worker", text, address: None });
        }
    }
    uses
}

fn topology(info: &HostInfo, daemon: &DaemonInfo, vms: &[Vm]) -> Markup {
    let uses = uses(daemon, vms);
    let cores: BTreeSet<_> = info.cpus.iter().map(|cpu| (cpu.package, cpu.node, cpu.llc, cpu.core)).collect();
    let of = |core: (u32, u32, u32, u32)| -> Vec<&Cpu> {
        info.cpus.iter().filter(|cpu| (cpu.package, cpu.node, cpu.llc, cpu.core) == core).collect()
    };
    let table = html! {
        table {
            thead { tr {
                th.number scope="col" { "Socket" }
                th.number scope="col" { "Node" }
                th.number scope="col" { "Cache" }
                th.number scope="col" { "Core" }
                th scope="col" { "pCPUs and their owners" }
            } }
            tbody { @for core in cores {
                tr {
                    td.number { (core.0) }
                    td.number { (core.1) }
                    td.number { (core.2) }
                    th.number scope="row" { (core.3) }
                    td { ul.pcpus { @for cpu in of(core) {
                        @let users = uses.get(&cpu.id).map_or(&[][..], Vec::as_slice);
                        li.(users.first().map_or("shared", |first| first.class)) {
                            b { (cpu.id) } " "
                            @if users.is_empty() { "shared" }
                            @for (index, user) in users.iter().enumerate() {
                                @if index > 0 { ", " }
                                @match &user.address {
                                    Some(address) => a href=(address) { (user.text) },
                                    None => (user.text),
                                }
                            }
                        }
                    } } }
                }
            } }
        }
    };
    html! {
        (wide("pCPUs and their owners", &table))
        p.quiet { "A shared pCPU runs whatever the host has to run. pCPUs of one core are SMT siblings." }
    }
}

fn workers(daemon: &DaemonInfo) -> Markup {
    html! {
        table {
            thead { tr {
                th.number scope="col" { "Worker" }
                th.number scope="col" { "pCPU" }
                th scope="col" { "Mode" }
                th.number scope="col" { "Bursts" }
                th.number scope="col" { "Empty rounds" }
                th.number scope="col" { "Sleeps" }
                th.number scope="col" { "Busy" }
            } }
            tbody { @for worker in &daemon.workers {
                tr {
                    th.number scope="row" { (worker.worker) }
                    td.number { @match worker.cpu { Some(cpu) => (cpu), None => "any" } }
                    td { (worker.mode) }
                    td.number { (text::count(worker.counters.bursts)) }
                    td.number { (text::count(worker.counters.empty_rounds)) }
                    td.number { (text::count(worker.counters.sleeps)) }
                    td.number { (text::duration(worker.counters.busy_ns / 1_000_000)) }
                }
            } }
        }
    }
}

fn comparison(checks: &Result<CheckReport, ApiError>) -> Markup {
    let report = match checks {
        Ok(report) => report,
        Err(error) => return alert(error),
    };
    let (other, ok): (Vec<_>, Vec<_>) = report.lines.iter().partition(|line| line.verdict != Verdict::Ok);
    let summary = &report.summary;
    html! {
        p.sort {
            "Best practices for: "
            @for profile in Profile::ALL {
                a href=(format!("/host?profile={profile}#checks"))
                    aria-current=[(profile == report.profile).then_some("true")] { (profile) }
                " "
            }
            a href=(Document::Checks.address()) { "About checks" }
        }
        p {
            (summary.bad) " bad, " (counted(summary.warn, "warning")) ", " (summary.unknown) " not visible, "
            (summary.ok) " as wanted."
        }
        @if !other.is_empty() { (wide("Checks with findings", &check_table(&other))) }
        details {
            summary { "Checks that are as wanted" }
            (wide("Checks that are as wanted", &check_table(&ok)))
        }
    }
}

fn check_table(lines: &[&CheckLine]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Check" }
                th scope="col" { "Verdict" }
                th scope="col" { "Found" }
                th scope="col" { "Wanted" }
                th scope="col" { "A change takes effect" }
            } }
            tbody { @for line in lines {
                tr {
                    th scope="row" { (about(&line.id, &line.guide())) span.reason { (line.what) } }
                    td { (verdict(line.verdict)) }
                    td.message { (text::shown(&line.found)) }
                    td.message { (line.wanted) }
                    td { (takes_effect(line.takes_effect)) }
                }
            } }
        }
    }
}

fn verdict(verdict: Verdict) -> Markup {
    match verdict {
        Verdict::Ok => state("good", "ok"),
        Verdict::Warn => state("wait", "warning"),
        Verdict::Bad => state("bad", "bad"),
        Verdict::Unknown => state("off", "not visible"),
    }
}

const fn takes_effect(when: TakesEffect) -> &'static str {
    match when {
        TakesEffect::Live => "at once",
        TakesEffect::VmRestart => "with the VM's next start",
        TakesEffect::HostBoot => "with the host's next boot",
        TakesEffect::Bios => "with the host's next boot, in the firmware's setup",
        TakesEffect::GuestBoot => "with the guest's next boot",
    }
}
