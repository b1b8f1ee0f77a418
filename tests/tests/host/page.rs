//! The page on its socket: what a form changes, the API has.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::json;
use taut_tests::{Taut, eventually};

/// Sends a request as a browser would, and returns the answer with its head.
fn ask(taut: &Taut, head: &str, body: &str) -> String {
    ask_at(taut, "page.sock", head, body)
}

/// Asks the API.
fn ask_api(taut: &Taut, path: &str) -> String {
    let as_a_browser = ask_at(taut, "tautd.sock", &format!("GET {path}"), "");
    assert!(as_a_browser.starts_with("HTTP/1.1 403"), "{as_a_browser}");
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    send(taut, "tautd.sock", &request)
}

fn ask_at(taut: &Taut, socket: &str, head: &str, body: &str) -> String {
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: localhost:8080\r\nconnection: close\r\norigin: http://localhost:8080\r\n\
         sec-fetch-site: same-origin\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    send(taut, socket, &request)
}

fn send(taut: &Taut, socket: &str, request: &str) -> String {
    let mut stream = UnixStream::connect(taut.dir().join("run").join(socket)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_form_on_the_page_shapes_a_running_card() {
    let taut = Taut::start().with_lan();
    let file = taut.file("m.toml", "kind = \"micro\"\nmemory = \"64MiB\"\n[[nic]]\nportgroup = \"lan\"\n");
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "m1", "--start"]);
    let port = |taut: &Taut| taut.json(["port", "list"]).as_array().unwrap().first().cloned();
    eventually("the VM has a port", || port(&taut).filter(|port| port["link"] == "up"));

    let list = ask(&taut, "GET /", "");
    assert!(list.starts_with("HTTP/1.1 200") && list.contains("href=\"/vms/m1\""), "{list}");
    let form = "receive_mode=limited&receive_average=5&receive_average_unit=Mbps&receive_burst=64\
                &receive_burst_unit=KiB&transmit_mode=default";
    let changed = ask(&taut, "POST /ports/vm/m1/nic0", form);
    assert!(changed.starts_with("HTTP/1.1 303"), "{changed}");
    let shaping = &port(&taut).unwrap()["shaping"]["to_guest"];
    let shape = json!({ "average": "5Mbit", "burst": "64KiB" });
    assert_eq!(*shaping, json!({ "shape": shape, "origin": "own" }));
    let shown = ask(&taut, "GET /ports/vm/m1/nic0?period=1m", "");
    assert!(shown.contains("5.00\u{a0}Mbps") && shown.contains("Traffic shaping is on"), "{shown}");

    for path in ["/networks", "/vms/m1", "/host", "/sockets", "/events", "/audit", "/reasons", "/checks"] {
        get(&taut, path);
    }
    let vm = eventually("the VM has samples", || {
        Some(get(&taut, "/vms/m1?period=1m")).filter(|page| page.contains("Histogram of ready time"))
    });
    assert!(vm.contains("<code>taut latency m1</code>"), "{vm}");
    // The card follows its port group again, by the form of that.
    let changed = ask(&taut, "POST /ports/vm/m1/nic0", "receive_mode=default&transmit_mode=default");
    assert!(changed.starts_with("HTTP/1.1 303"), "{changed}");
    let changed =
        ask(&taut, "POST /portgroups/lan", &form.replace("transmit_mode=default", "transmit_mode=off"));
    assert!(changed.starts_with("HTTP/1.1 303"), "{changed}");
    let shaping = &port(&taut).unwrap()["shaping"]["to_guest"];
    assert_eq!(*shaping, json!({ "shape": shape, "origin": "portgroup" }));
    let group = get(&taut, "/portgroups/lan");
    assert!(group.contains("href=\"/ports/vm/m1/nic0?period=5m\"") && group.contains("5Mbit"), "{group}");
}

fn get(taut: &Taut, path: &str) -> String {
    let page = ask(taut, &format!("GET {path}"), "");
    assert!(page.starts_with("HTTP/1.1 200"), "{path}: {page}");
    page
}

/// Loads what a link leads to: a page, or one section of it.
pub(crate) fn load(taut: &Taut, address: &str) -> String {
    let Some((path, section)) = address.split_once('#') else { return get(taut, address) };
    let page = get(taut, path);
    let begin = page.find(&format!("<h3 id=\"{section}\">")).expect("the section exists");
    page[begin..].split("<h3").nth(1).unwrap().to_owned()
}

/// Follows a link that a page must have, and returns what it leads to.
fn follow(taut: &Taut, page: &str, address: &str) -> String {
    assert!(page.contains(&format!("href=\"{address}\"")), "no link to {address}: {page}");
    load(taut, address)
}

#[test]
fn the_reason_of_a_link_follows_its_vm() {
    let taut = Taut::start().with_lan();
    let file = taut.file("m.toml", "kind = \"micro\"\nmemory = \"64MiB\"\n[[nic]]\nportgroup = \"lan\"\n");
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "m1"]);
    let list = get(&taut, "/");
    let cause = follow(&taut, &list, "/reasons#link-powered-off");
    assert!(cause.contains("The card belongs to a VM that is stopped"), "{cause}");
    let card = follow(&taut, &list, "/ports/vm/m1/nic0?period=5m");
    assert!(card.contains("the VM is off: taut vm start m1"), "{card}");
    // In the terminal.
    let shown = taut.ok(["vm", "show", "m1"]);
    assert!(shown.contains("the VM is off: taut vm start m1"), "{shown}");
    assert!(shown.contains("nic0: see docs/guide/reasons.md#link-powered-off"), "{shown}");
    assert!(taut.refused(["port", "show", "vm/m1/nic0"]).contains("`taut vm show m1`"));
    // The command that the reason names.
    taut.ok(["vm", "start", "--wait", "m1"]);
    assert!(!get(&taut, "/").contains("link-powered-off"));
    eventually("the port has samples", || {
        let all = taut.json(["net", "stats", "--period", "1m"]);
        all.as_array().unwrap().iter().any(|port| port["covered_ms"] != 0).then_some(())
    });
    taut.ok(["vm", "stop", "m1"]);
    let stats = taut.ok(["net", "stats", "--period", "1m"]);
    let reason = "vm/m1/nic0: the VM is off: taut vm start m1 (docs/guide/reasons.md#link-powered-off)";
    assert!(stats.contains(reason), "{stats}");
    assert!(stats.lines().any(|line| line.starts_with("off ") && line.contains("vm/m1/nic0")), "{stats}");
    // A card that was unplugged has another reason, also while its VM is off.
    taut.ok(["vm", "set", "m1", "--nic", "0", "--link", "down"]);
    follow(&taut, &get(&taut, "/vms/m1"), "/reasons#link-taken-down");
    follow(&taut, &get(&taut, "/networks"), "/reasons#link-taken-down");
}

#[test]
fn checks_and_events_lead_to_their_sections() {
    let taut = Taut::start().with_lan();
    let host = get(&taut, "/host?profile=dense");
    let page = ask_api(&taut, "/v1/host/check?profile=dense");
    let report: serde_json::Value = serde_json::from_str(page.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let line = report["lines"].as_array().unwrap().iter().find(|line| line["id"] == "commit.vcpus").unwrap();
    assert!(host.contains(line["found"].as_str().unwrap()), "{host}");
    let section = follow(&taut, &host, "/reasons#check-commitvcpus");
    assert!(section.contains("check commit.vcpus"), "{section}");
    taut.refused(["portgroup", "create", "x", "--vswitch", "nowhere"]);
    let events = get(&taut, "/events?level=warning&newest=1");
    assert!(events.contains("href=\"/portgroups/x\"") && !events.contains("portgroup/lan"), "{events}");
    let told = taut.ok(["events", "--level", "warning", "--newest", "1"]);
    assert!(told.contains("nowhere") && told.lines().count() == 1, "{told}");
}
