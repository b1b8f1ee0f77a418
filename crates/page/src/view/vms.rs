//! The list of VMs: taut's, and those that other programs have started.

use maud::{Markup, html};
use taut_api::link::LinkReason;
use taut_api::printable::{MOST_NAME, printable};
use taut_api::route::Vm;
use taut_api::statistics::{Period, VmStatistics, Wait};
use taut_api::vm::LatencySensitivity;

use crate::frame::{Frame, Page, Section, wide};
use crate::text;
use crate::view::{about, link, phase, times};

/// Most VMs of other programs in the list. Whoever may start programs can start many.
const MOST_FOREIGN: usize = 500;
/// Most VMs in the list of those that wait.
const MOST_WAITING: usize = 10;

/// Facts of the list.
#[derive(Debug)]
pub struct Vms {
    /// taut's VMs.
    pub vms: Vec<Vm>,
    /// Times of all VMs of the host within the period.
    pub statistics: Vec<VmStatistics>,
    /// The period.
    pub period: Period,
    /// Order of the list.
    pub order: Order,
}

/// Order of the list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// By name.
    #[default]
    Name,
    /// Most ready time first: the VM that waits longest for a pCPU.
    Ready,
    /// Most run time first.
    Run,
}

impl Order {
    const ALL: [(Self, &'static str, &'static str); 3] =
        [(Self::Name, "name", "Name"), (Self::Run, "run", "Run"), (Self::Ready, "ready", "Ready")];

    /// Returns how a column is sorted that has this order, if the list is sorted by it.
    fn of_column(self, column: Self) -> Option<&'static str> {
        (self == column).then_some(if column == Self::Name { "ascending" } else { "descending" })
    }

    /// Returns the order with this name in addresses.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, word, _)| *word == name).map(|(order, ..)| *order)
    }
}

/// Renders the list.
pub fn page(frame: &Frame, view: &Vms) -> String {
    let of = |vm: &Vm| view.statistics.iter().find(|times| !times.foreign && times.name == vm.name.as_str());
    let mut own: Vec<_> = view.vms.iter().map(|vm| (vm, of(vm))).collect();
    own.sort_by(|(a, of_a), (b, of_b)| {
        let key = |times: Option<&VmStatistics>| times.map_or(-1.0, |times| value(times, view.order));
        key(*of_b).total_cmp(&key(*of_a)).then_with(|| a.name.cmp(&b.name))
    });
    let mut foreign: Vec<_> = view.statistics.iter().filter(|times| times.foreign).collect();
    foreign.sort_by(|a, b| {
        value(b, view.order).total_cmp(&value(a, view.order)).then_with(|| a.name.cmp(&b.name))
    });
    let running = view.vms.iter().filter(|vm| vm.status.pid.is_some()).count();
    let body = html! {
        p #summary role="status" { (running) " of " (view.vms.len()) " VMs have a process." }
        section #waiting { h2 { "VMs that wait" } (waiting(view)) }
        (orders(view))
        section #vms {
            h2 { "VMs of taut" }
            @if own.is_empty() {
                p.quiet { "There are no VMs yet. The guide's page on networks begins with one." }
            } @else {
                (wide("VMs of taut", &own_table(&own, view)))
            }
        }
        @if !foreign.is_empty() {
            section #foreign {
                h2 { "Other VMs of this host" }
                p.quiet { "Other programs have started these. taut reads their times and changes nothing." }
                (wide("Other VMs of this host", &foreign_table(&foreign, view)))
                @if foreign.len() > MOST_FOREIGN { p.quiet { "The first " (MOST_FOREIGN) " are listed." } }
            }
        }
    };
    frame.render(&Page {
        title: "VMs".to_owned(),
        section: Some(Section::Vms),
        live: true,
        refresh: true,
        body,
    })
}

/// A VM that waits: its times, its longest wait, and how long that is in percent.
type Waiting<'a> = (&'a VmStatistics, Wait, f64);

/// Lists the VMs with a wait above its limit, the longest first.
fn waiting(view: &Vms) -> Markup {
    let longest = |times: &VmStatistics| times.waits().first().copied();
    let mut all: Vec<Waiting<'_>> = view
        .statistics
        .iter()
        .filter_map(|times| longest(times).map(|(wait, percent)| (times, wait, percent)))
        .collect();
    all.sort_by(|(a, _, of_a), (b, _, of_b)| of_b.total_cmp(of_a).then_with(|| a.name.cmp(&b.name)));
    let more = all.len().saturating_sub(MOST_WAITING);
    all.truncate(MOST_WAITING);
    html! {
        @if all.is_empty() {
            p.quiet { "No VM waited longer than usual in the last " (view.period) "." }
        } @else {
            (wide("VMs that wait", &waiting_table(&all, view)))
        }
        @if more > 0 { p.quiet { (more) " more VMs wait less." } }
    }
}

fn waiting_table(vms: &[Waiting<'_>], view: &Vms) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "VM" }
                th scope="col" { "Reason" }
                th.number scope="col" { "Time" }
                th scope="col" { "Cause and remedy" }
            } }
            tbody { @for (times, wait, percent) in vms {
                tr {
                    th scope="row" { (name(times, view)) @if times.foreign { " (of another program)" } }
                    td { (times::meaning(*wait)) }
                    td.number { (if *wait == Wait::Ready { text::ready(*percent) } else { text::percent(*percent) }) }
                    td { (about(wait.code(), &wait.guide())) }
                }
            } }
        }
    }
}

/// Shows the name of a VM with a link to its page. One of another program has a page while it runs.
fn name(times: &VmStatistics, view: &Vms) -> Markup {
    let is_own = || !times.foreign && view.vms.iter().any(|vm| vm.name.as_str() == times.name);
    let address = match times.pid {
        Some(pid) if times.foreign => Some(text::process_address(pid)),
        _ => is_own().then(|| text::vm_address(&times.name)),
    };
    let name = printable(&times.name, MOST_NAME);
    html! {
        @match address {
            Some(address) => a href=(format!("{address}?period={}", view.period)) { (name) },
            None => (name),
        }
    }
}

fn value(times: &VmStatistics, order: Order) -> f64 {
    match order {
        Order::Name => 0.0,
        Order::Ready => times.ready_percent,
        Order::Run => times.run_percent,
    }
}

fn orders(view: &Vms) -> Markup {
    let period = view.period.to_string();
    html! {
        p.sort {
            "Averages over " (period) ". Sorted by: "
            @for (order, word, name) in Order::ALL {
                a href=(format!("/?sort={word}&period={period}"))
                    aria-current=[(order == view.order).then_some("true")] { (name) }
                " "
            }
        }
    }
}

fn own_table(vms: &[(&Vm, Option<&VmStatistics>)], view: &Vms) -> Markup {
    let period = view.period;
    let sorted = |order| view.order.of_column(order);
    html! {
        table {
            thead { tr {
                th scope="col" aria-sort=[sorted(Order::Name)] { "Name" }
                th scope="col" { "State" }
                th.number scope="col" { "vCPUs" }
                th.number scope="col" { "Memory" }
                th.number scope="col" aria-sort=[sorted(Order::Run)] { "Run" }
                th.number scope="col" aria-sort=[sorted(Order::Ready)] { "Ready" }
                th.number scope="col" { "Others" }
                th scope="col" { "Latency" }
                th scope="col" { "Network cards" }
            } }
            tbody {
                @for (vm, times) in vms {
                    tr {
                        th scope="row" { a href=(text::vm_address(vm.name.as_str())) { (vm.name.as_str()) } }
                        td {
                            (phase(vm.status.phase))
                            @if let Some(reason) = &vm.status.reason { span.reason { (text::shown(reason)) } }
                        }
                        td.number { (vm.spec.vm.vcpus) }
                        td.number { (vm.spec.vm.memory.to_string()) }
                        (run_and_ready(*times))
                        td { (sensitivity(vm.spec.vm.latency_sensitivity)) }
                        td {
                            @if vm.status.nics.is_empty() { span.quiet { "none" } }
                            ul.cards { @for (index, nic) in vm.status.nics.iter().enumerate() {
                                li {
                                    @let owner = format!("vm/{}/nic{index}", vm.name);
                                    a href=(format!("{}?period={period}", text::port_address(&owner))) {
                                        "nic" (index)
                                    }
                                    " " (link(nic.link)) " "
                                    @if let Some(reason) = &nic.reason {
                                        @let kind = LinkReason::of(nic.link, reason);
                                        (about(kind.code(), &kind.guide())) " "
                                    }
                                    span.quiet { (nic.portgroup.as_str()) }
                                }
                            } }
                        }
                    }
                }
            }
        }
    }
}

fn foreign_table(vms: &[&VmStatistics], view: &Vms) -> Markup {
    let sorted = |order| view.order.of_column(order);
    html! {
        table {
            thead { tr {
                th scope="col" aria-sort=[sorted(Order::Name)] { "Name" }
                th.number scope="col" { "Process" }
                th.number scope="col" { "vCPUs" }
                th.number scope="col" aria-sort=[sorted(Order::Run)] { "Run" }
                th.number scope="col" aria-sort=[sorted(Order::Ready)] { "Ready" }
                th.number scope="col" { "Others" }
            } }
            tbody {
                @for times in vms.iter().take(MOST_FOREIGN) {
                    tr {
                        th scope="row" { (name(times, view)) }
                        td.number { @match times.pid { Some(pid) => { (pid) }, None => { "ended" } } }
                        td.number { (times.vcpus.len()) }
                        (run_and_ready(Some(times)))
                    }
                }
            }
        }
    }
}

/// Shows the columns of run time, ready time and the time of other threads.
fn run_and_ready(times: Option<&VmStatistics>) -> Markup {
    html! {
        @match times {
            Some(times) => {
                td.number { (text::percent(times.run_percent)) }
                td.number { (text::ready(times.ready_percent)) }
                td.number { (text::percent(times.others_percent)) }
            }
            None => { @for _ in 0..3 { td.number { "–" } } }
        }
    }
}

/// Returns the word for a latency sensitivity.
pub(crate) const fn sensitivity(sensitivity: LatencySensitivity) -> &'static str {
    match sensitivity {
        LatencySensitivity::Normal => "normal",
        LatencySensitivity::High => "high",
        LatencySensitivity::HighHt => "high-ht",
    }
}
