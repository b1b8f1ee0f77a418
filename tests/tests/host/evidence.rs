//! Evidence of `taut latency`.

use taut_tests::{Prerequisite, Taut, require};

use crate::micro::micro;

#[test]
fn latency_shows_vcpu_time_and_no_intruders_without_exclusive_pcpus() {
    let taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.0.1"));
    let seen = taut.json(["latency", "m1", "--duration", "0.5"]);
    assert_eq!((&seen["vm"], &seen["latency_sensitivity"]), (&"m1".into(), &"normal".into()));
    let [vcpu] = seen["vcpus"].as_array().unwrap().as_slice() else { panic!("{seen}") };
    // Kernels without NUMA do not report where memory is.
    if require(Prerequisite::NumaMaps) {
        let bytes = seen["memory"].as_array().unwrap().iter().map(|node| node["bytes"].as_u64().unwrap());
        assert!(bytes.sum::<u64>() > 0, "{seen}");
    }
    assert_eq!(seen["kvm"]["vcpus"], serde_json::json!([]));
    assert!(seen["kvm"]["none_because"].as_str().unwrap().contains("microguest"), "{seen}");
    let pid = taut.json(["vm", "show", "m1"])["status"]["pid"].clone();
    let task = format!("/proc/{pid}/task/{}/comm", vcpu["tid"]);
    assert_eq!(std::fs::read_to_string(task).unwrap().trim(), "vcpu");
    assert!(vcpu["used_percent"].as_f64().unwrap() <= 110.0, "{seen}");
    assert_eq!((&vcpu["exclusive"], &vcpu["intruders"]), (&false.into(), &serde_json::json!([])));

    taut.ok(["vm", "stop", "m1"]);
    assert!(taut.refused(["latency", "m1"]).contains("hint: taut vm start m1"));
}
