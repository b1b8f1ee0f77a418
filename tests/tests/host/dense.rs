//! Dense mode goes on and off with the load, here with microguests and an interval of a second.

use serde_json::{Value, json};
use taut_tests::{Taut, eventually, kill_9};

use crate::micro::micro;

fn set(taut: &Taut, key: &str, value: &str) {
    taut.ok(["host", "set", &format!("Net.NetTune{key}={value}")]);
}

/// Waits until dense mode is on or off, and returns its whole state.
fn turns(taut: &Taut, on: bool) -> Value {
    eventually(if on { "dense mode is on" } else { "dense mode is off" }, || {
        let tune = taut.json(["host", "tune"]);
        (tune["state"]["on"] == on).then_some(tune)
    })
}

fn moderation(taut: &Taut, vm: &str) -> Value {
    taut.json(["vm", "show", vm])["status"]["nics"][0]["coalescing"].clone()
}

/// Starts three microguests of one vCPU, the last with an explicit moderation, and waits until
/// dense mode is on.
fn three() -> Taut {
    let taut = Taut::start().with_lan();
    set(&taut, "Interval", "1");
    set(&taut, "Threshold", "3 3 0");
    set(&taut, "HostMode", "dense");
    taut.boot("a", &micro("10.74.0.1"));
    taut.boot("b", &micro("10.74.0.2"));
    taut.boot("own", &format!("{}coalescing = \"rbc:4000\"\n", micro("10.74.0.3")));
    turns(&taut, true);
    taut
}

#[test]
fn dense_mode_is_on_while_all_three_thresholds_hold() {
    let taut = three();
    let tune = taut.json(["host", "tune"]);
    assert_eq!(tune["held"], json!([true, true, true]), "{tune}");
    assert_eq!(tune["governs"], json!(["vm/a/nic0", "vm/b/nic0"]), "{tune}");
    assert_eq!(tune["leaves_alone"], json!(["vm/own/nic0"]), "{tune}");
    assert_eq!(["a", "b", "own"].map(|vm| moderation(&taut, vm)), ["dense", "dense", "rbc:4000"]);
    for (threshold, held) in [("4 3 0", [false, true, true]), ("3 4 0", [true, false, true])] {
        set(&taut, "Threshold", threshold);
        let tune = turns(&taut, false);
        assert_eq!(tune["held"], json!(held), "{tune}");
        assert_eq!(["a", "b", "own"].map(|vm| moderation(&taut, vm)), ["rbc:4000"; 3]);
        set(&taut, "Threshold", "3 3 0");
        turns(&taut, true);
    }
    // The utilisation falls below 100 % as soon as the host is idle for a moment within the second;
    // other load on this machine may prevent that.
    set(&taut, "Threshold", "3 3 100");
    let tune = eventually("it is held against 100 percent", || {
        let tune = taut.json(["host", "tune"]);
        (tune["state"]["test"]["limits"]["utilisation"] == 100).then_some(tune)
    });
    let busy = tune["state"]["test"]["reading"]["utilisation"] == 100;
    assert_eq!((&tune["state"]["on"], &tune["held"]), (&json!(busy), &json!([true, true, busy])), "{tune}");
    set(&taut, "Threshold", "3 3 0");
    turns(&taut, true);
    taut.ok(["vm", "stop", "b"]);
    let tune = turns(&taut, false);
    assert_eq!(tune["state"]["test"]["reading"]["vms"], 2, "{tune}");
    let events = taut.json(["events"]);
    let events = events.as_array().unwrap();
    let changes: Vec<_> = events.iter().filter(|event| event["subject"] == "host").collect();
    let kinds: Vec<_> = changes.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    let pairs = kinds.len() / 2;
    assert_eq!(kinds, ["tune.on", "tune.off"].repeat(pairs));
    assert!(pairs >= 3, "two lost, and the VM; whoever keeps the host busy for moments makes more of them");
    let last = changes.last().unwrap()["message"].as_str().unwrap();
    assert!(last.starts_with("dense mode is off: 2 VMs < 3, 2 vCPUs < 3, "), "{last}");
}

#[test]
fn dense_mode_survives_a_killed_daemon_and_follows_the_load() {
    let mut taut = three();
    set(&taut, "Interval", "3600");
    let before = turns(&taut, true);
    let fabric = taut.fabric_pid();
    taut.kill_daemon();
    taut.restart_daemon();
    assert_eq!(taut.fabric_pid(), fabric);
    let after = taut.json(["host", "tune"]);
    assert_eq!(after["state"], before["state"]);
    assert_eq!(moderation(&taut, "a"), "dense");
    let b = taut.json(["vm", "show", "b"])["status"]["pid"].as_i64().unwrap();
    taut.kill_daemon();
    kill_9(i32::try_from(b).unwrap());
    taut.restart_daemon();
    // The state stays until the next test, although one VM is gone.
    assert_eq!(taut.json(["host", "tune"])["state"], before["state"]);
    set(&taut, "Interval", "1");
    let tune = turns(&taut, false);
    assert_eq!(tune["held"], json!([false, false, true]), "{tune}");
    assert_eq!(moderation(&taut, "a"), "rbc:4000");
}

#[test]
fn turning_dense_mode_off_takes_effect_at_once() {
    let taut = three();
    set(&taut, "Interval", "3600");
    set(&taut, "HostMode", "default");
    let tune = turns(&taut, false);
    assert_eq!((&tune["mode"], &tune["held"]), (&json!("default"), &Value::Null), "{tune}");
    let refused = taut.refused(["host", "set", "Net.NetTuneThreshold=1n 2n"]);
    assert!(refused.contains("takes three values, VMs, vCPUs and percent, not `1n 2n`"), "{refused}");
}
