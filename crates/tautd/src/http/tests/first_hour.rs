//! Requests that are refused with a hint that can be followed.

use super::*;

#[test]
fn a_document_that_exists_is_not_replaced_by_a_creation() {
    let server = Server::with_lan();
    let tagged = json!({ "vswitch": "sw", "vlan": 10 });
    server.put("/v1/portgroups/web", &tagged).is(200);
    let create = |path: &str, body: &Value| {
        let request = Request::put(path).header("if-none-match", "*").body(Body::from(body.to_string()));
        server.ask(request.unwrap())
    };
    let web = json!({ "vswitch": "sw" });
    create("/v1/portgroups/web", &web).refuses(409, &["port group `web` exists", "taut portgroup set web"]);
    create("/v1/vswitches/sw", &json!({})).refuses(409, &["vSwitch `sw` exists", "taut vswitch set sw"]);
    assert_eq!(server.get("/v1/portgroups/web").is(200)["spec"]["vlan"], tagged["vlan"]);
    server.create("one", MICRO).is(201);
    server.create("one", MICRO).refuses(409, &["VM `one` exists", "taut vm set one"]);
}

/// Returns subject and message of each event of a refused change.
fn refused(server: &Server) -> Vec<(String, String)> {
    let events = server.get("/v1/events").is(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = events.as_array().unwrap().iter().filter(|event| text(&event["kind"]).ends_with(".refused"));
    of.map(|event| (text(&event["subject"]), text(&event["message"]))).collect()
}

#[test]
fn refused_changes_are_events() {
    let server = Server::with_lan();
    server.create("one", MICRO).is(201);
    server.create("two", "kind = \"micro\"\nvcpu = 2\n").refuses(400, &["vcpu"]);
    let create =
        |text: &str| server.post("/v1/vms", &json!({ "format": "toml", "text": text, "base_dir": "/" }));
    create("kind = \"nano\"\n").refuses(400, &["nano"]);
    create("name = \"one\"\nkind = \"micro\"\n").refuses(409, &["`one` exists"]);
    create("kind = \"micro\"\n").refuses(400, &["no name"]);
    let high = json!({ "latency": { "latency_sensitivity": "high" } });
    server.patch("/v1/vms/one", &high).refuses(400, &["full memory reservation"]);
    server.put("/v1/portgroups/x", &json!({ "vswitch": "nowhere" })).refuses(400, &["nowhere"]);
    server.delete("/v1/vswitches/sw").refuses(409, &["portgroup/lan"]);
    server.patch("/v1/host/settings", &json!({ "Net.Nothing": "1" })).refuses(400, &["Net.Nothing"]);
    // Neither a question nor a resource that does not exist is a refused change.
    server.get("/v1/events?sinse=3").refuses(400, &["query"]);
    server.delete("/v1/vms/nobody").refuses(404, &["nobody"]);
    let told = refused(&server);
    let subjects: Vec<_> = told.iter().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(
        subjects,
        ["vm/two", "vm", "vm/one", "vm", "vm/one", "portgroup/x", "vswitch/sw", "host/settings"],
        "{told:?}"
    );
    assert!(told[0].1.contains("line 2: unknown field `vcpu`"), "{told:?}");
    assert!(told[4].1.contains("requires a full memory reservation"), "{told:?}");
}

#[test]
fn a_thousand_refusals_leave_other_events_in_the_log() {
    let server = Server::with_lan();
    let first = server.get("/v1/events").is(200);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refuse = |name: &str| {
        let body = Body::from(json!({ "vswitch": "nowhere" }).to_string());
        let mut request = Request::put(format!("/v1/portgroups/{name}")).body(body).unwrap();
        request.extensions_mut().insert(connected(0));
        let answer = runtime.block_on(router(server.app.clone()).oneshot(request)).unwrap();
        assert_eq!(answer.status(), 400);
    };
    (0..1000).for_each(|_| refuse("same"));
    assert_eq!(refused(&server).len(), 1, "the same refusal is one event");
    (0..1000).for_each(|n| refuse(&format!("other{n}")));
    assert_eq!(refused(&server).len(), 30, "so many are listed in a minute");
    let events = server.get("/v1/events").is(200);
    assert_eq!(events.as_array().unwrap()[..2], first.as_array().unwrap()[..]);
}

#[test]
fn a_document_that_has_changed_since_it_was_read_is_not_replaced() {
    let server = Server::with_lan();
    let replace = |revision: &str, body: &Value| {
        let request = Request::put("/v1/portgroups/lan").header("if-match", revision);
        server.ask(request.body(Body::from(body.to_string())).unwrap())
    };
    let read = server.get("/v1/portgroups/lan").is(200)["revision"].as_u64().unwrap();
    let ours = json!({ "vswitch": "sw", "vlan": 7 });
    server.put("/v1/portgroups/lan", &json!({ "vswitch": "sw", "vlan": 10 })).is(200);
    let stale = format!("\"{read}\"");
    replace(&stale, &ours).refuses(412, &["port group `lan` has revision", &format!("no longer {read}")]);
    assert_eq!(server.get("/v1/portgroups/lan").is(200)["spec"]["vlan"], 10);
    assert!(refused(&server).is_empty(), "the client repeats its change");
    let read = server.get("/v1/portgroups/lan").is(200)["revision"].clone();
    assert_eq!(replace(&format!("\"{read}\""), &ours).is(200)["spec"]["vlan"], 7);
    replace("\"new\"", &ours).refuses(400, &["is neither a revision nor `*`"]);
    replace("*", &ours).is(200);
    server.delete("/v1/portgroups/lan").is(204);
    for there in ["*", &stale] {
        replace(there, &ours).refuses(412, &["port group `lan` does not exist, or no longer"]);
    }
}

#[test]
fn the_start_of_a_running_vm_changes_nothing() {
    let server = Server::with_lan();
    server.create("one", MICRO).is(201);
    let power = |power: &str| server.post("/v1/vms/one/power", &json!({ "power": power })).is(200);
    let created = server.revision();
    power("off");
    assert_eq!(server.revision(), created, "it is off");
    power("on");
    assert_eq!(server.revision(), created + 1);
    let runs = |stopping| {
        let process = Process { stopping, ..process(VmKind::Micro, VmAccelerator::Native) };
        let seen = VmSeen { process: Some(process), ..VmSeen::default() };
        server.app.board.lock().observed.vms.insert("one".parse().unwrap(), seen);
    };
    runs(false);
    let answer = power("on");
    assert_eq!((server.revision(), &answer["status"]["pid"]), (created + 1, &json!(4711)));
    runs(true);
    power("on");
    assert_eq!(server.revision(), created + 2, "it is about to end, and has to be started again");
}

#[test]
fn a_vm_runs_when_its_process_has_finished_starting() {
    let server = Server::new();
    std::fs::write(server.dir.path().join("disk"), "x").unwrap();
    server.create("q", "[disk]\npath = \"disk\"\n").is(201);
    server.post("/v1/vms/q/power", &json!({ "power": "on" })).is(200);
    let status = |ready| {
        let process = Process { ready, ..process(VmKind::Qemu, VmAccelerator::Tcg) };
        let seen = VmSeen { process: Some(process), ..VmSeen::default() };
        server.app.board.lock().observed.vms.insert("q".parse().unwrap(), seen);
        server.get("/v1/vms/q").is(200)["status"].take()
    };
    let starting = status(false);
    assert_eq!(starting["phase"], "starting");
    assert_eq!(starting["reason"], "QEMU is allocating memory, opening disks and making devices");
    assert_eq!(status(true)["phase"], "running");
}

#[test]
fn the_newest_events_of_a_level_are_listed() {
    let server = Server::with_lan();
    for n in 0..3 {
        server
            .put(&format!("/v1/portgroups/g{n}"), &json!({ "vswitch": "nowhere" }))
            .refuses(400, &["nowhere"]);
        server.put(&format!("/v1/vswitches/s{n}"), &json!({})).is(200);
    }
    let subjects = |query: &str| {
        let events = server.get(&format!("/v1/events?{query}")).is(200);
        let subject = |event: &Value| event["subject"].as_str().unwrap().to_owned();
        events.as_array().unwrap().iter().map(subject).collect::<Vec<_>>()
    };
    assert_eq!(subjects("newest=2"), ["portgroup/g2", "vswitch/s2"], "from the oldest on");
    assert_eq!(subjects("newest=2&level=warning"), ["portgroup/g1", "portgroup/g2"]);
    assert_eq!(subjects("limit=2&level=warning"), ["portgroup/g0", "portgroup/g1"]);
    assert_eq!(subjects("level=error"), Vec::<String>::new());
    assert_eq!(subjects("newest=0"), Vec::<String>::new());
    assert_eq!(subjects("newest=4294967295").len(), subjects("").len());
    let newest = server.get("/v1/events?newest=1").is(200)[0]["seq"].as_u64().unwrap();
    assert_eq!(subjects(&format!("since={newest}&newest=5&wait=1&level=warning")), Vec::<String>::new());
    server.get("/v1/events?newest=1&limit=1").refuses(400, &["give one of them"]);
    server.get("/v1/events?level=worse").refuses(400, &["level=info, warning or error"]);
    server.get("/v1/events?newest=-1").refuses(400, &["newest=NUMBER"]);
}
