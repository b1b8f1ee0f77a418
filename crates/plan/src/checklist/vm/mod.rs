//! A VM from outside.

mod capacity;
mod facts;
mod machine;
mod vnics;

pub use facts::VmFacts;

use super::line::{Line, Profile};

/// The lines about a VM.
pub(super) fn lines(facts: &VmFacts<'_>, profile: Profile) -> Vec<Line> {
    let mut lines = vec![
        capacity::sensitivity(facts, profile),
        capacity::memory(facts.spec, profile),
        capacity::cpu(facts.spec, profile),
        capacity::vcpus(facts, profile),
        capacity::node(facts),
        machine::accelerator(facts),
        machine::halt(facts, profile),
    ];
    lines.extend(vnics::lines(facts, profile));
    lines.extend([machine::kernel(facts.spec), machine::disk(facts.spec)]);
    lines
}

#[cfg(test)]
mod tests {
    use taut_api::host::HostInfo;
    use taut_api::vm::{VmSpec, VmStatus};

    use super::*;
    use crate::checklist::line::Verdict;

    fn spec(json: serde_json::Value) -> VmSpec {
        serde_json::from_value(json).unwrap()
    }

    fn host() -> HostInfo {
        let cpu = |id| serde_json::json!({ "id": id, "package": 0, "core": id, "node": id / 4, "llc": 0 });
        serde_json::from_value(serde_json::json!({
            "hostname": "h", "kernel": "6.12.0", "os": "Linux", "cpu_model": "CPU",
            "cpus": (0..8).map(cpu).collect::<Vec<_>>(),
            "nodes": [{ "id": 0, "memory": "8GiB" }, { "id": 1, "memory": "8GiB" }],
            "memory_total": "16GiB", "memory_available": "12GiB",
            "accelerator": { "kind": "kvm", "why": "tried" }, "qemu": null
        }))
        .unwrap()
    }

    fn status(coalescing: &str, lro: bool, latency: &str) -> VmStatus {
        serde_json::from_value(serde_json::json!({
            "phase": "running", "pid": 7, "accelerator": "kvm",
            "nics": [{ "mac": "02:00:00:00:00:01", "portgroup": "lan", "port": 1, "link": "up", "coalescing": coalescing, "lro": lro }],
            "latency": { "state": latency, "cpus": [] }
        }))
        .unwrap()
    }

    fn verdicts(spec: &VmSpec, status: &VmStatus, profile: Profile) -> Vec<(&'static str, Verdict)> {
        let host = host();
        let lines = lines(&VmFacts { name: "db1", spec, status, host: &host }, profile);
        lines.iter().filter(|line| line.verdict != Verdict::Ok).map(|line| (line.id, line.verdict)).collect()
    }

    #[test]
    fn a_fully_reserved_vm_is_fine_for_latency_and_not_for_density() {
        let spec = spec(serde_json::json!({
            "vcpus": 4, "memory": "4GiB", "memory_reservation": "full", "cpu": { "reservation": "full" },
            "latency_sensitivity": "high", "nic": [{ "portgroup": "lan" }], "disk": { "path": "/d", "bus": "virtio" }
        }));
        let granted = status("disabled", false, "granted");
        assert_eq!(verdicts(&spec, &granted, Profile::Latency), [("vm.kernel", Verdict::Unknown)]);
        let dense = verdicts(&spec, &granted, Profile::Dense);
        for id in ["vm.latency-sensitivity", "vm.coalescing", "vm.lro"] {
            assert!(dense.contains(&(id, Verdict::Warn)), "{id}: {dense:?}");
        }
        let partly = verdicts(&spec, &status("disabled", false, "partly"), Profile::Latency);
        assert!(partly.contains(&("vm.latency-sensitivity", Verdict::Warn)), "{partly:?}");
    }

    #[test]
    fn each_missing_setting_has_a_line() {
        let spec = spec(serde_json::json!({
            "vcpus": 8, "memory": "12GiB", "memory_reservation": "1GiB", "cpu": { "reservation": "50%" },
            "nic": [{ "portgroup": "lan", "model": "e1000", "rings": { "rx": 64, "tx": 64 }, "queues": 8 }],
            "disk": { "path": "/d", "bus": "sata" }
        }));
        let missing = verdicts(&spec, &status("rbc:4000", true, "waiting"), Profile::Latency);
        let expected = [
            ("vm.latency-sensitivity", Verdict::Bad),
            ("vm.memory-reservation", Verdict::Bad),
            ("vm.cpu-reservation", Verdict::Warn),
            ("vm.vcpus", Verdict::Bad),
            ("vm.numa", Verdict::Warn),
            ("vm.halt", Verdict::Warn),
            ("vm.nic-model", Verdict::Bad),
            ("vm.coalescing", Verdict::Bad),
            ("vm.lro", Verdict::Warn),
            ("vm.rings", Verdict::Warn),
            ("vm.kernel", Verdict::Unknown),
            ("vm.disk", Verdict::Warn),
        ];
        assert_eq!(missing, expected);
    }
}
