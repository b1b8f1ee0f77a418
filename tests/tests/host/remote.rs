//! Access over TCP: TLS, tokens, and what a stranger who reaches the port can do.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use serde_json::Value;
use taut_tests::{Taut, TlsClient, eventually};

/// Time after which a connection that sends nothing, or no whole head, is closed at the latest.
const CLOSED: Duration = Duration::from_secs(25);

/// A daemon that listens on the loopback interface, at a port of the kernel's choice.
struct Host {
    taut: Taut,
    address: SocketAddr,
    fingerprint: String,
}

impl Host {
    fn start() -> Self {
        let taut = Taut::start_with(&["--listen", "127.0.0.1:0"]).with_lan();
        let (address, fingerprint) = place(&taut);
        Self { taut, address, fingerprint }
    }

    fn token(&self, name: &str, role: &str) -> String {
        let created = self.taut.json(["token", "create", name, "--role", role]);
        created["secret"].as_str().unwrap().to_owned()
    }

    fn connect(&self) -> TlsClient {
        TlsClient::connect(self.address, &self.fingerprint).unwrap()
    }

    fn refused(&self, reason: &str) -> u64 {
        let text = curl(&self.taut, "/metrics");
        let line = format!("taut_remote_refused_total{{reason=\"{reason}\"}} ");
        let value = text.lines().find_map(|found| found.strip_prefix(&line));
        value.unwrap_or_else(|| panic!("{line} is not in {text}")).parse().unwrap()
    }
}

/// Returns address and fingerprint, as the daemon tells them on its socket.
fn place(taut: &Taut) -> (SocketAddr, String) {
    let remote = taut.json(["daemon", "show"])["remote"].clone();
    (remote["address"].as_str().unwrap().parse().unwrap(), remote["fingerprint"].as_str().unwrap().to_owned())
}

/// Reads a path of the API on the Unix socket.
fn curl(taut: &Taut, path: &str) -> String {
    let mut stream = std::os::unix::net::UnixStream::connect(taut.dir().join("run/tautd.sock")).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: taut\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn every_write_of_a_view_token_is_refused() {
    let host = Host::start();
    let (view, mut client) = (host.token("v", "view"), host.connect());
    let described = client.ask_with(&view, "GET", "/openapi.json", "").unwrap().json();
    let before = host.taut.json(["daemon", "show"])["revision"].clone();
    let mut writes = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "get") {
            let answer = client.ask_with(&view, &method.to_uppercase(), &path.replace("{name}", "lan"), "{}");
            let answer = answer.unwrap();
            assert_eq!(answer.status, 403, "{method} {path}: {}", answer.body);
            assert!(answer.body.contains("token `v` has the role `view`"), "{}", answer.body);
            writes += 1;
        }
    }
    assert_eq!(writes, 24);
    assert_eq!(host.taut.json(["daemon", "show"])["revision"], before);
    let refused = host.taut.json(["audit", "--refused"]);
    assert_eq!(refused[0]["caller"]["token"], "v", "{refused}");
}

#[test]
fn requests_without_a_valid_token_are_answered_with_401() {
    let host = Host::start();
    let mut client = host.connect();
    let short = host.taut.json(["token", "create", "short", "--role", "admin", "--expires", "1s"]);
    let short = short["secret"].as_str().unwrap();
    eventually("the token expires", || {
        // The daemon closes connections whose token has expired.
        let answer = host.connect().ask_with(short, "GET", "/v1/vms", "").unwrap();
        (answer.status == 401).then_some(())
    });
    for head in ["", "authorization: Bearer taut_00\r\n", "authorization: Basic YTpi\r\n"] {
        let answer = client.ask("GET", "/v1/vms", head, "").unwrap();
        assert_eq!((answer.status, &answer.json()["kind"]), (401, &Value::from("unauthenticated")));
        assert!(answer.json()["hint"].as_str().is_some_and(|hint| !hint.is_empty()));
    }
    let page = client.ask("GET", "/", "", "").unwrap();
    assert!(page.status == 401 && page.body.contains("action=\"/login\""), "{}", page.body);
    assert!(host.taut.run(["token", "list"]).stdout.contains(", over"));
}

#[test]
fn writes_of_other_sites_are_refused() {
    let host = Host::start();
    let (admin, mut client) = (host.token("a", "admin"), host.connect());
    let head = |origin: &str| format!("authorization: Bearer {admin}\r\norigin: {origin}\r\n");
    for origin in ["https://evil.example", "http://localhost", "null"] {
        let answer = client.ask("DELETE", "/v1/portgroups/lan", &head(origin), "").unwrap();
        assert_eq!(answer.status, 403, "{origin}: {}", answer.body);
    }
    assert_eq!(
        client.ask("DELETE", "/v1/portgroups/lan", &head("https://localhost"), "").unwrap().status,
        204
    );
    let audited = host.taut.json(["audit", "--lines", "1"]);
    assert_eq!(audited[0]["caller"]["token"], "a", "{audited}");
}

#[test]
fn a_browser_logs_in_and_changes_shaping_by_the_form() {
    let host = Host::start();
    let file = host.taut.file("m.toml", "kind = \"micro\"\n[[nic]]\nportgroup = \"lan\"\n");
    host.taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "m1"]);
    let (token, mut client) = (host.token("d", "define"), host.connect());
    let own = "origin: https://localhost\r\ncontent-type: application/x-www-form-urlencoded\r\n";
    let logged_in = client.ask("POST", "/login", own, &format!("token={token}")).unwrap();
    assert_eq!(logged_in.status, 303, "{}", logged_in.body);
    let cookie = logged_in.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = format!("cookie: {}\r\n", cookie.split(';').next().unwrap());
    let form = "receive_mode=limited&receive_average=5&receive_average_unit=Mbps&receive_burst=64\
                &receive_burst_unit=KiB&transmit_mode=default";
    let refused = client.ask("POST", "/ports/vm/m1/nic0", &cookie, form).unwrap();
    assert_eq!(refused.status, 403, "a browser names its site");
    let changed = client.ask("POST", "/ports/vm/m1/nic0", &format!("{cookie}{own}"), form).unwrap();
    assert_eq!(changed.status, 303, "{}", changed.body);
    let shaping = &host.taut.json(["vm", "show", "m1"])["spec"]["nic"][0]["shaping"];
    assert_eq!(shaping["to_guest"]["average"], "5Mbit");
    assert_eq!(client.ask("POST", "/logout", &format!("{cookie}{own}"), "").unwrap().status, 303);
    assert_eq!(client.ask("GET", "/", &cookie, "").unwrap().status, 401);
}

#[test]
fn slow_connections_are_closed() {
    let host = Host::start();
    let begun = Instant::now();
    let silent = TcpStream::connect(host.address).unwrap();
    let mut half = host.connect();
    half.write("GET /v1/vms HTTP/1.1\r\nhost: localhost\r\n").unwrap();
    let idle = host.connect();
    let mut dripping = host.connect();
    dripping.write("GET /v1/vms HTTP/1.1\r\n").unwrap();
    let drip = std::thread::spawn(move || {
        let begun = Instant::now();
        // Each line of the head comes in time, and the head does not.
        while begun.elapsed() < CLOSED && dripping.write("x: y\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(500));
        }
        begun.elapsed()
    });
    silent.set_read_timeout(Some(CLOSED)).unwrap();
    assert_eq!((&silent).read(&mut [0; 64]).unwrap(), 0, "no handshake");
    let mut clients = [half, idle];
    for client in &mut clients {
        client.read_to_end();
    }
    assert!(begun.elapsed() < CLOSED, "{:?}", begun.elapsed());
    let dripped = drip.join().unwrap();
    assert!(dripped < CLOSED, "{dripped:?}");
    let (slow, handshake) = (host.refused("slow"), host.refused("handshake"));
    assert!(slow >= 3 && handshake >= 1, "{slow} slow, {handshake} without a handshake");
}

#[test]
fn a_slow_body_is_refused() {
    let host = Host::start();
    let (admin, mut client) = (host.token("a", "admin"), host.connect());
    client
        .write(&format!(
            "PUT /v1/portgroups/x HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {admin}\r\n\
             content-length: 100\r\n\r\n{{"
        ))
        .unwrap();
    let answer = client.read().unwrap();
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert!(answer.body.contains("did not arrive"), "{}", answer.body);
}

#[test]
fn a_flood_is_told_to_wait_and_others_go_on() {
    let host = Host::start();
    let (view, mut client) = (host.token("v", "view"), host.connect());
    let mut refused = 0;
    for _ in 0..400 {
        let answer = client.ask_with(&view, "GET", "/v1/vswitches", "").unwrap();
        if answer.status == 429 {
            assert!(answer.head.contains("retry-after: "), "{}", answer.head);
            refused += 1;
        }
    }
    assert!(refused > 10, "{refused}");
    // Strangers with another address, and callers on the socket.
    let from = Ipv4Addr::new(127, 0, 0, 2).into();
    let other = host.token("o", "view");
    let mut neighbour = TlsClient::connect_from(from, host.address, &host.fingerprint).unwrap();
    assert_eq!(neighbour.ask_with(&other, "GET", "/v1/vswitches", "").unwrap().status, 200);
    assert!(host.refused("address-rate") + host.refused("token-rate") >= refused);
    let events = host.taut.json(["events"]);
    let told = events.as_array().unwrap().iter().filter(|event| event["kind"] == "remote.refused");
    assert_eq!(told.count(), 1, "{events}");
    // Many connections of one address.
    let many: Vec<_> = (0..100).map(|_| TlsClient::connect(host.address, &host.fingerprint)).collect();
    let open = many.iter().filter(|client| client.is_ok()).count();
    assert!((1..=32).contains(&open), "{open}");
    assert!(TlsClient::connect_from(from, host.address, &host.fingerprint).is_ok());
}

#[test]
fn tokens_and_certificate_outlive_the_daemon() {
    let mut host = Host::start();
    let view = host.token("v", "view");
    let key = host.taut.dir().join("state/remote-key.pem").metadata().unwrap();
    assert_eq!((key.uid(), key.mode() & 0o777), (0, 0o600));
    assert!(host.taut.run(["token", "list"]).stdout.contains(&host.fingerprint));
    assert!(host.taut.refused(["token", "create", "v", "--role", "view"]).contains("exists already"));
    host.taut.kill_daemon();
    host.taut.restart_daemon();
    let (address, fingerprint) = place(&host.taut);
    assert_eq!(fingerprint, host.fingerprint);
    let mut client = TlsClient::connect(address, &fingerprint).unwrap();
    assert_eq!(client.ask_with(&view, "GET", "/v1/vms", "").unwrap().status, 200);
    assert!(TlsClient::connect(address, "00").is_err(), "another certificate");
}

#[test]
fn a_deleted_token_ends_its_connections() {
    let host = Host::start();
    let (gone, kept) = (host.token("gone", "admin"), host.token("kept", "view"));
    let (mut client, mut other) = (host.connect(), host.connect());
    let daemon = client.ask_with(&gone, "GET", "/v1/daemon", "").unwrap().json();
    assert_eq!(daemon["caller"]["token"], "gone");
    other.ask_with(&kept, "GET", "/v1/vms", "").unwrap();
    let begun = Instant::now();
    host.taut.ok(["token", "delete", "gone"]);
    client.read_to_end();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(other.ask_with(&kept, "GET", "/v1/vms", "").unwrap().status, 200);
    assert_eq!(host.connect().ask_with(&gone, "GET", "/v1/vms", "").unwrap().status, 401);
    assert!(host.taut.refused(["token", "delete", "gone"]).contains("taut token list"));
}

#[test]
fn plain_http_is_refused() {
    let host = Host::start();
    let mut plain = TcpStream::connect(host.address).unwrap();
    plain.write_all(b"GET /v1/vms HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    // The rest of the request was not read, so the end may be a reset.
    let _ = plain.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("https://"), "{answer}");
    let mut garbage = TcpStream::connect(host.address).unwrap();
    garbage.write_all(&[0x16, 3, 1, 0xff, 0xff, 0, 0, 0]).unwrap();
    let _ = garbage.read_to_string(&mut String::new());
    eventually("both are counted", || {
        (host.refused("plain-http") == 1 && host.refused("handshake") == 1).then_some(())
    });
}

#[test]
fn an_administrator_ends_the_daemon_over_tcp_and_is_answered() {
    let mut host = Host::start();
    let (admin, mut client) = (host.token("a", "admin"), host.connect());
    let answer = client.ask_with(&admin, "POST", "/v1/shutdown", "{\"everything\":true}").unwrap();
    assert_eq!(answer.status, 204, "{}", answer.body);
    client.read_to_end();
    host.taut.restart_daemon();
}

#[test]
fn it_is_off_by_default_and_wrong_options_are_told() {
    let taut = Taut::start();
    assert_eq!(taut.json(["daemon", "show"]).get("remote"), None);
    let created = taut.run(["token", "create", "early", "--role", "view"]);
    assert!(created.stdout.contains("does not listen on TCP"), "{}", created.stdout);
    let tautd = |options: &[&str]| {
        let output = std::process::Command::new(taut_tests::bin_dir().join("tautd"))
            .args(options)
            .args(["--state-dir", "x", "--run-dir", "y"])
            .current_dir(taut.dir())
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(tautd(&["--listen", "localhost"]).contains("--listen"));
    let alone = tautd(&["--listen", "127.0.0.1:0", "--tls-cert", "cert.pem"]);
    assert!(alone.contains("--tls-key"), "{alone}");
    let missing = ["--listen", "127.0.0.1:0", "--tls-cert", "no.pem", "--tls-key", "no.pem"];
    let missing = tautd(&missing);
    assert!(missing.contains("no.pem") && missing.contains("hint:"), "{missing}");
    let foreign = tautd(&["--listen", "192.0.2.1:1"]);
    assert!(foreign.contains("cannot listen at 192.0.2.1:1") && foreign.contains("hint:"), "{foreign}");
}
