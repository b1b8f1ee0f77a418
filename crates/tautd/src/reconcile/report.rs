//! Events about the host: what a report says that the one before did not.

use taut_api::enforcement::{
    CpuShare, GreedyProcess, HostPlan, HostReport, LimitHit, LimitHits, MemoryMove, VmReport,
};
use taut_api::event::Level;
use taut_api::placement::Numbers;
use taut_api::{Bytes, Name};

use crate::store::Store;

/// An event to raise.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    level: Level,
    subject: String,
    kind: &'static str,
    message: String,
}

/// Raises an event for each difference between two reports. `plan` is the one that led to `now`.
pub(super) fn raise(store: &Store, plan: &HostPlan, before: &HostReport, now: &HostReport) {
    for Event { level, subject, kind, message } in events(plan, before, now) {
        store.event(level, &subject, kind, &message);
    }
}

fn events(plan: &HostPlan, before: &HostReport, now: &HostReport) -> Vec<Event> {
    let mut events = Vec::new();
    let none = VmReport::default();
    let names = now.vms.keys().chain(before.vms.keys().filter(|name| !now.vms.contains_key(*name)));
    for name in names {
        let of = |report: &HostReport| report.vms.get(name).unwrap_or(&none).clone();
        compare_vm(name, plan, &of(before), &of(now), &mut events);
    }
    for (address, name) in before.devices.iter().filter(|(address, _)| !now.devices.contains_key(address)) {
        let message = format!("{address} is the host's again");
        events.push(of_vm(Level::Info, name, "passthrough.given-back", message));
    }
    for (name, problems) in &now.cards {
        let known = before.cards.get(name).map(Vec::as_slice).unwrap_or_default();
        for problem in problems.iter().filter(|problem| !known.contains(problem)) {
            let subject = format!("pnic/{name}");
            events.push(Event {
                level: Level::Warning,
                subject,
                kind: "pnic.problem",
                message: problem.clone(),
            });
        }
        if problems.is_empty() && !known.is_empty() {
            let message = "all settings of the card are in force".to_owned();
            events.push(Event {
                level: Level::Info,
                subject: format!("pnic/{name}"),
                kind: "pnic.in-force",
                message,
            });
        }
    }
    let problems =
        |report: &HostReport| [report.cpu_problems.clone(), report.priority_problems.clone()].concat();
    let known = problems(before);
    for problem in problems(now).into_iter().filter(|problem| !known.contains(problem)) {
        events.push(of_host("latency.problem", problem));
    }
    for GreedyProcess { pid, percent, allowed_percent, pause_s } in &now.greedy {
        let message = format!(
            "a thread of process {pid} has used {percent} % of a pCPU with real-time priority, \
             {allowed_percent} % are allowed: it takes turns with others for {pause_s} s"
        );
        events.push(of_host("latency.greedy", message));
    }
    events
}

/// Compares two reports of one VM.
fn compare_vm(name: &Name, plan: &HostPlan, before: &VmReport, now: &VmReport, events: &mut Vec<Event>) {
    let mut info = |kind, message: String| events.push(of_vm(Level::Info, name, kind, message));
    if now.grouped && !before.grouped {
        info(
            "resources.enforced",
            "it has a control group with its shares, limits and reservations".to_owned(),
        );
    }
    if now.exclusive && !before.exclusive {
        info("latency.granted", granted(plan, name, now));
    } else if before.bound && !now.bound {
        info("latency.taken-back", "its pCPUs are the host's again".to_owned());
    }
    // A move that is done does not change any more.
    let moved = now.memory.as_ref().filter(|moved| moved.done && before.memory.as_ref() != Some(*moved));
    if let Some(MemoryMove { moved, nodes, .. }) = moved.filter(|done| done.moved.0 > 0) {
        let nodes = Numbers(nodes.clone());
        info("memory.moved", format!("{moved} of its memory were moved to node {nodes}"));
    }
    for (pid, hits) in &now.hits {
        let before = before.hits.get(pid).copied().unwrap_or_default();
        events.extend(
            limits_reached(*pid, before, *hits)
                .map(|(kind, message)| of_vm(Level::Warning, name, kind, message)),
        );
    }
    let mut warn = |kind, now: Option<&String>, before: Option<&String>| {
        if let Some(message) = now.filter(|now| Some(*now) != before) {
            events.push(of_vm(Level::Warning, name, kind, message.clone()));
        }
    };
    warn("resources.problem", now.group_problem.as_ref(), before.group_problem.as_ref());
    warn("placement.not-bound", now.unbound.as_ref(), before.unbound.as_ref());
    warn("memory.not-moved", moved.and_then(MemoryMove::shortfall).as_ref(), None);
}

/// Returns kind and message of an event for each limit that a process has reached since `before`.
fn limits_reached(
    pid: u32,
    before: LimitHits,
    now: LimitHits,
) -> impl Iterator<Item = (&'static str, String)> {
    let more = |now: Option<LimitHit>, before: Option<LimitHit>| {
        let before = before.map_or(0, |hit| hit.count);
        now.filter(|hit| hit.count > before).map(|hit| LimitHit { count: hit.count - before, ..hit })
    };
    let memory = more(now.memory, before.memory).map(|LimitHit { count, limit }| {
        let limit = Bytes(limit);
        let message = format!(
            "process {pid} has reached its memory limit of {limit}, so the kernel ended {count} of this VM's \
             processes"
        );
        ("limits.memory", message)
    });
    let processes = more(now.processes, before.processes).map(|LimitHit { count, limit }| {
        let message = format!(
            "process {pid} has reached its process limit: {limit} processes and threads, {count} more were refused"
        );
        ("limits.processes", message)
    });
    let descriptors = now.descriptors.filter(|_| before.descriptors.is_none());
    let descriptors = descriptors.map(|LimitHit { count, limit }| {
        let message =
            format!("process {pid} reaches its descriptor limit: {count} of {limit} descriptors are open");
        ("limits.descriptors", message)
    });
    memory.into_iter().chain(processes).chain(descriptors)
}

fn granted(plan: &HostPlan, name: &Name, now: &VmReport) -> String {
    let idle = match plan.vms.get(name).map(|vm| &vm.cpus) {
        Some(CpuShare::Exclusive { idle, .. }) if !idle.is_empty() => format!("; {idle:?} stay idle"),
        _ => String::new(),
    };
    format!("its vCPUs own pCPUs {:?}{idle}", now.cpus)
}

fn of_vm(level: Level, name: &Name, kind: &'static str, message: String) -> Event {
    Event { level, subject: format!("vm/{name}"), kind, message }
}

fn of_host(kind: &'static str, message: String) -> Event {
    Event { level: Level::Warning, subject: "host".to_owned(), kind, message }
}

#[cfg(test)]
mod tests {
    use taut_api::enforcement::VmShare;

    use super::*;

    fn name() -> Name {
        "db1".parse().unwrap()
    }

    fn report(vm: VmReport) -> HostReport {
        HostReport { vms: [(name(), vm)].into(), ..HostReport::default() }
    }

    /// Returns kind and message of the events between two reports, with pCPU 3 idle in the plan.
    fn told(before: &HostReport, now: &HostReport) -> Vec<(&'static str, String)> {
        let cpus = CpuShare::Exclusive { cpus: vec![2], idle: vec![3] };
        let vm = VmShare { pid: 7, cpus, ..VmShare::default() };
        let plan = HostPlan { vms: [(name(), vm)].into(), ..HostPlan::default() };
        events(&plan, before, now).into_iter().map(|event| (event.kind, event.message)).collect()
    }

    #[test]
    fn a_difference_is_told_once() {
        let none = HostReport::default();
        let owner = VmReport { cpus: vec![2], bound: true, exclusive: true, ..VmReport::default() };
        let mut now = report(owner.clone());
        now.cpu_problems = vec!["x cannot be changed".to_owned()];
        let first = told(&none, &now);
        assert_eq!(
            first,
            [
                ("latency.granted", "its vCPUs own pCPUs [2]; [3] stay idle".to_owned()),
                ("latency.problem", "x cannot be changed".to_owned())
            ]
        );
        assert_eq!(told(&now, &now), []);
        assert_eq!(told(&now, &none), [("latency.taken-back", "its pCPUs are the host's again".to_owned())]);
        // While other tasks cannot be kept off, only that is told.
        let mut intruded = report(VmReport { exclusive: false, ..owner });
        intruded.cpu_problems = vec!["other tasks cannot be moved away".to_owned()];
        let problem = [("latency.problem", "other tasks cannot be moved away".to_owned())];
        assert_eq!(told(&none, &intruded), problem);
        assert_eq!(told(&now, &intruded), problem);
    }

    #[test]
    fn a_problem_of_a_card_is_told_once_and_its_end_too() {
        let card = |problems: &[&str]| {
            let problems = problems.iter().map(|problem| (*problem).to_owned()).collect();
            HostReport { cards: [("eth1".parse().unwrap(), problems)].into(), ..HostReport::default() }
        };
        let (none, one, two) = (card(&[]), card(&["a"]), card(&["a", "b"]));
        assert_eq!(told(&HostReport::default(), &none), []);
        assert_eq!(told(&none, &one), [("pnic.problem", "a".to_owned())]);
        assert_eq!(told(&one, &two), [("pnic.problem", "b".to_owned())]);
        assert_eq!(
            told(&two, &none),
            [("pnic.in-force", "all settings of the card are in force".to_owned())]
        );
        assert_eq!(told(&two, &HostReport::default()), []);
    }

    #[test]
    fn a_problem_is_told_again_only_if_it_changes() {
        let vm = |why: &str| VmReport { unbound: Some(why.to_owned()), ..VmReport::default() };
        let (a, b) = (report(vm("a")), report(vm("b")));
        assert_eq!(told(&HostReport::default(), &a), [("placement.not-bound", "a".to_owned())]);
        assert_eq!(told(&a, &a), []);
        assert_eq!(told(&a, &b), [("placement.not-bound", "b".to_owned())]);
    }

    #[test]
    fn each_limit_that_is_reached_is_named() {
        let hit = |count, limit| Some(LimitHit { count, limit });
        let of = |hits| report(VmReport { hits: [(7, hits)].into(), ..VmReport::default() });
        let kinds = |before: &HostReport, now: &HostReport| {
            told(before, now).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
        };
        let none = HostReport::default();
        let memory = of(LimitHits { memory: hit(1, 385 << 20), ..LimitHits::default() });
        let message = "process 7 has reached its memory limit of 385MiB, so the kernel ended 1 of this VM's \
                       processes";
        assert_eq!(told(&none, &memory), [("limits.memory", message.to_owned())]);
        assert_eq!(told(&memory, &memory), []);
        let some = of(LimitHits { processes: hit(3, 81), ..LimitHits::default() });
        assert_eq!(kinds(&none, &some), ["limits.processes"]);
        let more = of(LimitHits { processes: hit(5, 81), ..LimitHits::default() });
        assert!(told(&some, &more)[0].1.ends_with("81 processes and threads, 2 more were refused"));
        let open = |count| of(LimitHits { descriptors: hit(count, 4096), ..LimitHits::default() });
        assert_eq!(kinds(&none, &open(3900)), ["limits.descriptors"]);
        assert_eq!(told(&open(3900), &open(4000)), []);
        // The next process of the VM counts from zero.
        let next = report(VmReport {
            hits: [(8, LimitHits { processes: hit(1, 81), ..LimitHits::default() })].into(),
            ..VmReport::default()
        });
        assert_eq!(kinds(&more, &next), ["limits.processes"]);
    }

    #[test]
    fn a_move_of_memory_is_told_when_it_is_done() {
        let moved = |done, why: Option<&str>| {
            let why = why.map(str::to_owned);
            let nodes = [1].into();
            let memory = MemoryMove { nodes, moved: Bytes::mib(64), done, why, ..MemoryMove::default() };
            report(VmReport { memory: Some(memory), ..VmReport::default() })
        };
        let none = HostReport::default();
        assert_eq!(told(&none, &moved(false, None)), []);
        let kinds = |now: HostReport| told(&none, &now).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
        assert_eq!(kinds(moved(true, None)), ["memory.moved"]);
        assert_eq!(kinds(moved(true, Some("it is full"))), ["memory.moved", "memory.not-moved"]);
        assert_eq!(told(&moved(true, None), &moved(true, None)), []);
    }
}
