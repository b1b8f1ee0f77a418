//! The common shape of the command line: what a change prints, what shows it, what takes it back.

use std::fs;

use taut_tests::{Netns, Taut, bin_dir, eventually};

#[test]
fn a_change_prints_one_line_unless_quiet_was_asked_for() {
    let taut = Taut::start();
    assert_eq!(
        taut.ok(["vswitch", "create", "sw"]),
        "vSwitch sw: created, a private network; `taut portgroup create` gives it port groups\n"
    );
    let created = ["portgroup", "create", "lan", "--vswitch", "sw", "--vlan", "10", "--promiscuous"];
    let line = taut.ok(created);
    assert_eq!(
        line,
        "port group lan: vSwitch sw, VLAN 10, security policy accepts promiscuous, not shaped\n"
    );
    let all_off = ["portgroup", "set", "lan", "--vlan", "off", "--promiscuous", "off", "--to-guest", "off"];
    let line = "port group lan: vSwitch sw, no VLAN, security policy rejects promiscuous mode, MAC changes \
                and forged transmits, not shaped\n";
    assert_eq!(taut.ok(all_off), line);
    assert_eq!(taut.ok(["-q", "portgroup", "set", "lan", "--to-guest", "10Mbit"]), "");
    let shown = taut.ok(["portgroup", "show", "lan"]);
    assert!(shown.contains("to guest          10Mbit\n"), "{shown}");
    let changed = taut.json(["portgroup", "set", "lan", "--to-guest", "none"]);
    assert_eq!(changed["spec"]["vswitch"], "sw", "the changed document: {changed}");
    let host = taut.ok(["host", "set", "Net.CoalesceScheme=static", "Net.CoalesceParams=16"]);
    assert_eq!(host, "host: Net.CoalesceParams=16, Net.CoalesceScheme=static\n");
    assert!(taut.ok(["vswitch", "show", "sw"]).contains("port groups  lan\n"));
    assert_eq!(taut.ok(["portgroup", "delete", "lan"]), "port group lan: deleted\n");
    assert_eq!(taut.json(["vswitch", "delete", "sw"])["deleted"], "sw");
}

#[test]
fn an_attachment_is_moved_by_set_and_not_by_attach() {
    let taut = Taut::start().with_lan();
    taut.ok(["portgroup", "create", "db", "--vswitch", "sw"]);
    let probe = Netns::attach(&taut, "probe", "lan", "10.71.0.1");
    let name = probe.name.as_str();
    let refused = taut.refused(["netns", "attach", name, "--portgroup", "db"]);
    assert!(refused.contains("exists already"), "{refused}");
    assert_eq!(taut.json(["netns", "show", name])["spec"]["portgroup"], "lan");
    let moved = taut.ok(["netns", "set", name, "--portgroup", "db"]);
    assert!(moved.contains("on port group db, interface taut0 with 10.71.0.1/24"), "{moved}");
    let port = taut.json(["port", "show", &format!("netns/{name}")]);
    assert_eq!(port["portgroup"], "db");
}

#[test]
fn completion_names_what_the_daemon_has() {
    let taut = Taut::start().with_lan();
    let vm = |name: &str, more: &str| {
        let file =
            taut.file(&format!("{name}.toml"), &format!("kind = \"micro\"\nmemory = \"18MiB\"\n{more}"));
        taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", name]);
    };
    let candidates = |words: &[&str]| {
        let mut asked = taut.command();
        let socket = taut.dir().join("run/tautd.sock");
        asked.args(["--", "taut", "--socket"]).arg(socket).args(words);
        asked.env("TAUT_COMPLETE", "bash").env("_CLAP_IFS", "\n");
        asked.env("_CLAP_COMPLETE_INDEX", (words.len() + 2).to_string());
        String::from_utf8(asked.output().unwrap().stdout).unwrap()
    };
    let has = |words: &[&str], name: &str| candidates(words).lines().any(|found| found == name);
    let offers = |words: &[&str], name: &str| {
        // Completion leaves the names out if a slow daemon does not answer in time.
        eventually(&format!("{words:?} is completed with {name}"), || has(words, name).then_some(()));
    };
    offers(&["portgroup", "show", ""], "lan");
    offers(&["portgroup", "create", "x", "--vswitch", ""], "sw");
    assert!(candidates(&["vm", "show", ""]).lines().all(|name| name.starts_with('-')), "no VM exists");
    vm("plain", "");
    vm("talks", "[vmci]\n");
    offers(&["vmci", "show", ""], "talks");
    assert!(!has(&["vmci", "show", ""], "plain"));
    offers(&["bench", "rr", ""], "plain");
    offers(&["bench", "rr", "plain", ""], "talks");
    offers(&["host", "set", ""], "Net.NetTuneHostMode=dense");
}

#[test]
fn man_writes_the_pages_of_every_program_that_users_call() {
    let dir = tempfile::tempdir().unwrap();
    let written = std::process::Command::new(bin_dir().join("taut")).arg("man").arg(dir.path()).output();
    assert!(written.unwrap().status.success());
    for (page, word) in [
        ("taut.1", "vswitch"),
        ("tautd.1", "fabric"),
        ("taut-guest.1", "agent"),
        ("taut-guest-check.1", "profile"),
    ] {
        let text =
            fs::read_to_string(dir.path().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(word), "{page}: {text}");
    }
}
