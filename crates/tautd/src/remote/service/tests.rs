//! Requests without a connection: who may ask for what, and the bounds.

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use taut_api::role::Role;
use taut_api::token::CreatedToken;

use super::*;
use crate::http::testing::{MICRO, Server};

const CARD: &str = "/ports/vm/one/nic0";
const FORM: &str = "receive_mode=off&transmit_mode=off";

struct Over {
    server: Server,
    service: Service,
    peer: Client,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn error(&self) -> ApiError {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{}: {}", self.status, self.text))
    }
}

impl Over {
    fn new() -> Self {
        let server = Server::with_lan();
        server.create("one", MICRO).is(201);
        let service = Service::new(server.app.clone());
        let address = IpAddr::from([192, 0, 2, 1]);
        let peer = Client::new(address, service.open(address).unwrap());
        Self { server, service, peer }
    }

    fn token(&self, name: &str, role: Role) -> String {
        let body = json!({ "name": name, "role": role, "valid_s": 3600 });
        let created = self.server.post("/v1/tokens", &body).is(201);
        let created: CreatedToken = serde_json::from_value(created).unwrap();
        assert_eq!((created.token.name.as_str(), created.token.role), (name, role));
        created.secret
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("host", "esx1:8443");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let response = self.service.answer(&self.peer, request).await;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            Answer { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
        })
    }

    fn with(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {token}");
        self.ask(method, path, &[("authorization", bearer.as_str())], &body.to_string())
    }

    /// Logs in and returns the cookie.
    fn log_in(&self, token: &str) -> String {
        let answer = self.ask("POST", "/login", &[], &format!("token={token}"));
        assert_eq!(answer.status, 303, "{}", answer.text);
        let cookie = answer.headers["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }
}

#[test]
fn without_a_valid_token_nothing_is_answered_but_the_log_in_page() {
    let over = Over::new();
    for path in ["/v1/vms", "/v1/tokens", "/metrics", "/openapi.json", "/v1/nothing"] {
        let answer = over.ask("GET", path, &[], "");
        assert_eq!((answer.status, answer.error().kind), (401, ErrorKind::Unauthenticated), "{path}");
        assert!(answer.error().hint.contains("taut token create"), "{path}");
        assert!(answer.headers.contains_key("www-authenticate"));
    }
    for wrong in ["Bearer taut_00", "Bearer", "Basic YTpi", ""] {
        assert_eq!(over.ask("GET", "/v1/vms", &[("authorization", wrong)], "").status, 401, "{wrong}");
    }
    for path in ["/", "/host", CARD, "/nothing", "/logout"] {
        let answer = over.ask("GET", path, &[("cookie", "__Host-taut=00")], "");
        assert_eq!(answer.status, 401, "{path}");
        assert!(
            answer.text.contains("action=\"/login\"") && !answer.text.contains("nic0"),
            "{}",
            answer.text
        );
        assert!(answer.headers.contains_key("content-security-policy"));
    }
    let secret = over.token("ci", Role::Admin);
    assert_eq!(over.with(&secret, "GET", "/v1/vms", &json!(null)).status, 200);
    let cookie = ("cookie", format!("__Host-taut={secret}"));
    assert_eq!(over.ask("GET", "/", &[(cookie.0, &cookie.1)], "").status, 401, "a token is no session");
}

#[test]
fn a_token_has_its_role_and_is_the_caller_in_the_audit_record() {
    let over = Over::new();
    let (view, admin) = (over.token("v", Role::View), over.token("a", Role::Admin));
    let group = json!({ "vswitch": "sw", "vlan": 9 });
    let refused = over.with(&view, "PUT", "/v1/portgroups/lan", &group);
    let error = refused.error();
    assert_eq!(refused.status, 403);
    assert!(error.message.contains("token `v` has the role `view`"), "{error}");
    assert!(error.hint.contains("taut token create"), "{error}");
    assert_eq!(over.with(&view, "GET", "/v1/tokens", &json!(null)).status, 403);
    assert_eq!(over.with(&admin, "PUT", "/v1/portgroups/lan", &group).status, 200);
    let daemon: Value =
        serde_json::from_str(&over.with(&view, "GET", "/v1/daemon", &json!(null)).text).unwrap();
    assert_eq!(daemon["caller"], json!({ "token": "v", "role": "view" }));
    let entries = over.server.get("/v1/audit").is(200);
    let entry = entries.as_array().unwrap().last().unwrap();
    let caller = json!({ "token": "a", "address": "192.0.2.1", "role": "admin" });
    assert_eq!((&entry["caller"], &entry["path"]), (&caller, &json!("/v1/portgroups/lan")));
    let created = entries.as_array().unwrap().iter().find(|entry| entry["path"] == "/v1/tokens").unwrap();
    assert_eq!(created["outcome"]["document"]["subject"], "token/v");
    assert!(!entries.to_string().contains(&admin), "no secret is recorded");
    let refused = over.server.get("/v1/audit?refused=true").is(200);
    assert_eq!(refused[0]["caller"]["token"], "v");
}

#[test]
fn what_opens_files_of_the_host_is_not_possible_over_tcp() {
    let over = Over::new();
    let admin = over.token("a", Role::Admin);
    let port = json!({ "portgroup": "lan", "path": "/run/x.sock", "listen": true });
    let refused = over.with(&admin, "PUT", "/v1/external-ports/x", &port);
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert!(refused.error().message.contains("over TCP"), "{}", refused.text);
    let create = |name: &str, text: &str| {
        let body = json!({ "name": name, "format": "toml", "text": text, "base_dir": "/" });
        over.with(&admin, "POST", "/v1/vms", &body)
    };
    for text in [
        "[disk]\npath = \"/etc/passwd\"\nsnapshot = true\n",
        "[boot]\nkernel = \"/etc/passwd\"\n",
        "[boot]\nkernel = \"/nonexistent\"\n",
        "[disk]\npath = \"/root/x\"\n",
        "[disk]\npath = \"/nonexistent\"\n[[passthrough]]\naddress = \"0000:00:01.0\"\n",
        "kind = \"micro\"\n[vmci]\ngroup = \"root\"\n",
    ] {
        let refused = create("files", text);
        assert_eq!(refused.status, 403, "{text}: {}", refused.text);
        assert!(refused.error().message.contains("over TCP no VM can be given"), "{}", refused.text);
    }
    let patched = over.with(&admin, "PATCH", "/v1/vms/one", &json!({ "vmci": { "group": "nogroup" } }));
    assert_eq!(patched.status, 403, "{}", patched.text);
    assert_eq!(create("micro", "kind = \"micro\"\n").status, 201);
    assert_eq!(over.server.get("/v1/vms/micro").is(200)["status"]["owner"], 65_534);
}

#[test]
fn a_browser_logs_in_changes_and_logs_out() {
    let over = Over::new();
    let secret = over.token("d", Role::Define);
    assert_eq!(over.ask("GET", "/login", &[], "").status, 200);
    let wrong = over.ask("POST", "/login", &[], "token=taut_wrong");
    assert!(wrong.status == 401 && wrong.text.contains("role=\"alert\""), "{}", wrong.text);
    let cookie = over.log_in(&secret);
    let home = over.ask("GET", "/", &[("cookie", &cookie)], "");
    assert!(home.status == 200 && home.text.contains("token `d`") && home.text.contains("/logout"));
    let form = ("content-type", "application/x-www-form-urlencoded");
    let own = [("cookie", cookie.as_str()), form, ("origin", "https://esx1:8443")];
    assert_eq!(over.ask("POST", CARD, &own, FORM).status, 303);
    assert_eq!(over.ask("GET", "/v1/vms", &[("cookie", &cookie)], "").status, 401, "the API takes no cookie");
    assert_eq!(over.ask("GET", "/assets/no", &[], "").status, 404);
    let out = over.ask("POST", "/logout", &own, "");
    assert!(out.status == 303 && out.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(over.ask("GET", "/", &[("cookie", &cookie)], "").status, 401);
}

#[test]
fn requests_of_other_sites_are_refused() {
    let over = Over::new();
    let secret = over.token("a", Role::Admin);
    let (cookie, bearer) = (over.log_in(&secret), format!("Bearer {secret}"));
    let before = over.server.revision();
    for forged in [
        &[("origin", "https://evil.example")][..],
        &[("origin", "http://esx1:8443")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[],
    ] {
        let mut headers = vec![("cookie", cookie.as_str())];
        headers.extend(forged);
        for path in [CARD, "/logout", "/login"] {
            assert_eq!(over.ask("POST", path, &headers, FORM).status, 403, "{path}: {forged:?}");
        }
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(forged);
        let answer = over.ask("DELETE", "/v1/vms/one", &headers, "");
        if forged.is_empty() {
            assert_eq!(answer.status, 204, "a program");
        } else {
            assert_eq!((answer.status, answer.error().kind), (403, ErrorKind::Forbidden), "{forged:?}");
            assert_eq!(over.server.revision(), before);
        }
    }
    assert_eq!(over.ask("GET", "/", &[("cookie", &cookie)], "").status, 200, "the session goes on");
}

#[test]
fn a_deleted_token_ends_at_once() {
    let over = Over::new();
    let secret = over.token("v", Role::View);
    let cookie = over.log_in(&secret);
    assert_eq!(over.with(&secret, "GET", "/v1/vms", &json!(null)).status, 200);
    assert!(over.peer.is_welcome(&over.server.app.store.tokens()));
    let listed = over.server.get("/v1/tokens").is(200);
    assert!(listed[0]["used_ms"].as_u64() > Some(0) && listed[0].get("secret").is_none(), "{listed}");
    over.server.delete("/v1/tokens/v").is(204);
    assert_eq!(over.with(&secret, "GET", "/v1/vms", &json!(null)).status, 401);
    assert_eq!(over.ask("GET", "/", &[("cookie", &cookie)], "").status, 401);
    assert!(!over.peer.is_welcome(&over.server.app.store.tokens()));
    over.token("v", Role::View);
    assert_eq!(over.with(&secret, "GET", "/v1/vms", &json!(null)).status, 401, "one with the same name");
    assert_eq!(over.ask("GET", "/", &[("cookie", &cookie)], "").status, 401);
    over.server.delete("/v1/tokens/none").is(404);
}

#[test]
fn floods_are_told_to_wait() {
    let over = Over::new();
    let secret = over.token("v", Role::View);
    let answers: Vec<_> =
        (0..400).map(|_| over.with(&secret, "GET", "/v1/vswitches", &json!(null))).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(refused.len() > 10, "{}", refused.len());
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), answers.len() - refused.len());
    for answer in &refused {
        assert_eq!(answer.error().kind, ErrorKind::TooMany);
        assert_eq!(answer.headers["retry-after"], "1");
    }
    let metrics = over.server.get("/metrics").is(200);
    assert_eq!(metrics, Value::Null, "no JSON");
    let events = over.server.get("/v1/events").is(200);
    let told = events.as_array().unwrap().iter().filter(|event| event["kind"] == "remote.refused");
    assert_eq!(told.count(), 1, "one event for all of them");
}

#[test]
fn wrong_tokens_are_answered_slowly_and_right_ones_are_not() {
    let over = Over::new();
    let secret = over.token("v", Role::View);
    let wrong = || over.with("taut_wrong", "GET", "/v1/vms", &json!(null));
    let mut first = 0;
    let slow = loop {
        let (begun, answer) = (Instant::now(), wrong());
        if answer.status == 429 {
            assert!(begun.elapsed() >= SLOW_DOWN);
            break answer;
        }
        assert_eq!(answer.status, 401);
        first += 1;
        assert!(first < 50);
    };
    assert!(slow.headers.contains_key("retry-after") && slow.error().hint.contains("wait"));
    let form = over.ask("POST", "/login", &[], "token=x");
    assert_eq!(form.status, 429, "the form as well: {}", form.text);
    assert_eq!(over.with(&secret, "GET", "/v1/vms", &json!(null)).status, 200);
}

#[test]
fn bodies_are_short() {
    let over = Over::new();
    let secret = over.token("a", Role::Admin);
    let answer = over.with(&secret, "PUT", "/v1/portgroups/x", &json!("x".repeat(MOST_BODY)));
    assert_eq!((answer.status, answer.error().kind), (400, ErrorKind::Invalid));
    let form = over.ask("POST", "/login", &[], &format!("token={}", "x".repeat(5000)));
    assert_eq!(form.status, 400, "{}", form.text);
}

#[test]
fn tokens_are_checked_when_they_are_made() {
    let over = Over::new();
    for (body, status) in [
        (json!({ "name": "x", "role": "view", "valid_s": 0 }), 400),
        (json!({ "name": "x", "role": "view", "valid_s": 366 * 86_400 + 1 }), 400),
        (json!({ "name": "x", "role": "view", "valid_s": u64::MAX }), 400),
        (json!({ "name": "x", "role": "owner", "valid_s": 60 }), 400),
        (json!({ "name": "../x", "role": "view", "valid_s": 60 }), 400),
        (json!({ "name": "x", "role": "view" }), 400),
        (json!({ "name": "x", "role": "view", "valid_s": 60 }), 201),
        (json!({ "name": "x", "role": "view", "valid_s": 60 }), 409),
    ] {
        over.server.post("/v1/tokens", &body).is(status);
    }
    assert_eq!(over.server.get("/v1/tokens").is(200).as_array().unwrap().len(), 1);
}
