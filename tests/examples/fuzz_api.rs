//! `fuzz_api SECONDS` lets schemathesis write values of all kinds into each field of each write
//! route, by the daemon's own OpenAPI document, for about so long. Then it looks at what the daemon
//! has made of them, and prints one line of JSON.
//!
//! The audit record tells what was half done: a document's hash before a write must be that after
//! the write before it, and a refused request must have no document. What the daemon knows must be
//! the same after it was killed.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use taut_tests::{Background, Taut, bin_dir, eventually};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Routes that end the daemon or replace the fabric, which others test.
const LEFT_OUT: [&str; 2] = ["/v1/shutdown", "/v1/upgrade-fabric"];
/// Methods that write.
const WRITES: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];
/// Lets the requests that only an existing document answers find one.
const SETTINGS: &str = r#"
[[operations]]
include-name = ["PATCH /v1/vms/{name}", "POST /v1/vms/{name}/power"]
parameters = { "path.name" = "kept" }
[[operations]]
include-name = ["PUT /v1/portgroups/{name}", "PUT /v1/vswitches/{name}"]
parameters = { "path.name" = ["lan", "sw", "other"] }
[[operations]]
include-name = "DELETE /v1/vms/{name}"
parameters = { "path.name" = ["a", "b", "c"] }
"#;
/// Changes in the audit record that are looked at: more than are made in an hour.
const MOST: &str = "1000000";
/// Lists of all documents of the store.
const LISTS: [&[&str]; 7] = [
    &["vm", "list"],
    &["vswitch", "list"],
    &["portgroup", "list"],
    &["uplink", "list"],
    &["netns", "list"],
    &["netdev", "list"],
    &["port", "list"],
];

fn main() -> Outcome<()> {
    let seconds = std::env::args().nth(1).ok_or("usage: fuzz_api SECONDS")?;
    let mut taut = Taut::start().with_lan();
    taut.boot("kept", "kind = \"micro\"\nmemory = \"64MiB\"\n[[nic]]\nportgroup = \"lan\"\n");
    let schema = taut.dir().join("openapi.json");
    std::fs::write(&schema, Command::new(bin_dir().join("tautd")).arg("--print-openapi").output()?.stdout)?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let listen = format!("TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr,backlog=64");
    let connect = format!("UNIX-CONNECT:{}", taut.dir().join("run/tautd.sock").display());
    let forwarder = Background::start(Command::new("socat").args([listen, connect]));
    eventually("the API can be reached", || TcpStream::connect(("127.0.0.1", port)).ok());

    let daemon = taut.daemon_pid();
    let report = fuzz(&schema, port, seconds.parse()?, taut.dir())?;
    drop(forwarder);
    let is_alive = Path::new(&format!("/proc/{daemon}")).exists() && taut.daemon_pid() == daemon;
    let seen = Seen::of(&taut.json(["audit", "--lines", MOST]));
    let is_whole = taut.run(["audit", "--verify"]).success;
    let before = documents(&taut);
    taut.kill_daemon();
    taut.restart_daemon();
    let differ: Vec<_> = documents(&taut).into_iter().filter(|(list, all)| before[list] != *all).collect();
    println!(
        "{}",
        json!({
            "operations": report.operations,
            "requests": report.requests,
            "failures": report.failures,
            "writes": seen.writes,
            "accepted": seen.accepted,
            "refused": seen.refused,
            "server_errors": seen.server_errors,
            "half_done": seen.half_done,
            "audit_is_whole": is_whole,
            "daemon_lived": is_alive,
            "other_after_a_kill": differ,
        })
    );
    Ok(())
}

/// Results of schemathesis.
struct Report {
    /// Operations that were tried.
    operations: u64,
    /// Requests that were sent.
    requests: u64,
    /// Failures that it found, and operations that it could not try.
    failures: Vec<Value>,
}

fn fuzz(schema: &Path, port: u16, seconds: u64, folder: &Path) -> Outcome<Report> {
    let (report, settings) = (folder.join("schemathesis.json"), folder.join("schemathesis.toml"));
    std::fs::write(&settings, SETTINGS)?;
    let mut command = Command::new("schemathesis");
    command.arg("--config-file").arg(settings).arg("run").arg(schema);
    command.args(["--url", &format!("http://127.0.0.1:{port}"), "--checks", "not_a_server_error"]);
    command.args(["--phases", "examples,coverage,fuzzing,stateful", "--mode", "all"]);
    command.args(["--continue-on-failure", "--request-timeout", "30", "--suppress-health-check", "all"]);
    command.args(["--max-time", &seconds.to_string(), "--no-color"]);
    command.arg(format!("--report-json-path={}", report.display()));
    for method in WRITES {
        command.args(["--include-method", method]);
    }
    for path in LEFT_OUT {
        command.args(["--exclude-path", path]);
    }
    // Its examples of former runs stay in the folder of the test.
    let output = command.current_dir(folder).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report = std::fs::read(&report).map_err(|_| format!("schemathesis wrote no report: {text}"))?;
    let report: Value = serde_json::from_slice(&report)?;
    let count = |place: &str| report.pointer(place).and_then(Value::as_u64).ok_or_else(|| place.to_owned());
    let list = |name: &str| report[name].as_array().cloned().unwrap_or_default();
    let mut failures = [list("failures"), list("errors")].concat();
    if !output.status.success() && failures.is_empty() {
        failures.push(json!(text));
    }
    Ok(Report {
        operations: count("/operations/tested")?,
        requests: count("/test_cases/generated")?,
        failures,
    })
}

/// Findings in the audit record.
#[derive(Default)]
struct Seen {
    writes: usize,
    accepted: usize,
    refused: usize,
    server_errors: Vec<String>,
    half_done: Vec<String>,
}

impl Seen {
    fn of(record: &Value) -> Self {
        let mut seen = Self::default();
        let mut documents: BTreeMap<String, Option<String>> = BTreeMap::new();
        for entry in record.as_array().into_iter().flatten() {
            seen.writes += 1;
            let outcome = &entry["outcome"];
            let status = outcome["status"].as_u64().unwrap_or_default();
            let place = format!("{} {} {}: {status}", entry["seq"], entry["method"], entry["path"]);
            match status {
                200..300 => seen.accepted += 1,
                400..500 => seen.refused += 1,
                _ => seen.server_errors.push(place.clone()),
            }
            let document = &outcome["document"];
            let Some(subject) = document["subject"].as_str() else { continue };
            let hash = |name: &str| document[name].as_str().map(str::to_owned);
            let known = documents.insert(subject.to_owned(), hash("after"));
            if status >= 400 || known.is_some_and(|known| known != hash("before")) {
                seen.half_done.push(place);
            }
        }
        seen
    }
}

/// Returns the specifications of all documents, by the list that has them.
fn documents(taut: &Taut) -> BTreeMap<String, Vec<Value>> {
    let specs = |list: &&[&str]| {
        let all = taut.json(list.iter());
        let of = |document: &Value| json!([document["name"], document["owner"], document["spec"]]);
        (list.join(" "), all.as_array().into_iter().flatten().map(of).collect())
    };
    LISTS.iter().map(specs).collect()
}
