//! Debian kernels on one port group.

use std::fmt::Write as _;

use taut_tests::{Image, Netns, Taut, WallsSeen, any_image, eventually, image, missing_walls};

use crate::direct;

#[test]
fn debian_kernels_talk_to_each_other_and_to_a_namespace() {
    let images: Vec<_> = Image::CLOUD.into_iter().filter_map(image).collect();
    assert!(!images.is_empty(), "there is no image with a cloud kernel\nhint: make images");
    let taut = Taut::start().with_lan();
    taut.boot_all([
        ("g0", direct(&images[0], "ip = \"10.72.0.1/24\"")),
        ("g1", direct(images.last().unwrap(), "ip = \"10.72.0.2/24\"")),
    ]);
    let users = ["g0", "g1"].map(|vm| {
        let status = taut.json(["vm", "show", vm])["status"].clone();
        let walls = WallsSeen::of(i32::try_from(status["pid"].as_i64().unwrap()).unwrap());
        // The launcher's filter, which is two programs, and QEMU's own.
        assert!(walls.filters >= 3, "{walls:?}");
        assert_eq!(missing_walls(&status), [] as [&str; 0], "{status}");
        walls.assert_complete()
    });
    assert_ne!(users[0], users[1]);
    let a = Netns::attach(&taut, "a", "lan", "10.72.0.9");
    for ip in ["10.72.0.1", "10.72.0.2"] {
        a.reaches(ip, 10);
    }
    let json = taut.dir().join("result.json");
    for kind in ["ping", "rr", "stream"] {
        taut.ok(["bench", kind, "g0", "g1", "--duration", "1", "--json", json.to_str().unwrap()]);
    }
    // While a guest boots, multicasts to it are dropped, and a burst may meet a full ring. Any
    // other drop is a fault.
    for port in taut.json(["port", "list"]).as_array().unwrap() {
        let drops = ["rx_drops", "tx_drops"].map(|direction| port["counters"][direction].clone());
        let reasons = drops.iter().filter_map(|drops| drops.as_array()).flatten().map(|drop| &drop[0]);
        let faults: Vec<_> = reasons
            .filter(|reason| !["port-down", "ring-full"].iter().any(|usual| reason == usual))
            .collect();
        assert!(faults.is_empty(), "{port}");
    }
    assert!(taut.ok(["vm", "log", "g0"]).contains("taut guest ready"));
    taut.ok(["vm", "stop", "g0"]);
}

#[test]
fn guests_with_and_without_offloads_understand_each_other() {
    let taut = Taut::start().with_lan();
    let image = any_image();
    taut.boot_all([
        ("with", direct(&image, "ip = \"10.72.0.1/24\"")),
        ("without", direct(&image, "ip = \"10.72.0.2/24\"\noffloads = false")),
    ]);
    for (from, to) in [("with", "without"), ("without", "with")] {
        taut.ok(["bench", "stream", from, to, "--duration", "1"]);
    }
}

#[test]
fn several_workers_serve_as_many_queues_as_a_guest_has_cpus() {
    let taut = Taut::start_with(&["--fabric-cpus", "0,0"]).with_lan();
    let image = any_image();
    let file = |cpus: u32, queues: u32, ip: u32| {
        let nic = format!("queues = {queues}\nip = \"10.72.0.{ip}/24\"");
        format!("vcpus = {cpus}\n{}", direct(&image, &nic))
    };
    taut.boot_all([("two", file(2, 4, 1)), ("one", file(1, 2, 2))]);
    let ports = taut.json(["port", "list"]);
    let queues = |owner: &str| {
        let port = ports.as_array().unwrap().iter().find(|port| port["owner"] == owner).unwrap();
        port["counters"]["rx_queues"].clone()
    };
    assert_eq!((queues("vm/two/nic0"), queues("vm/one/nic0")), (2.into(), 1.into()), "{ports}");
    let probe = Netns::attach(&taut, "probe", "lan", "10.72.0.9");
    for ip in ["10.72.0.1", "10.72.0.2"] {
        probe.reaches(ip, 5);
    }
    for (from, to) in [("one", "two"), ("two", "one")] {
        taut.ok(["bench", "stream", from, to, "--duration", "1"]);
        taut.ok(["bench", "rr", from, to, "--duration", "1"]);
    }
    let workers = taut.json(["daemon", "show"])["workers"].clone();
    assert_eq!(workers.as_array().unwrap().len(), 2, "{workers}");
}

#[test]
fn ten_vnics_each_reach_their_own_port_group() {
    let taut = Taut::start().with_lan();
    let mut file = direct(&any_image(), "ip = \"10.72.0.1/24\"");
    let mut probes = vec![Netns::attach(&taut, "p0", "lan", "10.72.0.9")];
    for number in 1..10 {
        let group = format!("lan{number}");
        taut.ok(["portgroup", "create", &group, "--vswitch", "sw", "--vlan", &number.to_string()]);
        writeln!(file, "[[nic]]\nportgroup = \"{group}\"\nip = \"10.72.{number}.1/24\"").unwrap();
        probes.push(Netns::attach(&taut, &format!("p{number}"), &group, &format!("10.72.{number}.9")));
    }
    taut.boot("many", &file);
    for (number, probe) in probes.iter().enumerate() {
        probe.reaches(&format!("10.72.{number}.1"), 3);
    }
}

#[test]
fn a_guest_that_is_still_booting_can_be_stopped() {
    let taut = Taut::start().with_lan();
    let file = taut.file("early.toml", &direct(&any_image(), "ip = \"10.72.0.1/24\""));
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "early", "--start"]);
    eventually("its process runs", || taut.json(["vm", "show", "early"])["status"]["pid"].as_u64());
    taut.ok(["vm", "stop", "early"]);
    let events = taut.json(["events"]);
    let stopped = events.as_array().unwrap().iter().any(|event| event["kind"] == "vm.stopped");
    assert!(stopped, "{events}");
}
