//! Hostile front ends and guests: each loses its own port, with the reason; other ports go on.

use std::process::Command;
use std::time::Duration;

use taut_tests::hostile::{Stage, acts};
use taut_tests::{Background, Netns, Taut, alive, bin_dir, eventually, kill_9};

/// Attacks of `taut-micro --hostile`.
const KINDS: &[&str] = &["avail-index", "loop", "outside", "length", "indirect"];
/// Longest delay of a neighbour's frame on a machine that has other things to do. The goal SE1
/// measures it.
const LONGEST: Duration = Duration::from_secs(1);

#[test]
fn no_act_of_a_hostile_front_end_harms_others() {
    let stage = Stage::start();
    let fabric = stage.taut().fabric_pid();
    stage.neighbours.take();
    let mut problems = Vec::new();
    for act in acts() {
        problems.extend(stage.perform(&act, true).err());
        let seen = stage.neighbours.take();
        if seen.lost > 0 || seen.longest() > LONGEST {
            let (lost, longest) = (seen.lost, seen.longest());
            problems.push(format!("{}: neighbours lost {lost} frames, longest {longest:?}", act.name));
        }
        assert_eq!(stage.taut().fabric_pid(), fabric, "{} has ended the fabric", act.name);
    }
    problems.extend(stage.await_event("port.close-blocked", "has been closing for more than 1 s", 0).err());
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn a_killed_fabric_whose_thread_waits_for_a_close_is_replaced_at_once() {
    let stage = Stage::start();
    let fabric = stage.taut().fabric_pid();
    stage.while_a_close_waits(|| {
        kill_9(fabric);
        let another = || stage.taut().json(["daemon", "show"])["fabric_pid"].as_i64();
        eventually("another fabric runs", || another().filter(|pid| *pid != i64::from(fabric)));
        stage.neighbours.take();
        let exchange = || (stage.neighbours.take().delays.len() > 10).then_some(());
        eventually("the neighbours exchange frames again", exchange);
        assert!(alive(fabric), "no thread of it waits");
    });
    eventually("the killed fabric ends", || (!alive(fabric)).then_some(()));
}

#[test]
fn a_hostile_guest_breaks_its_own_port_only() {
    let taut = Taut::start().with_lan();
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.1");
    let b = Netns::attach(&taut, "b", "lan", "10.71.0.2");
    for kind in KINDS {
        let socket = taut.dir().join(format!("{kind}.sock"));
        let agent = taut.dir().join(format!("{kind}.agent"));
        let nic = format!("socket={},mac=02:66:00:00:00:01,ip=10.71.0.66/24", socket.display());
        let mut command = Command::new(bin_dir().join("taut-micro"));
        command.args(["--name", kind, "--agent-socket"]).arg(&agent).args(["--nic", &nic, "--hostile", kind]);
        let _hostile = Background::start(&mut command);
        taut.ok([
            "port",
            "attach",
            kind,
            "--portgroup",
            "lan",
            "--mac",
            "02:66:00:00:00:01",
            "--path",
            socket.to_str().unwrap(),
        ]);
        let reason = eventually("the port is broken", || {
            let ports = taut.json(["port", "list"]);
            let owner = format!("external/{kind}");
            let port =
                ports.as_array().unwrap().iter().find(|port| port["owner"] == owner.as_str()).cloned()?;
            (port["link"] == "broken").then(|| port["reason"].as_str().unwrap_or_default().to_owned())
        });
        assert!(!reason.is_empty(), "{kind} has no reason");
        a.reaches(&b.ip, 10);
        taut.ok(["port", "detach", kind]);
    }
}
