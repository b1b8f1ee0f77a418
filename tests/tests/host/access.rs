//! Other users than root: what is closed to them, what their role allows, and what the audit record
//! says of it.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::{Gid, Pid, Signal, Uid, kill_process};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use serde_json::{Value, json};
use taut_tests::{Taut, directory, eventually};
use tempfile::TempDir;

const NOBODY: u32 = 65_534;
/// Group that may connect.
const GROUP: u32 = 61_000;
const VIEWER: u32 = 61_001;
const DEFINER: u32 = 61_003;

/// Number of changes, unless `TAUT_AUDIT_CHANGES` says otherwise.
const CHANGES: usize = 500;

/// A daemon with a roles file. Its directory is open, so that only taut's own modes protect.
struct Host {
    taut: Taut,
    roles: TempDir,
}

impl Host {
    fn start() -> Self {
        let roles = directory();
        let file = roles.path().join("roles.toml");
        write_roles(&file, &format!("view = [{VIEWER}]\ndefine = [{DEFINER}]\n"));
        // The fixture keeps its arguments for restarts.
        let file: &'static str = String::leak(file.to_str().unwrap().to_owned());
        let taut = Taut::start_with(Vec::leak(vec!["--roles", file])).with_lan();
        fs::set_permissions(taut.dir(), Permissions::from_mode(0o755)).unwrap();
        Self { taut, roles }
    }

    fn connect(&self, uid: u32, gid: u32) -> io::Result<Client> {
        let socket = self.taut.dir().join("run/tautd.sock");
        as_user(uid, gid, move || UnixStream::connect(socket)).map(Client)
    }

    fn member(&self, uid: u32) -> Client {
        self.connect(uid, GROUP).unwrap()
    }

    /// Replaces the roles and has the daemon read them.
    fn change_roles(&self, roles: &str) {
        write_roles(&self.roles.path().join("roles.toml"), roles);
        kill_process(Pid::from_raw(self.taut.daemon_pid()).unwrap(), Signal::HUP).unwrap();
    }

    fn has_event(&self, kind: &str) -> Option<()> {
        let events = self.taut.json(["events"]);
        events.as_array().unwrap().iter().any(|event| event["kind"] == kind).then_some(())
    }
}

fn write_roles(file: &Path, roles: &str) {
    fs::write(file, format!("group = {GROUP}\n[roles]\n{roles}")).unwrap();
    fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
}

/// Does something as another user, on a thread that ends with it.
pub(super) fn as_user<T: Send + 'static>(uid: u32, gid: u32, task: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
        task()
    });
    thread.join().unwrap()
}

/// A connection to the API.
struct Client(UnixStream);

impl Client {
    fn send(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: taut\r\ncontent-length: {length}\r\n\r\n{body}");
        (&self.0).write_all(request.as_bytes()).unwrap();
        let mut answer = BufReader::new(&self.0);
        let mut line = String::new();
        answer.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {line:?}")).parse().unwrap();
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            assert!(answer.read_line(&mut line).unwrap() > 0, "the connection was closed");
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body).unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }
}

#[test]
fn nobody_can_lock_read_or_connect() {
    let host = Host::start();
    let dir = host.taut.dir().to_owned();
    let denied = |path: &str| {
        let path = dir.join(path);
        assert!(path.exists(), "{}", path.display());
        let name = path.clone();
        let opened = as_user(NOBODY, NOBODY, move || File::open(name).map(drop));
        let error = opened.expect_err("it is for root alone");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{}", path.display());
    };
    // A file that can be opened can be locked.
    denied("run/tautd.lock");
    denied("state/taut.db");
    denied("state/audit.log");
    let error = host.connect(NOBODY, NOBODY).map(drop).expect_err("the socket is for a group");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    // A member of the group may connect, and do nothing without a role.
    let (status, answer) = host.member(NOBODY).send("GET", "/v1/vms", "");
    assert_eq!((status, &answer["kind"]), (403, &json!("forbidden")), "{answer}");
}

#[test]
fn every_write_of_a_viewer_is_refused_and_recorded() {
    let host = Host::start();
    let viewer = host.member(VIEWER);
    let (status, described) = viewer.send("GET", "/openapi.json", "");
    assert_eq!(status, 200);
    let before = host.taut.json(["daemon", "show"])["revision"].clone();
    let mut writes = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "get") {
            writes.push((method.to_uppercase(), path.replace("{name}", "lan")));
        }
    }
    assert!(writes.len() >= 14, "{writes:?}");
    let mut others = Vec::new();
    for (method, path) in &writes {
        let (status, answer) = viewer.send(method, path, "{}");
        let message = answer["message"].as_str().unwrap_or_default();
        if status != 403 || !message.contains("has the role `view`") {
            others.push(format!("{method} {path}: {status}, {answer}"));
        }
    }
    println!("routes that write: {} tried, {} refused", writes.len(), writes.len() - others.len());
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(host.taut.json(["daemon", "show"])["revision"], before);
    let recorded = host.taut.json(["audit", "--refused", "--lines", "100"]);
    let recorded: Vec<_> = recorded.as_array().unwrap().iter().collect();
    assert_eq!(recorded.len(), writes.len());
    for (entry, (method, path)) in recorded.iter().zip(&writes) {
        assert_eq!((&entry["method"], &entry["path"]), (&json!(method), &json!(path)));
        assert_eq!((&entry["caller"]["uid"], &entry["outcome"]["status"]), (&json!(VIEWER), &json!(403)));
    }
    assert!(host.taut.ok(["audit", "--refused", "--verify"]).contains("hash"));
}

#[test]
fn every_change_is_recorded_with_its_caller() {
    let wanted = std::env::var("TAUT_AUDIT_CHANGES").ok().and_then(|text| text.parse().ok());
    let changes: usize = wanted.unwrap_or(CHANGES);
    let mut host = Host::start();
    let began = std::time::Instant::now();
    let clients: Vec<_> = (0..4).map(|_| host.member(DEFINER)).collect();
    let clients = &clients;
    std::thread::scope(|scope| {
        for (first, client) in clients.iter().enumerate() {
            scope.spawn(move || {
                for number in (first..changes).step_by(clients.len()) {
                    let path = format!("/v1/portgroups/p{}", number % 50);
                    let body = json!({ "vswitch": "sw", "vlan": number % 4000 }).to_string();
                    let (status, answer) = client.send("PUT", &path, &body);
                    assert_eq!(status, 200, "{answer}");
                }
            });
        }
    });
    let took = began.elapsed();
    let uid = DEFINER.to_string();
    let query = ["audit", "--lines", "10000", "--uid", &uid];
    let recorded = host.taut.json(query);
    let recorded = recorded.as_array().unwrap();
    let pid = std::process::id();
    let mut revisions = std::collections::BTreeSet::new();
    let mut others = Vec::new();
    for entry in recorded {
        let (caller, outcome) = (&entry["caller"], &entry["outcome"]);
        let is_of_caller = caller["uid"] == DEFINER && caller["pid"] == pid && caller["role"] == "define";
        let document = &outcome["document"];
        let is_complete =
            outcome["status"] == 200 && document["after"].as_str().is_some_and(|it| it.len() == 64);
        let is_new = document["revision"].as_u64().is_some_and(|revision| revisions.insert(revision));
        if !is_of_caller || !is_complete || !is_new {
            others.push(entry);
        }
    }
    println!(
        "audit: {changes} changes in {took:?}; recorded: {} with their caller",
        recorded.len() - others.len()
    );
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(recorded.len(), changes.min(10_000));
    assert!(host.taut.ok(["audit", "--verify"]).contains("hash"));
    // A killed daemon loses nothing of it.
    host.taut.kill_daemon();
    host.taut.restart_daemon();
    assert_eq!(host.taut.json(query).as_array().unwrap(), recorded);
    let tampered = host.taut.dir().join("state/audit.log");
    let text = fs::read_to_string(&tampered).unwrap();
    fs::write(&tampered, text.replacen("/v1/portgroups/p3\"", "/v1/portgroups/p4\"", 1)).unwrap();
    assert!(host.taut.refused(["audit", "--verify"]).contains("does not follow"));
}

#[test]
fn roles_are_read_again_at_sighup() {
    let host = Host::start();
    let client = host.member(VIEWER);
    let put = || client.send("PUT", "/v1/vswitches/new", "{}").0;
    assert_eq!(put(), 403);
    host.change_roles(&format!("define = [{VIEWER}]\n"));
    eventually("the new roles are in force", || (put() == 200).then_some(()));
    eventually("an event says so", || host.has_event("roles.read"));
    host.change_roles("define = [\"no-such-user-here\"]\n");
    eventually("the wrong file is named", || host.has_event("roles.refused"));
    assert_eq!(put(), 200, "the roles stay as they were");
    host.change_roles("");
    eventually("the role is taken away", || (put() == 403).then_some(()));
}

#[test]
fn a_vm_opens_only_what_its_owner_may_open() {
    let host = Host::start();
    let client = host.member(DEFINER);
    let disk = host.taut.dir().join("disk.img");
    File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let mode = |mode| fs::set_permissions(&disk, Permissions::from_mode(mode)).unwrap();
    mode(0o600);
    let text = "[disk]\npath = \"disk.img\"\n";
    let body = json!({ "name": "m", "format": "toml", "text": text, "base_dir": host.taut.dir() });
    let create = || client.send("POST", "/v1/vms", &body.to_string());
    let (status, answer) = create();
    assert_eq!(status, 400, "{answer}");
    assert!(answer.to_string().contains(&format!("rights of user {DEFINER}")), "{answer}");
    mode(0o644);
    let (status, answer) = create();
    assert_eq!(status, 403, "{answer}");
    mode(0o666);
    let (status, answer) = create();
    assert_eq!((status, &answer["vm"]["status"]["owner"]), (201, &json!(DEFINER)), "{answer}");
    assert!(host.taut.ok(["vm", "show", "m"]).contains(&format!("user {DEFINER}")));
    mode(0o600);
    let _ = host.taut.run(["vm", "start", "m"]);
    let reason = eventually("the start fails", || {
        host.taut.json(["vm", "show", "m"])["status"]["reason"]
            .as_str()
            .filter(|reason| reason.contains("rights"))
            .map(str::to_owned)
    });
    assert!(reason.contains(&format!("user {DEFINER} may not read and write the disk")), "{reason}");
}

#[test]
fn a_user_with_many_connections_leaves_room_for_others() {
    let host = Host::start();
    let held: Vec<_> = (0..200).map_while(|_| host.connect(VIEWER, GROUP).ok()).collect();
    assert!(held.len() >= 64, "{}", held.len());
    // The daemon closes those beyond the limit.
    let (status, _) = host.member(DEFINER).send("GET", "/v1/vswitches", "");
    assert_eq!(status, 200);
    assert!(host.taut.run(["daemon", "show"]).success);
    drop(held);
    eventually("there is room again", || {
        let client = host.connect(VIEWER, GROUP).ok()?;
        (&client.0).write_all(b"GET /v1/vswitches HTTP/1.1\r\nhost: taut\r\n\r\n").ok()?;
        let mut answer = [0; 12];
        (&client.0).read_exact(&mut answer).ok()?;
        answer.ends_with(b"200").then_some(())
    });
}

#[test]
fn only_members_name_a_group_for_vmci() {
    let host = Host::start();
    let client = host.member(DEFINER);
    let create = |name: &str, group: &str| {
        let text = format!("kind = \"micro\"\n[vmci]\ngroup = \"{group}\"\n");
        let body = json!({ "name": name, "format": "toml", "text": text, "base_dir": "/" });
        client.send("POST", "/v1/vms", &body.to_string())
    };
    let (status, answer) = create("m", "0");
    assert_eq!(status, 403, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert_eq!(message, format!("vmci: user {DEFINER} is not a member of the group `0`"));
    let (status, answer) = create("m", "no-such-group");
    assert_eq!(status, 400, "{answer}");
    let (status, answer) = create("m", &GROUP.to_string());
    assert_eq!(status, 201, "{answer}");
    let change =
        |group: &str| client.send("PATCH", "/v1/vms/m", &json!({ "vmci": { "group": group } }).to_string()).0;
    assert_eq!([change("0"), change("none"), change(&GROUP.to_string())], [403, 200, 200]);
    assert_eq!(host.taut.json(["vm", "show", "m"])["spec"]["vmci"]["group"], GROUP.to_string());
    host.taut.ok(["vm", "set", "m", "--vmci-group", "root"]);
}
