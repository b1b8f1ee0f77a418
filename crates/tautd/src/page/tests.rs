//! Tests of the page's router with a store of its own.

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use serde_json::json;
use tower::ServiceExt as _;

use super::*;
use crate::http::testing::{DEFINER, MICRO, Server, VIEWER, connected};

/// An answer of the page.
struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

const FORM: &str = "receive_mode=limited&receive_average=8&receive_average_unit=Mbps&receive_peak=\
     &receive_peak_unit=Mbps&receive_burst=2&receive_burst_unit=MiB&transmit_mode=off";
const CARD: &str = "/ports/vm/one/nic0";

fn with_vm() -> Server {
    let server = Server::with_lan();
    server.create("one", MICRO).is(201);
    server
}

fn ask(server: &Server, uid: u32, request: Request<Body>) -> Answer {
    let router = router(&server.app);
    let mut request = request;
    request.extensions_mut().insert(connected(uid));
    request.headers_mut().entry("host").or_insert("localhost:8080".parse().unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let response = router.oneshot(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer { status, headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    })
}

fn get(server: &Server, uid: u32, path: &str) -> Answer {
    ask(server, uid, Request::get(path).body(Body::empty()).unwrap())
}

fn post(server: &Server, uid: u32, path: &str, form: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    ask(server, uid, request.body(Body::from(form.to_owned())).unwrap())
}

#[test]
fn pages_have_a_strict_policy_and_assets_are_kept() {
    let server = with_vm();
    for path in ["/", "/networks", CARD, "/vms/one", "/sockets", "/events", "/ports/vm/no/nic0", "/nothing"] {
        let answer = get(&server, VIEWER, path);
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers["cache-control"], "no-store", "{path}");
        assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8", "{path}");
    }
    let style = get(&server, 4711, &taut_page::asset::STYLE.address());
    assert_eq!(
        (style.status, &style.headers["content-type"]),
        (200, &"text/css; charset=utf-8".parse().unwrap())
    );
    assert!(style.headers["cache-control"].to_str().unwrap().contains("immutable"));
    assert_eq!(get(&server, 0, "/assets/page-0.css").status, 404);
}

#[test]
fn unknown_names_are_pages_too() {
    let server = with_vm();
    for path in [
        "/nothing",
        "/vms/two",
        "/vms/..%2Fetc",
        "/vms/%3Cscript%3E",
        "/ports/vm/two/nic0",
        "/ports/vm/one/nic1",
        "/ports/vm/one/nic+0",
        "/ports/vm/one/nic",
        "/ports/vm/one",
        "/ports/netns/none",
        "/ports/%3Cscript%3E",
    ] {
        let answer = get(&server, VIEWER, path);
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
        assert!(answer.text.contains("<h1>Not found</h1>") && !answer.text.contains("<script>"), "{path}");
    }
    let wrong = ask(&server, 0, Request::delete("/vms/one").body(Body::empty()).unwrap());
    assert_eq!(wrong.status, 405, "{}", wrong.text);
}

#[test]
fn hostile_queries_are_refused() {
    let server = with_vm();
    for query in [
        "period=",
        "period=-1",
        "period=9999d",
        "period=%22%3E%3Cscript%3E",
        "period=5m&period=6m",
        "period=%ff",
    ] {
        for path in ["/", CARD, "/vms/one"] {
            let answer = get(&server, VIEWER, &format!("{path}?{query}"));
            assert_eq!(answer.status, 400, "{path}?{query}");
            assert!(!answer.text.contains("<script>"), "{query}");
        }
    }
    assert_eq!(get(&server, VIEWER, "/?sort=%3Cscript%3E").status, 400);
    assert_eq!(get(&server, VIEWER, "/events?level=x").status, 400);
    assert_eq!(get(&server, 0, "/audit?refused=x").status, 400);
    assert_eq!(get(&server, VIEWER, &format!("{CARD}?period=1h")).status, 200);
}

#[test]
fn roles_are_those_of_the_api() {
    let server = with_vm();
    let before = server.revision();
    let nobody = get(&server, 4711, "/");
    assert_eq!(nobody.status, 403);
    assert!(nobody.text.contains("/etc/taut/roles.toml"), "{}", nobody.text);
    assert_eq!(get(&server, VIEWER, "/").status, 200);
    assert_eq!((get(&server, VIEWER, "/audit").status, get(&server, 0, "/audit").status), (403, 200));
    let refused = post(&server, VIEWER, CARD, FORM, &[]);
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert!(refused.text.contains("role=\"alert\""), "{}", refused.text);
    assert_eq!(server.revision(), before);
    let audited = server.get("/v1/audit?refused=true").is(200);
    assert!(audited.as_array().unwrap().iter().any(|entry| entry["method"] == "PATCH"), "{audited}");
}

#[test]
fn a_form_changes_shaping_as_the_api_does() {
    let server = with_vm();
    let own = [("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")];
    let changed = post(&server, DEFINER, CARD, FORM, &own);
    assert_eq!(changed.status, 303, "{}", changed.text);
    let next = changed.headers["location"].to_str().unwrap();
    assert!(get(&server, DEFINER, next).text.contains("The change is stored"));
    let shaping = &server.get("/v1/vms/one").is(200)["spec"]["nic"][0]["shaping"];
    assert_eq!(*shaping, json!({ "to_switch": "off", "to_guest": { "average": "8Mbit", "burst": "2MiB" } }));
    let audited = server.get("/v1/audit").is(200);
    let entry = audited.as_array().unwrap().last().unwrap();
    assert_eq!((&entry["path"], &entry["caller"]["uid"]), (&json!("/v1/vms/one"), &json!(DEFINER)));
}

#[test]
fn a_refused_form_is_shown_again_and_changes_nothing() {
    let server = with_vm();
    let before = server.revision();
    let low = FORM.replace("average=8", "average=1").replace("receive_peak=", "receive_peak=x");
    for (form, words) in [
        (low.as_str(), "peak `x Mbps` cannot be read"),
        (&FORM.replace("Mbps&receive_peak=", "Gbps&receive_peak=1"), "below the average"),
        ("receive_mode=default", "not a choice of this form"),
        ("%ff=%ff", "not a choice"),
    ] {
        let answer = post(&server, DEFINER, CARD, form, &[]);
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains(words), "{form}: {}", answer.text);
    }
    assert_eq!(post(&server, DEFINER, "/ports/vm/two/nic0", FORM, &[]).status, 404);
    assert_eq!(post(&server, DEFINER, "/ports/netns/x", FORM, &[]).status, 400);
    assert_eq!(post(&server, DEFINER, CARD, &"a=b&".repeat(20_000), &[]).status, 400);
    assert_eq!(server.revision(), before);
}

#[test]
fn requests_of_other_sites_are_refused() {
    let server = with_vm();
    let before = server.revision();
    for forged in [
        &[("origin", "http://evil.example")][..],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("origin", "http://localhost:8080"), ("sec-fetch-site", "same-site")],
        &[("host", "evil.example"), ("origin", "http://evil.example")],
    ] {
        let answer = post(&server, 0, CARD, FORM, forged);
        assert_eq!(answer.status, 403, "{forged:?}");
        assert!(answer.headers.contains_key("content-security-policy"));
    }
    assert_eq!(server.revision(), before);
    let rebound =
        ask(&server, 0, Request::get("/").header("host", "evil.example").body(Body::empty()).unwrap());
    assert_eq!(rebound.status, 403);
}

#[test]
fn every_write_route_refuses_a_viewer() {
    let server = with_vm();
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        for path in ["/", "/networks", "/host", "/sockets", "/events", "/audit", "/vms/one", CARD] {
            let request = Request::builder().method(method.clone()).uri(path).body(Body::empty()).unwrap();
            let status = ask(&server, VIEWER, request).status;
            assert!(matches!(status, 400 | 403 | 405), "{method} {path}: {status}");
        }
    }
}
