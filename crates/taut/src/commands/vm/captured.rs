//! Placement of VMs on described machines, as `taut vm explain` reports it.

use std::fmt::Write as _;

use taut_api::Name;
use taut_api::enforcement::{Controllers, Hierarchy, HostReport, VmReport};
use taut_api::vm::{Power, VmDesired};
use taut_api::word::counted;
use taut_host::kernel::topology;
use taut_host::observe::captured::unpack;
use taut_plan::admission::reservations::admit_reservations;
use taut_plan::explain::{explain_latency, explain_resources};
use taut_plan::facts::HostSeen;
use taut_plan::resources::Decided;
use taut_plan::{Desired, Observed};

const XEON: &str = include_str!("../../../../host/machines/xeon-2-sockets.txt");
const EPYC: &str = include_str!("../../../../host/machines/epyc-8-nodes.txt");
const LAPTOP: &str = include_str!("../../../../host/machines/hybrid-laptop.txt");
const SMALL: &str = include_str!("../../../../host/machines/small-vm.txt");

/// A machine and the VMs that were placed on it.
struct Host {
    desired: Desired,
    observed: Observed,
    report: HostReport,
    text: String,
}

impl Host {
    fn new(machine: &str, hierarchy: Hierarchy) -> Self {
        let root = tempfile::tempdir().unwrap();
        unpack(machine, root.path()).unwrap();
        let read = topology::read(root.path()).unwrap();
        let host = HostSeen {
            memory_total: read.memory_total,
            cpus: read.cpus,
            cpu_mhz: topology::nominal_mhz(root.path()).unwrap_or(0),
            huge_pages: topology::free_huge_pages(root.path()),
            swap_total: topology::swap_total(root.path()),
            controllers: Controllers {
                cpu: hierarchy,
                memory: hierarchy,
                cpuset: hierarchy,
                disk: hierarchy,
            },
            ..HostSeen::default()
        };
        let cores: std::collections::BTreeSet<_> =
            host.cpus.iter().map(|cpu| (cpu.package, cpu.core)).collect();
        let text = format!(
            "{}, {}, {}\n",
            counted(host.cpus.len(), "pCPU"),
            counted(cores.len(), "core"),
            counted(host.nodes().len(), "node")
        );
        let observed = Observed { host, ..Observed::default() };
        Self { desired: Desired::default(), observed, report: HostReport::default(), text }
    }

    /// Starts a latency-sensitive VM whose file also has `more`, if admission allows it.
    fn start(&mut self, name: &str, more: &serde_json::Value) {
        let mut json = serde_json::json!({
            "power": "on", "memory": "1GiB", "memory_reservation": "full", "cpu": { "reservation": "full" },
            "latency_sensitivity": "high", "nic": [{ "portgroup": "lan" }],
        });
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let vm: VmDesired = serde_json::from_value(json).unwrap();
        let vm_name: Name = name.parse().unwrap();
        let _ = writeln!(self.text, "\nstart {name} {more}");
        match admit_reservations(&self.desired, &self.observed, &self.report, &vm_name, &vm) {
            Ok(()) => drop(self.desired.vms.insert(vm_name, vm)),
            Err(error) => self.text += &format!("  refused: {}\n", error.message),
        }
        self.settle();
    }

    fn stop(&mut self, name: &str) {
        let _ = writeln!(self.text, "\nstop {name}");
        self.desired.vms.get_mut(&name.parse::<Name>().unwrap()).unwrap().power = Power::Off;
        self.settle();
    }

    fn offline(&mut self, cpu: u32) {
        let _ = writeln!(self.text, "\npCPU {cpu} goes off-line");
        self.observed.host.cpus.retain(|found| found.id != cpu);
        self.settle();
    }

    /// Applies the plan and prints the VMs that moved.
    fn settle(&mut self) {
        let decided = Decided::new(&self.desired, &self.observed, &self.report);
        let placement = &decided.placement;
        let before = std::mem::take(&mut self.report.vms);
        for (name, grant) in &placement.granted {
            let owner = VmReport { cpus: grant.cpus.clone(), ..VmReport::default() };
            self.report.vms.insert(name.clone(), owner);
            if before.get(name).is_some_and(|before| before.cpus == grant.cpus) {
                continue;
            }
            let vm = &self.desired.vms[name];
            let latency = explain_latency(&self.observed, &self.report, &decided, name, vm).unwrap();
            let resources =
                explain_resources(&self.desired, &self.observed, &self.report, &decided, name, vm)
                    .unwrap_or_default();
            let _ = writeln!(self.text, "  {name}:");
            for decision in latency.decisions.iter().chain(&resources.decisions) {
                let _ = writeln!(self.text, "    {} ({})", decision.decision, decision.rule);
            }
            for missing in latency.missing.iter().chain(&resources.missing) {
                let _ = writeln!(self.text, "    missing: {missing}");
            }
        }
        for name in placement.short.keys() {
            let vm = &self.desired.vms[name];
            let latency = explain_latency(&self.observed, &self.report, &decided, name, vm).unwrap();
            let _ = writeln!(self.text, "  {name} has none: {}", latency.missing.join("; "));
        }
    }
}

#[test]
fn two_sockets_with_smt() {
    let mut host = Host::new(XEON, Hierarchy::V2);
    host.start("db", &serde_json::json!({ "vcpus": 4 }));
    host.start("web", &serde_json::json!({ "vcpus": 4, "latency_sensitivity": "high-ht" }));
    host.start("far", &serde_json::json!({ "vcpus": 2, "placement": { "nodes": "1" } }));
    host.stop("web");
    host.start("next", &serde_json::json!({ "vcpus": 2 }));
    host.offline(1);
    insta::assert_snapshot!(host.text);
}

#[test]
fn eight_nodes() {
    let mut host = Host::new(EPYC, Hierarchy::V2);
    host.start("small", &serde_json::json!({ "vcpus": 2 }));
    host.start("node", &serde_json::json!({ "vcpus": 8 }));
    host.start("wide", &serde_json::json!({ "vcpus": 12, "memory": "16GiB", "placement": { "nodes": "2-3", "vcpus_per_node": 6 } }));
    host.start("last", &serde_json::json!({ "vcpus": 9, "placement": { "nodes": "7" } }));
    host.offline(9);
    insta::assert_snapshot!(host.text);
}

#[test]
fn cores_of_two_kinds() {
    let mut host = Host::new(LAPTOP, Hierarchy::V2);
    host.start("a", &serde_json::json!({ "vcpus": 2, "latency_sensitivity": "high-ht" }));
    host.start("b", &serde_json::json!({ "vcpus": 2 }));
    host.start("c", &serde_json::json!({ "vcpus": 64 }));
    insta::assert_snapshot!(host.text);
}

#[test]
fn a_small_machine() {
    let mut host = Host::new(SMALL, Hierarchy::V1);
    host.start("one", &serde_json::json!({ "vcpus": 1, "placement": { "cpus": "1" } }));
    host.start("two", &serde_json::json!({ "vcpus": 1, "placement": { "nodes": "1" } }));
    insta::assert_snapshot!(host.text);
}
