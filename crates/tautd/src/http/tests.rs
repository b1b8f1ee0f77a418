//! Tests of the router with a store of its own. Of the host, only the size of its memory is known.

mod access;
mod addresses;
mod capture;
mod first_hour;
mod kvm;
mod patch;
mod statistics;
mod vmci;

use std::path::Path;
use std::sync::LazyLock;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use taut_api::host::{Accelerator, AcceleratorKind};
use taut_api::machine::VmAccelerator;
use taut_api::role::Role;
use taut_api::statistics::Period;
use taut_api::vm::VmKind;
use taut_plan::facts::{Process, VmSeen};
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::*;
use crate::access::caller::Caller;
use crate::board::HostFacts;

pub(crate) struct Server {
    dir: TempDir,
    pub(crate) app: Arc<App>,
    messages: Receiver<Message>,
}

/// A clock that stands still, so that no test depends on the time that it takes.
fn stopped() -> Instant {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    *BEGIN
}

impl Server {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (inbox, messages) = Inbox::new();
        let board = Arc::<Board>::default();
        board.lock().observed.host.memory_total = taut_api::Bytes::mib(4096);
        let app = Arc::new(App {
            store: Arc::new(Store::open(dir.path()).unwrap()),
            board,
            counters: Arc::new(Counters::open(&dir.path().join("counters")).unwrap()),
            statistics: Arc::new(Statistics::open(dir.path(), [Period::DAY; 3])),
            inbox,
            refusals: RefusalEvents::by(stopped),
            checks: HostChecks::default(),
            roles: Arc::new(Roles::of_users([
                (VIEWER, Role::View),
                (OPERATOR, Role::Operate),
                (DEFINER, Role::Define),
            ])),
            audit: Audit::start(dir.path()).unwrap(),
            forbidden: AtomicU64::new(0),
            remote: RemoteState::default(),
            captures: Captures::default(),
            run_dir: dir.path().to_owned(),
            state_dir: dir.path().to_owned(),
        });
        Self { dir, app, messages }
    }

    pub(crate) fn with_lan() -> Self {
        let server = Self::new();
        server.put("/v1/vswitches/sw", &json!({})).is(200);
        server.put("/v1/portgroups/lan", &json!({ "vswitch": "sw" })).is(200);
        server
    }

    fn ask(&self, request: Request<Body>) -> Answer {
        self.ask_as(0, request)
    }

    /// Sends a request as a user with this number and no groups of interest.
    fn ask_as(&self, uid: u32, mut request: Request<Body>) -> Answer {
        let router = router(self.app.clone());
        request.extensions_mut().insert(connected(uid));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let response = router.oneshot(request).await.unwrap();
            let status = response.status();
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let value = serde_json::from_str(&text).unwrap_or(Value::Null);
            Answer { status, text, value }
        })
    }

    fn send(&self, method: Method, path: &str, body: String) -> Answer {
        self.ask(Request::builder().method(method).uri(path).body(Body::from(body)).unwrap())
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, String::new())
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, body.to_string())
    }

    fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, body.to_string())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body.to_string())
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, String::new())
    }

    pub(crate) fn create(&self, name: &str, text: &str) -> Answer {
        let base = self.dir.path().to_str().unwrap();
        self.post("/v1/vms", &json!({ "name": name, "format": "toml", "text": text, "base_dir": base }))
    }

    pub(crate) fn revision(&self) -> u64 {
        self.app.store.state().revision
    }
}

/// Users with roles.
pub(crate) const VIEWER: u32 = 60_001;
const OPERATOR: u32 = 60_002;
pub(crate) const DEFINER: u32 = 60_003;

/// Returns what the listener says of a connection.
pub(crate) fn connected(uid: u32) -> ConnectInfo<Caller> {
    ConnectInfo(Caller::with_rights(Rights { uid, gid: uid, groups: Vec::new() }))
}

pub(crate) struct Answer {
    status: StatusCode,
    text: String,
    value: Value,
}

impl Answer {
    /// Checks the status of an error, which must have a hint and contain the words.
    pub(crate) fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.value
    }

    fn refuses(self, status: u16, words: &[&str]) {
        assert_eq!(self.status, status, "{}", self.text);
        assert!(self.value["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{}", self.text);
        for word in words {
            assert!(self.text.contains(word), "`{word}` is not in {}", self.text);
        }
    }
}

/// Returns a VM's process.
fn process(kind: VmKind, accelerator: VmAccelerator) -> Process {
    Process { pid: 4711, kind, accelerator, ..Process::default() }
}

pub(crate) const MICRO: &str =
    "kind = \"micro\"\n[[nic]]\nportgroup = \"lan\"\nmac = \"02:00:00:00:00:07\"\n";

#[test]
fn documents_are_written_read_and_deleted() {
    let server = Server::with_lan();
    let group = server.get("/v1/portgroups/lan").is(200);
    assert_eq!(group["spec"]["vswitch"], "sw");
    assert_eq!(group["revision"], 2);
    server.put("/v1/portgroups/lan", &json!({ "vswitch": "sw", "vlan": 9 })).is(200);
    assert_eq!(server.get("/v1/portgroups").is(200)[0]["spec"]["vlan"], 9);
    server.delete("/v1/portgroups/lan").is(204);
    server.delete("/v1/vswitches/sw").is(204);
    assert_eq!(server.get("/v1/vswitches").is(200), json!([]));
    server.get("/v1/portgroups/lan").refuses(404, &["lan"]);
    assert!(server.messages.try_iter().all(|message| matches!(message, Message::Wake)));
}

#[test]
fn broken_requests_are_refused_and_change_nothing() {
    let server = Server::with_lan();
    let before = server.revision();
    server.put("/v1/portgroups/x", &json!({ "vswitch": "sw", "vlna": 3 })).refuses(400, &["vlna"]);
    server
        .put("/v1/portgroups/x", &json!({ "vswitch": "sw", "vlan": 4096 }))
        .refuses(400, &["4096", "10-20,30"]);
    let learning = json!({ "vswitch": "sw", "mac_learning": {} });
    server.put("/v1/portgroups/x", &learning).refuses(400, &["forged transmits"]);
    let limit =
        json!({ "vswitch": "sw", "security": { "forged_transmits": true }, "mac_learning": { "limit": 0 } });
    server.put("/v1/portgroups/x", &limit).refuses(400, &["0 addresses", "1 to 4096"]);
    server.put("/v1/portgroups/x", &json!({ "vswitch": "nowhere" })).refuses(400, &["nowhere"]);
    let slow = json!({ "vswitch": "sw", "shaping": { "to_guest": { "average": "999bit" } } });
    server.put("/v1/portgroups/x", &slow).refuses(400, &["to_guest", "999bit/s"]);
    server.put("/v1/vswitches/..%2Fetc", &json!({})).refuses(400, &["../etc"]);
    server.send(Method::PUT, "/v1/vswitches/x", "{".into()).refuses(400, &["EOF"]);
    server.send(Method::PUT, "/v1/vswitches/x", "[".repeat(5 << 20)).refuses(400, &["body"]);
    server.get("/v1/nothing").refuses(404, &["/v1/nothing"]);
    server.delete("/v1/vms").refuses(405, &["DELETE"]);
    server.get("/v1/events?sinse=3").refuses(400, &["query"]);
    server.post("/v1/shutdown", &json!({ "all": true })).refuses(400, &["all"]);
    server
        .post("/v1/vms", &json!({ "format": "toml", "text": "", "base_dir": "/", "pwoer": "on" }))
        .refuses(400, &["pwoer"]);
    server.put("/v1/netns/n", &json!({ "netns": "../x", "portgroup": "lan" })).refuses(400, &["../x"]);
    server
        .put("/v1/netns/n", &json!({ "netns": "n", "portgroup": "lan", "ifname": "much-too-long-name" }))
        .refuses(400, &["much-too-long-name"]);
    server
        .put("/v1/external-ports/e", &json!({ "socket": "relative", "portgroup": "lan" }))
        .refuses(400, &["relative"]);
    assert_eq!(server.revision(), before);
}

#[test]
fn names_and_addresses_are_unique() {
    let server = Server::with_lan();
    server.create("one", MICRO).is(201);
    server.create("one", MICRO).refuses(409, &["one"]);
    server.create("two", MICRO).refuses(409, &["02:00:00:00:00:07", "vm/one/nic0"]);
    let same = json!({ "netns": "n", "portgroup": "lan", "mac": "02:00:00:00:00:07" });
    server.put("/v1/netns/n", &same).refuses(409, &["vm/one/nic0"]);
    server.create("three", &MICRO.replace("lan", "nowhere")).refuses(400, &["nowhere", "lan"]);
    server.put("/v1/netns/n", &json!({ "netns": "n", "portgroup": "lan" })).is(200);
    server.put("/v1/netns/m", &json!({ "netns": "n", "portgroup": "lan" })).refuses(409, &["taut0", "`n`"]);
    let request =
        Request::put("/v1/vswitches/sw").header("if-none-match", "*").body(Body::from("{}")).unwrap();
    server.ask(request).refuses(409, &["sw"]);
}

#[test]
fn documents_in_use_cannot_be_deleted() {
    let server = Server::with_lan();
    server.create("one", MICRO).is(201);
    let socket = json!({ "socket": "/tmp/x.sock", "portgroup": "lan" });
    server.put("/v1/external-ports/e", &socket).is(200);
    server.delete("/v1/vswitches/sw").refuses(409, &["portgroup/lan"]);
    server.delete("/v1/portgroups/lan").refuses(409, &["vm/one/nic0", "external/e"]);
    assert_eq!(server.get("/v1/portgroups/lan").is(200)["status"]["ports"], 2);
    assert_eq!(server.get("/v1/vswitches/sw").is(200)["status"]["ports"], 2);
    server.delete("/v1/vms/one").is(204);
    server.delete("/v1/external-ports/e").is(204);
    server.delete("/v1/portgroups/lan").is(204);
}

#[test]
fn power_is_stored_and_a_running_vm_cannot_be_deleted() {
    let server = Server::with_lan();
    let created = server.create("one", MICRO).is(201);
    assert_eq!(created["vm"]["status"]["phase"], "stopped");
    let one: Name = "one".parse().unwrap();
    let set = |seen: VmSeen| drop(server.app.board.lock().observed.vms.insert(one.clone(), seen));
    set(VmSeen { failure: Some("it burnt".into()), ..VmSeen::default() });
    let started = server.post("/v1/vms/one/power", &json!({ "power": "on" })).is(200);
    assert_eq!(started["status"]["phase"], "starting", "an earlier failure is forgotten at once");
    assert!(server.messages.try_iter().any(|message| matches!(message, Message::Start)));

    set(VmSeen { failure: Some("it burnt".into()), ..VmSeen::default() });
    let failed = server.get("/v1/vms/one").is(200);
    assert_eq!(
        (&failed["status"]["phase"], &failed["status"]["reason"]),
        (&json!("failed"), &json!("it burnt"))
    );

    let process = process(VmKind::Micro, VmAccelerator::Native);
    set(VmSeen { process: Some(process), ..VmSeen::default() });
    let running = server.get("/v1/vms").is(200)[0].clone();
    assert_eq!(running["status"]["phase"], "starting", "its card is not connected");
    assert_eq!(running["status"]["pid"], 4711);
    server.delete("/v1/vms/one").refuses(409, &["4711"]);
    server.post("/v1/vms/one/power", &json!({ "power": "off", "force": true })).is(200);
    assert!(server.messages.try_iter().any(|message| matches!(message, Message::Kill(_))));
    server.post("/v1/vms/nobody/power", &json!({ "power": "on" })).refuses(404, &["nobody"]);
}

#[test]
fn lro_needs_the_switches_of_card_and_host() {
    let server = Server::with_lan();
    server.create("m", MICRO).is(201);
    let lro = |value: &Value| value["status"]["nics"][0]["lro"].as_bool().unwrap();
    let card = |on: bool| server.patch("/v1/vms/m", &json!({ "nics": { "0": { "lro": on } } }));
    let host = |value: &str| server.patch("/v1/host/settings", &json!({ "Net.Vmxnet3SwLRO": value }));
    assert!(lro(&server.get("/v1/vms/m").is(200)));
    assert!(!lro(&card(false).is(200)));
    assert!(lro(&card(true).is(200)));
    assert_eq!(host("0").is(200)["Net.Vmxnet3SwLRO"], "0");
    assert!(!lro(&server.get("/v1/vms/m").is(200)));
    assert_eq!(host("").is(200)["Net.Vmxnet3SwLRO"], "1");
    host("2").refuses(400, &["`2`"]);
}

#[test]
fn high_sensitivity_needs_reservations_and_turns_moderation_off() {
    let server = Server::with_lan();
    let cpu = |id| taut_api::host::Cpu { id, package: 0, core: id, node: 0, llc: 0 };
    server.app.board.lock().observed.host.cpus = (0..2).map(cpu).collect();
    server.create("m", MICRO).is(201);
    server.post("/v1/vms/m/power", &json!({ "power": "on" })).is(200);
    let set = |vm: &str, change: Value| server.patch(&format!("/v1/vms/{vm}"), &json!({ "latency": change }));
    let moderation = |value: &Value| {
        let card = &value["status"]["nics"][0];
        (card["coalescing"].clone(), card["lro"].clone())
    };
    let all =
        json!({ "latency_sensitivity": "high", "cpu_reservation": "full", "memory_reservation": "full" });
    let before = server.get("/v1/vms/m").is(200);
    set("m", json!({ "latency_sensitivity": "high" }))
        .refuses(400, &["are missing", "--memory-reservation full"]);
    assert_eq!(server.get("/v1/vms/m").is(200), before);
    let high = set("m", all.clone()).is(200);
    assert_eq!(high["status"]["latency"]["cpus"], json!([1]));
    assert_eq!(moderation(&high), (json!("disabled"), json!(false)));
    server.create("n", &MICRO.replace("00:07", "00:08")).is(201);
    set("n", all).is(200);
    server.post("/v1/vms/n/power", &json!({ "power": "on" })).refuses(409, &["over-committed", "reserved 1"]);
    let normal = set("m", json!({ "latency_sensitivity": "normal" })).is(200);
    assert_eq!(moderation(&normal), (json!("rbc:4000"), json!(true)));
    assert_eq!(normal["status"]["latency"], Value::Null);
    set("m", json!({ "latency_sensitivity": "medium" })).refuses(400, &["medium"]);
}

#[test]
fn a_card_overrides_the_hosts_coalescing() {
    let server = Server::with_lan();
    server.create("m", MICRO).is(201);
    let of_card = |value: &Value| value["status"]["nics"][0]["coalescing"].clone();
    assert_eq!(of_card(&server.get("/v1/vms/m").is(200)), "rbc:4000");

    let settings = "/v1/host/settings";
    let both = json!({ "Net.CoalesceScheme": "static", "Net.CoalesceParams": "8" });
    let of_host = |value: Value| {
        ["Net.CoalesceScheme", "Net.CoalesceParams"].map(|key| value[key].as_str().unwrap().to_owned())
    };
    assert_eq!(of_host(server.patch(settings, &both).is(200)), ["static", "8"]);
    assert_eq!(of_host(server.get(settings).is(200)), ["static", "8"]);
    assert_eq!(of_card(&server.get("/v1/vms/m").is(200)), "static:8");

    let card = |index: &str, body: Value| server.patch("/v1/vms/m", &json!({ "nics": { index: body } }));
    assert_eq!(of_card(&card("0", json!({ "coalescing": "adapt" })).is(200)), "adapt");
    assert_eq!(of_card(&card("0", json!({})).is(200)), "adapt");
    assert_eq!(of_card(&card("0", json!({ "coalescing": "default" })).is(200)), "static:8");

    let before = server.revision();
    server.patch(settings, &json!({ "Net.CoalesceScheme": "rbc" })).refuses(400, &["Net.CoalesceParams = 8"]);
    server.patch(settings, &json!({ "Net.Nothing": "1" })).refuses(400, &["Net.Nothing"]);
    card("1", json!({ "coalescing": "adapt" })).refuses(404, &["`m` has 1 network card and no card 1"]);
    card("x", json!({})).refuses(400, &["x"]);
    card("0", json!({ "coalescing": "static:65" })).refuses(400, &["1 to 64"]);
    assert_eq!(server.revision(), before);

    // The store's file has all of it.
    let kept = server.app.store.state();
    let Server { dir, app, .. } = server;
    drop(app);
    assert_eq!(Store::open(dir.path()).unwrap().state(), kept);
}

#[test]
fn events_are_listed_and_awaited() {
    let server = Server::with_lan();
    let events = server.get("/v1/events?limit=1").is(200);
    assert_eq!(events[0]["subject"], "vswitch/sw");
    assert_eq!(server.get("/v1/events?since=1").is(200).as_array().unwrap().len(), 1);
    let store = server.app.store.clone();
    let late = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        store.event(Level::Info, "vm/late", "vm.test", "late");
    });
    assert_eq!(server.get("/v1/events?since=2&wait=60").is(200)[0]["subject"], "vm/late");
    late.join().unwrap();
}

#[test]
fn ports_daemon_and_metrics_answer() {
    let server = Server::with_lan();
    server.create("one", MICRO).is(201);
    assert_eq!(server.get("/v1/ports").is(200), json!([]), "the VM is off");
    server.post("/v1/vms/one/power", &json!({ "power": "on" })).is(200);
    let ports = server.get("/v1/ports").is(200);
    assert_eq!((&ports[0]["owner"], &ports[0]["port"]), (&json!("vm/one/nic0"), &json!(0)));
    let daemon = server.get("/v1/daemon").is(200);
    assert_eq!(daemon["revision"], 4);
    let metrics = server.get("/metrics");
    assert_eq!(metrics.status, 200);
    assert!(metrics.text.contains("taut_vms{phase=\"starting\"} 1"), "{}", metrics.text);
}

#[test]
fn openapi_json_matches_the_code() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let kept = std::fs::read_to_string(kept).unwrap();
    let real = openapi_document().to_pretty_json().unwrap();
    assert!(kept.trim_end() == real, "run: tautd --print-openapi > docs/openapi.json");
}

#[test]
fn a_card_has_settings_of_its_kind_only() {
    let server = Server::new();
    // Any interface can be looked at.
    let loopback = server.get("/v1/pnics/lo").is(200);
    assert_eq!((&loopback["revision"], &loopback["spec"]), (&json!(0), &json!({})));
    assert_eq!(loopback["status"]["in_force"], true);
    server.get("/v1/pnics/absent0").refuses(404, &["this host has no network interface `absent0`"]);
    server.put("/v1/pnics/absent0", &json!({})).refuses(400, &["no network interface `absent0`"]);
    server.put("/v1/pnics/lo", &json!({})).refuses(400, &["`lo` is no Ethernet interface"]);
    for wrong in
        [json!({ "speed": 1 }), json!({ "rings": { "rx": -1 } }), json!({ "offloads": { "ufo": true } })]
    {
        server.put("/v1/pnics/lo", &wrong).refuses(400, &["does not match this path"]);
    }
    server.delete("/v1/pnics/lo").refuses(404, &["there is no pNIC document `lo`"]);
}

#[test]
fn every_path_is_described() {
    let server = Server::new();
    let described = server.get("/openapi.json").is(200);
    let mut operations = std::collections::BTreeSet::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().values() {
            assert!(
                operations.insert(method["operationId"].to_string()),
                "{path}: {}",
                method["operationId"]
            );
        }
        let real = path.replace("{name}", "x").replace("{port}", "0");
        let answer = server.send(Method::OPTIONS, &real, String::new());
        assert_eq!(answer.status, 405, "{path} is described and not there");
    }
    assert_eq!(described["paths"].as_object().unwrap().len(), 40);
}

#[test]
fn the_host_is_compared_with_best_practices() {
    let server = Server::with_lan();
    let accelerator = Accelerator { kind: AcceleratorKind::Tcg, why: "a test".to_owned() };
    server.app.board.lock().host = Some(HostFacts { accelerator, qemu: None });
    let report = server.get("/v1/host/check?profile=dense").is(200);
    assert_eq!(report["profile"], "dense");
    let lines = report["lines"].as_array().unwrap();
    let found = |id: &str| lines.iter().find(|line| line["id"] == id).map(|line| line["found"].clone());
    assert!(found("commit.vcpus").unwrap().as_str().unwrap().starts_with("0 vCPUs of 0 VMs"), "{report}");
    assert!(found("kernel.version").is_some() && lines.len() > 40, "{report}");
    let summary = report["summary"].as_object().unwrap().values().map(|count| count.as_u64().unwrap());
    assert_eq!(summary.sum::<u64>(), lines.len() as u64);
    assert_eq!(server.get("/v1/host/check?profile=dense").is(200), report, "it is good for some seconds");
    assert_eq!(server.get("/v1/host/check").is(200)["profile"], "latency");
    server.get("/v1/host/check?profile=fast").refuses(400, &["profile=latency, throughput or dense"]);
}
