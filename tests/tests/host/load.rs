//! The load generator receives every frame, over both kinds of rings and in both directions of
//! connecting.

use std::path::PathBuf;

use serde_json::Value;
use taut_tests::Taut;

/// Measures for a tenth of a second between two ports of a switch. The generator checks length and
/// header of every frame.
fn load(taut: &Taut, listen: bool, more: &[&str]) -> Value {
    let sockets: [PathBuf; 2] = [0, 1].map(|end| taut.dir().join(format!("load{end}.sock")));
    let paths = sockets.each_ref().map(|path| path.to_str().unwrap());
    for (end, path) in paths.iter().enumerate() {
        let mac = format!("02:11:00:00:00:0{end}");
        let port = format!("load{end}");
        let mut attach = vec!["port", "attach", &port, "--portgroup", "load", "--mac", &mac, "--path", path];
        attach.extend((!listen).then_some("--listen"));
        taut.ok(attach);
    }
    let mut args = vec!["bench", "switch", paths[0], paths[1], "--duration", "0.1", "--settle", "0.1"];
    args.extend(listen.then_some("--listen"));
    args.extend(more);
    let found = taut.json(args);
    for end in [0, 1] {
        taut.ok(["port", "detach", &format!("load{end}")]);
    }
    found
}

fn switch(policy: &[&str]) -> Taut {
    let taut = Taut::start();
    taut.ok(["vswitch", "create", "load"]);
    taut.ok([&["portgroup", "create", "load", "--vswitch", "load"], policy].concat());
    taut
}

#[test]
fn frames_arrive_over_split_and_packed_rings() {
    let taut = switch(&[]);
    for (listen, packed) in [(false, false), (true, false), (false, true), (true, true)] {
        let found = load(&taut, listen, if packed { &["--packed", "--mode", "both-ways"] } else { &[] });
        assert_eq!(found["packed"], packed);
        assert!(found["repeats"][0]["mpps"].as_f64().unwrap() > 0.0, "listen {listen}: {found}");
    }
}

#[test]
fn single_frames_are_timed() {
    let found = load(&switch(&[]), false, &["--mode", "traversal", "--size", "1518", "--no-in-order"]);
    let times = &found["repeats"][0]["traversal"];
    assert!(times["count"].as_u64().unwrap() > 0 && times["lost"] == 0, "{found}");
    assert!(times["p50_ns"].as_f64() <= times["p99_99_ns"].as_f64(), "{found}");
}

#[test]
fn many_flows_reach_the_addresses_behind_a_port() {
    let taut = switch(&["--forged-transmits", "--mac-learning"]);
    let found = load(&taut, false, &["--flows", "1000", "--macs", "20"]);
    assert!(found["repeats"][0]["mpps"].as_f64().unwrap() > 0.0, "{found}");
}
