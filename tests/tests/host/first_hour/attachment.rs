//! An attachment that exists: the refusal names the command that changes it, and `detach` says what
//! becomes of the namespace.

use std::process::Command;

use taut_tests::{Netns, Taut};

#[test]
fn a_second_attach_names_set_and_detach_says_what_becomes_of_the_namespace() {
    let taut = Taut::start().with_lan();
    taut.ok(["portgroup", "create", "db", "--vswitch", "sw"]);
    let ours = Netns::attach(&taut, "ours", "lan", "10.71.0.1");
    let said = taut.refused(["netns", "attach", &ours.name, "--portgroup", "db"]);
    let hint = said.split_once("\nhint: ").unwrap().1;
    assert!(hint.contains(&format!("taut netns set {} --portgroup", ours.name)), "{said}");
    // The hint works.
    taut.ok(["netns", "set", &ours.name, "--portgroup", "db"]);

    let theirs = Netns::name(&taut, "theirs");
    assert!(Command::new("ip").args(["netns", "add", &theirs]).status().unwrap().success());
    taut.ok(["netns", "attach", &theirs, "--portgroup", "lan"]);
    let said = taut.ok(["netns", "detach", &theirs]);
    assert!(
        said.ends_with(&format!("detached; namespace {theirs} stays, because taut did not make it\n")),
        "{said}"
    );
    let said = taut.ok(["netns", "detach", &ours.name]);
    assert!(said.contains("taut made the namespace, and removes it"), "{said}");
    let listed = taut.json(["netns", "list"]);
    assert!(listed.as_array().unwrap().is_empty(), "a detached namespace is not listed: {listed}");
    taut_tests::eventually("taut removes what it made", || (!ours.exists()).then_some(()));
    assert!(Command::new("ip").args(["netns", "del", &theirs]).status().unwrap().success());
}
