//! A namespace that is deleted under taut: its attachment says so, and comes back with it.

use std::process::Command;

use taut_tests::{Netns, Taut, eventually};

fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).status().expect("ip can be run").success()
}

#[test]
fn a_namespace_that_was_made_again_gets_its_interface_back() {
    let taut = Taut::start().with_lan();
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.1");
    let b = Netns::attach(&taut, "b", "lan", "10.71.0.2");
    a.reaches(&b.ip, 1);
    let status = || {
        let all = taut.json(["netns", "list"]);
        let found = all.as_array().unwrap().iter().find(|one| one["name"] == *a.name).cloned();
        found.expect("the attachment stays")["status"].clone()
    };

    // Without its interface the namespace has no route, and ping fails.
    let ping = || a.run("ping", ["-n", "-c", "1", "-W", "1", &b.ip]).status.success();
    let frames_pass = || eventually("frames pass again", || ping().then_some(()));

    assert!(ip(&["netns", "del", &a.name]));
    let reason = eventually("the attachment is reported as lost", || {
        let status = status();
        let told = status["reason"].as_str().is_some_and(|reason| reason.contains("was deleted"));
        (status["attached"] == false && told).then(|| status["reason"].clone())
    });
    assert!(reason.as_str().unwrap().contains(&format!("ip netns add {}", a.name)), "{reason}");
    assert!(!a.exists(), "taut does not make it again by itself");

    // The hint works.
    assert!(ip(&["netns", "add", &a.name]));
    eventually("the attachment is back", || (status()["attached"] == true).then_some(()));
    frames_pass();

    // Deleted and made again between two looks.
    assert!(ip(&["netns", "del", &a.name]) && ip(&["netns", "add", &a.name]));
    frames_pass();
    assert_eq!(status()["attached"], true);

    // The namespace belongs to whoever made it.
    taut.ok(["netns", "detach", &a.name]);
    eventually("the interface is gone", || (!ip(&["-n", &a.name, "link", "show", "taut0"])).then_some(()));
    assert!(ip(&["netns", "del", &a.name]), "the namespace was still there");
}
