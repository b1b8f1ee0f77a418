//! Roles and the audit record. The tests walk the table that makes the router.

use taut_tests::{Prerequisite, require};

use super::table::{Route, routes};
use super::*;

/// A path of this route.
fn path(route: &Route) -> String {
    let path = route.path.replace("{name}", "one").replace("{port}", "0");
    // A series needs its subject.
    if path == "/v1/statistics/series" { path + "?subject=host&name=host" } else { path }
}

fn request(route: &Route) -> Request<Body> {
    Request::builder().method(route.method.clone()).uri(path(route)).body(Body::empty()).unwrap()
}

fn writes() -> impl Iterator<Item = Route> {
    routes().into_iter().filter(|route| route.method != Method::GET)
}

#[test]
fn each_route_refuses_whoever_lacks_its_role() {
    let server = Server::with_lan();
    server.create("one", MICRO).is(201);
    let before = server.app.store.state();
    for (uid, has) in [
        (4711, None),
        (VIEWER, Some(Role::View)),
        (OPERATOR, Some(Role::Operate)),
        (DEFINER, Some(Role::Define)),
    ] {
        for route in routes().iter().filter(|route| has < Some(route.role)) {
            let answer = server.ask_as(uid, request(route));
            let needs = format!("needs the role `{}`", route.role);
            answer.refuses(403, &[needs.as_str(), "/etc/taut/roles.toml"]);
        }
    }
    assert_eq!(server.app.store.state(), before, "nothing has changed");
    assert!(server.messages.try_iter().all(|message| matches!(message, Message::Wake)));
}

#[test]
fn a_viewer_may_write_nothing_and_read_all_but_the_audit_record() {
    assert!(writes().count() >= 14 && writes().all(|route| route.role > Role::View));
    let server = Server::with_lan();
    server.create("one", MICRO).is(201);
    for route in writes() {
        server.ask_as(VIEWER, request(&route)).refuses(403, &["`view`"]);
    }
    // These wait for the probe of KVM, or for a monitor.
    let slow = ["/v1/host", "/v1/host/check", "/v1/vms/one/kvm"];
    for route in routes().iter().filter(|route| route.role == Role::View) {
        if !slow.contains(&path(route).as_str()) {
            let status = server.ask_as(VIEWER, request(route)).status;
            assert!(status == 200 || status == 404, "{}: {status}", route.path);
        }
    }
    server.ask_as(VIEWER, Request::get("/v1/audit").body(Body::empty()).unwrap()).refuses(403, &["admin"]);
}

#[test]
fn roles_allow_what_they_say() {
    let server = Server::with_lan();
    let put = |uid, path: &str, body: Value| {
        server.ask_as(uid, Request::put(path).body(Body::from(body.to_string())).unwrap())
    };
    let post = |uid, path: &str, body: Value| {
        server.ask_as(uid, Request::post(path).body(Body::from(body.to_string())).unwrap())
    };
    put(DEFINER, "/v1/portgroups/dmz", json!({ "vswitch": "sw" })).is(200);
    put(DEFINER, "/v1/netns/n", json!({ "netns": "n", "portgroup": "lan" })).refuses(403, &["admin"]);
    let text = json!({ "name": "one", "format": "toml", "text": MICRO, "base_dir": "/" });
    post(OPERATOR, "/v1/vms", text).refuses(403, &["`define`", "`operate`"]);
    server.create("one", MICRO).is(201);
    let started = post(OPERATOR, "/v1/vms/one/power", json!({ "power": "on" })).is(200);
    assert_eq!(started["status"]["owner"], 0);
    let daemon = server.ask_as(OPERATOR, Request::get("/v1/daemon").body(Body::empty()).unwrap()).is(200);
    assert_eq!(daemon["caller"], json!({ "uid": OPERATOR, "role": "operate" }));
    let metrics = server.get("/metrics").text;
    assert!(metrics.contains("\ntaut_api_forbidden_total 2\n"), "{metrics}");
}

#[test]
fn a_request_without_a_caller_is_not_served() {
    let server = Server::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for route in routes() {
        let answer = runtime.block_on(router(server.app.clone()).oneshot(request(&route))).unwrap();
        assert_eq!(answer.status(), 500, "{}", route.path);
    }
}

#[test]
fn the_socket_refuses_browsers_before_it_looks_for_the_caller() {
    let server = Server::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ask = |host: &str, origin: Option<&str>| {
        let mut request = Request::get("/v1/vms").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let router = socket_router(server.app.clone());
        runtime.block_on(router.oneshot(request.body(Body::empty()).unwrap())).unwrap().status()
    };
    assert_eq!(ask("localhost:8080", Some("http://localhost:8080")), 403);
    assert_eq!(ask("evil.example", None), 403);
    // The request goes on, and has no caller in this test.
    assert_eq!(ask("tautd", None), 500);
}

#[test]
fn a_vm_belongs_to_its_creator_who_needs_rights_for_its_files() {
    if !require(Prerequisite::Root) {
        return;
    }
    let server = Server::with_lan();
    let disk = server.dir.path().join("disk");
    std::fs::write(&disk, "x").unwrap();
    let create = |name: &str, text: &str| {
        let body = json!({ "name": name, "format": "toml", "text": text, "base_dir": server.dir.path() });
        server.ask_as(DEFINER, Request::post("/v1/vms").body(Body::from(body.to_string())).unwrap())
    };
    let text = "[disk]\npath = \"disk\"\n";
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    open(server.dir.path(), 0o700);
    create("one", text).refuses(400, &["disk", "Permission denied", "rights of user 60003"]);
    open(server.dir.path(), 0o755);
    open(&disk, 0o644);
    create("one", text).refuses(403, &["user 60003 may not read and write the disk", "snapshot = true"]);
    assert!(server.app.store.state().desired.vms.is_empty());
    create("one", "[disk]\npath = \"disk\"\nsnapshot = true\n").is(201);
    let one = server.get("/v1/vms/one").is(200);
    assert_eq!(one["status"]["owner"], DEFINER);
    create("two", "kind = \"micro\"\n").is(201);
    let device = "[disk]\npath = \"disk\"\nsnapshot = true\n[[passthrough]]\naddress = \"0000:3b:00.1\"\n";
    create("three", &format!("memory_reservation = \"full\"\n{device}"))
        .refuses(403, &["a device that is passed through needs the role `admin`"]);
    let refused = server.get("/v1/events").is(200);
    let kinds = refused.as_array().unwrap().iter().filter(|event| event["kind"] == "vm.refused");
    assert_eq!(kinds.count(), 3, "they are events");
}

#[test]
fn every_change_is_in_the_audit_record_with_its_outcome_and_its_digests() {
    let server = Server::with_lan();
    let tagged = json!({ "vswitch": "sw", "vlan": 9 });
    let request = Request::put("/v1/portgroups/lan").body(Body::from(tagged.to_string())).unwrap();
    server.ask_as(DEFINER, request).is(200);
    server.put("/v1/portgroups/x", &json!({ "vswitch": "nowhere" })).refuses(400, &["nowhere"]);
    server.delete("/v1/portgroups/lan").is(204);
    let entries = server.get("/v1/audit").is(200);
    let told = |index: usize| {
        let entry = &entries[index];
        let words = ["method", "path"].map(|key| entry[key].as_str().unwrap().to_owned());
        (entry["caller"]["uid"].clone(), words, entry["outcome"]["status"].clone())
    };
    let of = |method: &str, path: &str| [method.to_owned(), path.to_owned()];
    assert_eq!(told(0), (json!(0), of("PUT", "/v1/vswitches/sw"), json!(200)));
    assert_eq!(told(2), (json!(DEFINER), of("PUT", "/v1/portgroups/lan"), json!(200)));
    assert_eq!(told(3), (json!(0), of("PUT", "/v1/portgroups/x"), json!(400)));
    assert_eq!(told(4), (json!(0), of("DELETE", "/v1/portgroups/lan"), json!(204)));
    assert_eq!(entries.as_array().unwrap().len(), 5);
    assert_eq!(entries[2]["caller"]["role"], "define");
    let document = |index: usize| entries[index]["outcome"]["document"].clone();
    assert_eq!((&document(1)["before"], &document(1)["revision"]), (&Value::Null, &json!(2)));
    assert_eq!(document(1)["after"], document(2)["before"]);
    assert_eq!(document(2)["after"], document(4)["before"]);
    assert_eq!((&document(4)["after"], &document(4)["subject"]), (&Value::Null, &json!("portgroup/lan")));
    assert_eq!(document(3), Value::Null, "nothing was written");
    assert!(entries[3]["outcome"]["error"].as_str().unwrap().contains("nowhere"));
    let of_user = server.get(&format!("/v1/audit?uid={DEFINER}")).is(200);
    assert_eq!(of_user.as_array().unwrap().len(), 1);
    assert_eq!(server.get("/v1/audit?lines=2").is(200)[1], entries[4]);
    let check = server.get("/v1/audit/check").is(200);
    assert_eq!((&check["records"], &check["fault"]), (&json!(10), &Value::Null));
    server.get("/v1/audit?line=2").refuses(400, &["lines=NUMBER"]);
}

#[test]
fn requests_that_are_refused_for_want_of_a_role_have_a_record_of_their_own() {
    let server = Server::with_lan();
    for route in writes() {
        server.ask_as(VIEWER, request(&route)).refuses(403, &[]);
    }
    let refused = server.get("/v1/audit?refused=true").is(200);
    let refused = refused.as_array().unwrap();
    assert_eq!(refused.len(), writes().count());
    for (entry, route) in refused.iter().zip(writes()) {
        assert_eq!((&entry["path"], &entry["caller"]["uid"]), (&json!(path(&route)), &json!(VIEWER)));
        assert_eq!(entry["outcome"]["status"], 403);
    }
    assert_eq!(server.get("/v1/audit").is(200).as_array().unwrap().len(), 2, "the network alone");
    let events = server.get("/v1/events").is(200);
    assert!(events.as_array().unwrap().iter().all(|event| event["level"] == "info"), "{events}");
}
