//! Several settings of a VM in one request.

use taut_api::vm::VmDesired;
use taut_api::{Bytes, Name};
use taut_plan::Desired;
use taut_plan::facts::{MachineSeen, MachineSize};

use super::*;
use crate::http::body::Condition;

const WITH_DISK: &str =
    "[[nic]]\nportgroup = \"lan\"\n[[nic]]\nportgroup = \"lan\"\n[disk]\npath = \"disk\"\n";

fn server() -> Server {
    let server = Server::with_lan();
    std::fs::write(server.dir.path().join("disk"), "x").unwrap();
    server.create("m", WITH_DISK).is(201);
    server
}

/// One valid change of each kind.
fn five() -> Value {
    json!({
        "nics": { "0": { "lro": false }, "1": { "coalescing": "static:8" } },
        "latency": { "memory_reservation": "64MiB" },
        "resources": { "cpu_shares": "high", "disk_shares": "low" },
        "machine": { "halt": { "spin": "on", "min_spin_us": 50 }, "disk_iops": 80 },
        "vmci": { "present": true, "domains": ["a"] },
    })
}

#[test]
fn several_settings_change_in_one_write() {
    let server = server();
    let before = server.revision();
    let after = server.patch("/v1/vms/m", &five()).is(200);
    assert_eq!((server.revision(), &after["revision"]), (before + 1, &json!(before + 1)));
    let spec = &after["spec"];
    assert_eq!((&spec["nic"][0]["lro"], &spec["nic"][1]["coalescing"]), (&json!(false), &json!("static:8")));
    assert_eq!(spec["memory_reservation"], "64MiB");
    assert_eq!((&spec["cpu"]["shares"], &spec["disk"]["shares"]), (&json!("high"), &json!("low")));
    assert_eq!(spec["halt"], json!({ "spin": true, "min_spin_us": 50 }));
    assert_eq!(spec["disk"]["limits"], json!({ "iops": 80 }));
    assert_eq!(spec["vmci"], json!({ "cid": 3, "domains": ["a"] }));

    let reset = json!({ "machine": { "halt": { "spin": "default" }, "disk_iops": 0 },
        "placement": { "cpus": "any", "vcpus_per_node": 0 } });
    let after = server.patch("/v1/vms/m", &reset).is(200);
    assert_eq!(after["spec"]["halt"], json!({ "min_spin_us": 50 }));
    assert_eq!(after["spec"]["disk"]["limits"], Value::Null);
    assert_eq!(after["spec"]["cpu"]["shares"], "high", "what is absent stays");
}

#[test]
fn settings_of_a_vm_that_has_changed_since_it_was_read_are_not_changed() {
    let server = server();
    let change = |vm: &str, revision: &Value| {
        let request = Request::patch(format!("/v1/vms/{vm}")).header("if-match", format!("\"{revision}\""));
        let body = json!({ "nics": { "0": { "lro": false } } });
        server.ask(request.body(Body::from(body.to_string())).unwrap())
    };
    let read = server.get("/v1/vms/m").is(200)["revision"].clone();
    server.patch("/v1/vms/m", &json!({ "nics": { "0": { "coalescing": "static:8" } } })).is(200);
    change("m", &read).refuses(412, &["VM `m` has revision", &format!("no longer {read}")]);
    let now = server.get("/v1/vms/m").is(200);
    assert_eq!(now["spec"]["nic"][0].get("lro"), None);
    assert_eq!(change("m", &now["revision"]).is(200)["spec"]["nic"][0]["lro"], false);
    change("other", &read).refuses(404, &["other"]);
}

#[test]
fn all_five_settings_of_the_host_test_are_stored() {
    let server = server();
    let patch = json!({
        "nics": { "0": { "coalescing": "static:9" } },
        "latency": { "memory_reservation": "7MiB" },
        "resources": { "cpu_shares": "1007" },
        "machine": { "halt": { "min_spin_us": 8 } },
        "vmci": { "present": true, "connections": 1007 },
    });
    let spec = server.patch("/v1/vms/m", &patch).is(200)["spec"].take();
    assert_eq!(
        (&spec["nic"][0]["coalescing"], &spec["memory_reservation"]),
        (&json!("static:9"), &json!("7MiB"))
    );
    assert_eq!((&spec["cpu"]["shares"], &spec["halt"]["min_spin_us"]), (&json!("1007"), &json!(8)));
    assert_eq!(spec["vmci"]["connections"], 1007);
}

#[test]
fn one_bad_setting_leaves_all_unchanged() {
    let server = server();
    let before = server.get("/v1/vms/m").is(200);
    for (section, bad, status, word) in [
        ("nics", json!({ "0": { "lro": true }, "2": { "lro": true } }), 404, "no card 2"),
        ("nics", json!({ "0": { "coalescing": "static:65" } }), 400, "1 to 64"),
        ("latency", json!({ "latency_sensitivity": "high" }), 400, "--memory-reservation full"),
        ("latency", json!({ "latency_sensitivity": "medium" }), 400, "medium"),
        ("resources", json!({ "cpu_shares": "much" }), 400, "much"),
        ("machine", json!({ "halt": { "min_spin_us": 10_001 } }), 400, "min_spin_us"),
        ("placement", json!({ "cpus": "3-1" }), 400, "3-1"),
        ("vmci", json!({ "present": true, "connections": 65537 }), 400, "connections = 65537"),
        ("vmci", json!({ "connections": 9 }), 409, "taut vm set m --vmci"),
    ] {
        let mut patch = five();
        patch[section] = bad;
        server.patch("/v1/vms/m", &patch).refuses(status, &[word]);
        assert_eq!(server.get("/v1/vms/m").is(200), before, "{section}: {word}");
    }
    let events = server.get("/v1/events").is(200);
    let of_m = events.as_array().unwrap().iter().filter(|event| event["subject"] == "vm/m");
    let written = of_m.filter(|event| event["kind"] == "vm.written").count();
    assert_eq!(written, 1, "only its creation");
}

#[test]
fn a_changed_number_of_vcpus_per_node_is_checked_as_in_a_file() {
    let server = server();
    let per_node = |most: u32| server.patch("/v1/vms/m", &json!({ "placement": { "vcpus_per_node": most } }));
    per_node(300).refuses(400, &["placement.vcpus_per_node = 300 is outside 1 to 256"]);
    let kept = server.get("/v1/vms/m").is(200);
    assert_eq!(kept["spec"].get("placement"), None, "nothing is stored");
    per_node(2).is(200);
}

#[test]
fn settings_of_a_disk_need_a_disk() {
    let server = Server::with_lan();
    server.create("m", MICRO).is(201);
    for patch in [json!({ "resources": { "disk_shares": "low" } }), json!({ "machine": { "disk_iops": 9 } })]
    {
        server.patch("/v1/vms/m", &patch).refuses(400, &["no disk", "[disk]"]);
    }
    server.patch("/v1/vms/nobody", &json!({})).refuses(404, &["nobody"]);
}

#[test]
fn a_card_moves_to_another_port_group_and_its_link_goes_down_and_up() {
    let server = server();
    server.put("/v1/portgroups/dmz", &json!({ "vswitch": "sw", "vlan": 7 })).is(200);
    let patch = json!({ "nics": { "1": { "portgroup": "dmz", "link": "down" } } });
    let after = server.patch("/v1/vms/m", &patch).is(200);
    assert_eq!(
        (&after["spec"]["nic"][1]["portgroup"], &after["spec"]["nic"][1]["link"]),
        (&json!("dmz"), &json!("down"))
    );
    assert_eq!(after["spec"]["nic"][0]["portgroup"], "lan", "the other card stays");
    let card = &after["status"]["nics"][1];
    assert_eq!((&card["portgroup"], &card["link"]), (&json!("dmz"), &json!("down")));
    assert!(card["reason"].as_str().unwrap().contains("taut vm set m --nic 1 --link up"), "{card}");
    assert_eq!(server.get("/v1/portgroups/dmz").is(200)["status"]["ports"], 1);

    let events = server.get("/v1/events").is(200);
    let told = events.as_array().unwrap().last().unwrap()["message"].as_str().unwrap().to_owned();
    assert!(
        told.starts_with("changed: nic[1].link: default → down, nic[1].portgroup: lan → dmz (revision "),
        "{told}"
    );

    let up = server.patch("/v1/vms/m", &json!({ "nics": { "1": { "link": "up" } } })).is(200);
    assert_eq!(up["spec"]["nic"][1].get("link"), None, "up is the default");
    assert_eq!(up["status"]["nics"][1]["reason"], "the VM is off: taut vm start m");
    let nowhere = json!({ "nics": { "1": { "portgroup": "nowhere" } } });
    server.patch("/v1/vms/m", &nowhere).refuses(400, &["nowhere", "dmz, lan"]);
    server.patch("/v1/vms/m", &json!({ "nics": { "1": { "link": "off" } } })).refuses(400, &["off"]);
}

#[test]
fn vcpus_and_memory_of_a_running_vm_change_at_its_next_start() {
    let server = server();
    server.post("/v1/vms/m/power", &json!({ "power": "on" })).is(200);
    let size = Some(MachineSize { vcpus: 1, memory: Bytes::mib(256), queue_pairs: Bytes(0) });
    let machine = MachineSeen { size, ..MachineSeen::default() };
    let runs = Process { machine, ..process(VmKind::Qemu, VmAccelerator::Kvm) };
    let seen = VmSeen { process: Some(runs), ..VmSeen::default() };
    server.app.board.lock().observed.vms.insert("m".parse().unwrap(), seen);
    let decisions = |answer: &Value| answer["status"]["machine"]["decisions"].clone();

    let after = server.patch("/v1/vms/m", &json!({ "machine": { "vcpus": 3, "memory": "512MiB" } })).is(200);
    assert_eq!((&after["spec"]["vcpus"], &after["spec"]["memory"]), (&json!(3), &json!("512MiB")));
    let told = decisions(&after);
    assert_eq!((&told[0]["restart"], &told[1]["restart"]), (&json!(true), &json!(true)), "{told}");
    assert!(
        told[0]["decision"].as_str().unwrap().contains("3 vCPUs from its next start on; it runs with 1 vCPU")
    );
    assert!(told[1]["decision"].as_str().unwrap().contains("512MiB of memory"), "{told}");

    let back = server.patch("/v1/vms/m", &json!({ "machine": { "vcpus": 1, "memory": "256MiB" } })).is(200);
    assert_eq!(decisions(&back), Value::Null, "nothing is pending any more");
    for (bad, words) in [
        (json!({ "vcpus": 0 }), ["vcpus = 0", "1 to 256"]),
        (json!({ "memory": "3MiB" }), ["memory = 3MiB", "64MiB"]),
        (json!({ "memory": "65MiB" }), ["65MiB", "66MiB"]),
    ] {
        server.patch("/v1/vms/m", &json!({ "machine": bad })).refuses(400, &words);
    }
}

#[test]
fn numa_nodes_and_pcpus_that_do_not_exist_are_not_stored() {
    let server = server();
    let cpu = |id| taut_api::host::Cpu { id, package: 0, core: id, node: 0, llc: 0 };
    server.app.board.lock().observed.host.cpus = (0..2).map(cpu).collect();
    let before = server.get("/v1/vms/m").is(200);
    let nodes = json!({ "placement": { "nodes": "3" } });
    server.patch("/v1/vms/m", &nodes).refuses(400, &["NUMA node 3", "some of 0,", "--numa-nodes any"]);
    let cpus = json!({ "placement": { "cpus": "1-7" } });
    server.patch("/v1/vms/m", &cpus).refuses(400, &["pCPUs 2-7", "some of 0-1,", "--cpu-affinity any"]);
    assert_eq!(server.get("/v1/vms/m").is(200), before);
    let text = "kind = \"micro\"\n[placement]\ncpus = \"9\"\n";
    server.create("new", text).refuses(400, &["`new` names pCPU 9", "0-1"]);

    // A document that was stored on a larger host stays changeable.
    server.app.board.lock().observed.host.cpus.clear();
    server.patch("/v1/vms/m", &cpus).is(200);
    server.app.board.lock().observed.host.cpus = (0..2).map(cpu).collect();
    server.patch("/v1/vms/m", &json!({ "resources": { "cpu_shares": "high" } })).is(200);
    server.patch("/v1/vms/m", &json!({ "placement": { "cpus": "any" } })).is(200);
}

#[test]
fn a_vmx_of_a_larger_host_keeps_what_exists_here() {
    let server = Server::with_lan();
    let cpu = |id| taut_api::host::Cpu { id, package: 0, core: id, node: 0, llc: 0 };
    server.app.board.lock().observed.host.cpus = (0..2).map(cpu).collect();
    std::fs::write(server.dir.path().join("disk.vmdk"), "x").unwrap();
    let text = "displayName = \"old\"\nmemSize = \"128\"\nscsi0:0.present = \"TRUE\"\nscsi0:0.fileName = \"disk.vmdk\"\n\
                sched.cpu.affinity = \"1,8\"\nnuma.nodeAffinity = \"1\"\n";
    let base = server.dir.path().to_str().unwrap();
    let request = json!({ "format": "vmx", "text": text, "base_dir": base });
    let created = server.post("/v1/vms", &request).is(201);
    let placement = &created["vm"]["spec"]["placement"];
    assert_eq!((&placement["cpus"], placement.get("nodes")), (&json!("1"), None), "{placement}");
    let note = |key: &str| {
        let keys = created["imported"].as_array().unwrap();
        keys.iter().find(|found| found["key"] == key).unwrap()["fate"]["note"].clone()
    };
    assert_eq!(note("sched.cpu.affinity"), "1: this host has no 8");
    assert_eq!(note("numa.nodeAffinity"), "any: this host has no 1");
}

#[test]
fn a_card_gets_a_shaping_of_its_own_and_gives_it_back() {
    let server = server();
    let group = json!({ "vswitch": "sw",
        "shaping": { "to_guest": { "average": "1Mbit" }, "to_switch": { "average": "2Mbit" } } });
    server.put("/v1/portgroups/lan", &group).is(200);
    let set = |card: Value| server.patch("/v1/vms/m", &json!({ "nics": { "1": card } }));
    let in_force = |answer: &Value| {
        let shaping = &answer["status"]["nics"][1]["shaping"];
        ["to_switch", "to_guest"].map(|direction| {
            let of = &shaping[direction];
            (of["shape"]["average"].clone(), of["origin"].clone())
        })
    };
    let group = [(json!("2Mbit"), json!("portgroup")), (json!("1Mbit"), json!("portgroup"))];
    assert_eq!(in_force(&server.get("/v1/vms/m").is(200)), group);
    let own = set(json!({ "to_guest": { "average": "3Mbit" } })).is(200);
    assert_eq!(in_force(&own), [group[0].clone(), (json!("3Mbit"), json!("own"))]);
    let off = set(json!({ "to_switch": "off" })).is(200);
    assert_eq!(in_force(&off), [(Value::Null, json!("own")), (json!("3Mbit"), json!("own"))]);
    assert_eq!(off["spec"]["nic"][1]["shaping"]["to_switch"], "off");
    assert_eq!(off["spec"]["nic"][0].get("shaping"), None, "the other card has none of its own");
    let status = server.get("/v1/portgroups/lan").is(200)["status"].take();
    assert_eq!(status, json!({ "ports": 2, "own_shaping": ["vm/m/nic1"] }));

    server.post("/v1/vms/m/power", &json!({ "power": "on" })).is(200);
    let ports = server.get("/v1/ports").is(200);
    assert_eq!(ports[1]["shaping"], off["status"]["nics"][1]["shaping"]);
    set(json!({ "to_guest": { "average": "999bit" } })).refuses(400, &["vm/m/nic1", "to_guest", "999bit/s"]);
    set(json!({ "to_guest": "fast" })).refuses(400, &["a table with `average`"]);
    let back = set(json!({ "to_guest": "default", "to_switch": "default" })).is(200);
    assert_eq!(in_force(&back), group);
    assert_eq!(back["spec"]["nic"][1].get("shaping"), None);
}

#[test]
fn a_micro_vm_keeps_room_for_its_buffers_and_one_that_never_had_it_stays_changeable() {
    let server = Server::with_lan();
    let file = "kind = \"micro\"\nmemory = \"22MiB\"\n[[nic]]\nportgroup = \"lan\"\nrings = { rx = 1024, tx = 1024 }\n";
    server.create("m", file).is(201);
    let less = json!({ "machine": { "memory": "20MiB" } });
    server.patch("/v1/vms/m", &less).refuses(400, &["need memory = 22MiB", "20MiB"]);
    server.patch("/v1/vms/m", &json!({ "machine": { "memory": "24MiB" } })).is(200);
    // An earlier version has admitted it.
    let shrink = |_: &Desired, _: &Name, vm: &mut VmDesired| {
        vm.vm.memory = Bytes::mib(16);
        Ok(())
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let written = runtime.block_on(super::super::vms::write_vm(
        &server.app,
        &"m".parse().unwrap(),
        Condition::default(),
        shrink,
    ));
    assert!(written.is_ok());
    server.patch("/v1/vms/m", &less).is(200);
}
