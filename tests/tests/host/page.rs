//! The page on its socket: what a form changes, the API has.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::json;
use taut_tests::{Taut, eventually};

/// Sends a request as a browser would, and returns the answer with its head.
fn ask(taut: &Taut, head: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(taut.dir().join("run/page.sock")).unwrap();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: localhost:8080\r\nconnection: close\r\norigin: http://localhost:8080\r\n\
         sec-fetch-site: same-origin\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
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

    for path in ["/networks", "/vms/m1", "/host", "/sockets", "/events", "/audit"] {
        let page = ask(&taut, &format!("GET {path}"), "");
        assert!(page.starts_with("HTTP/1.1 200"), "{path}: {page}");
    }
}
