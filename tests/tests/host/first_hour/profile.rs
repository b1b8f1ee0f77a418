//! `taut check vm` judges a VM by what it is for, and says what it took it for.

use taut_tests::Taut;

#[test]
fn an_ordinary_vm_is_not_bad_and_the_profile_is_named_with_its_reason() {
    let taut = Taut::start().with_lan();
    taut.boot("m", &crate::micro::micro("10.71.0.1"));
    let outcome = taut.run(["check", "vm", "m"]);
    assert!(outcome.success, "{}", outcome.stdout);
    let told = "profile throughput, because its latency sensitivity is normal, and dense mode is off;";
    assert!(outcome.stdout.contains(told), "{}", outcome.stdout);
    let asked = taut.run(["check", "vm", "m", "--profile", "latency"]);
    assert!(!asked.success && !asked.stdout.contains("because its latency"), "{}", asked.stdout);

    // The size that it runs with is named where it differs.
    taut.ok(["vm", "set", "m", "--vcpus", "2"]);
    let said = taut.run(["check", "vm", "m"]).stdout;
    assert!(said.contains("2 vCPUs from its next start on (now 1 vCPU)"), "{said}");
    let host = taut.run(["-o", "json", "check", "host"]).stdout;
    let report: serde_json::Value = serde_json::from_str(&host).unwrap();
    let line = report["lines"].as_array().unwrap().iter().find(|line| line["id"] == "commit.vcpus").unwrap();
    assert!(line["found"].as_str().unwrap().starts_with("1 vCPU of 1 VM, "), "{line}");
}
