//! A VM from outside.

mod capacity;
mod facts;
mod machine;
mod vnics;

pub use facts::VmFacts;

use taut_api::vm::VmSpec;

use super::line::{Line, Profile};
use facts::is_high;

/// Returns the profile that a VM is checked for unless its user names one, and the reason. `dense`
/// says that dense mode is on.
pub fn profile_of(spec: &VmSpec, dense: bool) -> (Profile, &'static str) {
    match (is_high(spec), dense) {
        (true, _) => (Profile::Latency, "its latency sensitivity is high"),
        (false, true) => (Profile::Dense, "dense mode is on, and its latency sensitivity is normal"),
        (false, false) => (Profile::Throughput, "its latency sensitivity is normal, and dense mode is off"),
    }
}

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
    use taut_api::vm::{VmSize, VmStatus};

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
    fn first_hour_an_ordinary_vm_is_not_bad_and_the_profile_follows_the_vm() {
        let ordinary =
            spec(serde_json::json!({ "kind": "micro", "memory": "64MiB", "nic": [{ "portgroup": "lan" }] }));
        let normal = status("rbc:4000", true, "waiting");
        let (profile, why) = profile_of(&ordinary, false);
        assert_eq!(
            (profile, verdicts(&ordinary, &normal, profile)),
            (Profile::Throughput, vec![("vm.rings", Verdict::Warn)])
        );
        assert!(why.contains("is normal"), "{why}");
        assert_eq!(profile_of(&ordinary, true).0, Profile::Dense);
        for level in ["high", "high-ht"] {
            let sensitive = spec(serde_json::json!({ "latency_sensitivity": level }));
            assert_eq!(profile_of(&sensitive, true).0, Profile::Latency);
        }
        let host = host();
        let report =
            super::super::vm(&VmFacts { name: "m", spec: &ordinary, status: &normal, host: &host }, profile);
        let text = report.because(Some(why)).to_string();
        assert!(text.contains("\nprofile throughput, because its latency sensitivity is normal,"), "{text}");
    }

    #[test]
    fn first_hour_the_judged_size_is_that_of_the_next_start_and_the_present_one_is_named() {
        let wanted = spec(serde_json::json!({ "vcpus": 16, "memory": "12GiB" }));
        let mut running = status("rbc:4000", true, "waiting");
        running.size = Some(VmSize { vcpus: 1, memory: "1GiB".parse().unwrap() });
        let host = host();
        let lines =
            lines(&VmFacts { name: "m", spec: &wanted, status: &running, host: &host }, Profile::Throughput);
        let found = |id| {
            lines.iter().find(|line| line.id == id).map(|line| (line.found.as_str(), line.verdict)).unwrap()
        };
        assert_eq!(
            found("vm.vcpus"),
            ("16 vCPUs from its next start on (now 1 vCPU), 8 pCPUs", Verdict::Bad)
        );
        assert_eq!(
            found("vm.numa"),
            ("16 vCPUs, 12GiB from its next start on (now 1 vCPU, 1GiB); 2 nodes", Verdict::Warn)
        );
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
