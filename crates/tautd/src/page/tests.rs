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
const GROUP: &str = "/portgroups/lan";

fn with_vm() -> Server {
    let server = Server::with_lan();
    server.create("one", MICRO).is(201);
    server
}

fn ask(server: &Server, uid: u32, request: Request<Body>) -> Answer {
    let router = router(&server.app, Way::Page);
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
    for path in [
        "/",
        "/networks",
        CARD,
        GROUP,
        "/vms/one",
        "/sockets",
        "/events",
        "/reasons",
        "/checks",
        "/vms/%ff",
        "/ports/vm/no/nic0",
        "/nothing",
    ] {
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
        "/vms/%ff",
        "/ports/%ff",
        "/portgroups/%ff",
        "/portgroups/none",
        "/portgroups/%3Cscript%3E",
        "/processes/1",
        "/processes/%3Cscript%3E",
        "/processes/%ff",
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
    let before = server.revision();
    for query in [
        "period=",
        "period=-1",
        "period=9999d",
        "period=%22%3E%3Cscript%3E",
        "period=5m&period=6m",
        "period=%ff",
    ] {
        let answers = ["/", CARD, GROUP, "/vms/one", "/processes/7"]
            .map(|path| (path, get(&server, VIEWER, &format!("{path}?{query}"))));
        let to_forms =
            [CARD, GROUP].map(|path| (path, post(&server, DEFINER, &format!("{path}?{query}"), FORM, &[])));
        for (path, answer) in answers.into_iter().chain(to_forms) {
            assert_eq!(answer.status, 400, "{path}?{query}");
            assert!(!answer.text.contains("<script>"), "{query}");
            let hint = answer.text.split_once("Hint: ").unwrap().1;
            assert!(hint.contains("a number with s, m, h or d"), "{path}?{query}: {}", answer.text);
        }
    }
    assert_eq!(server.revision(), before, "no form with a bad period changes anything");
    assert_eq!(get(&server, VIEWER, "/?sort=%3Cscript%3E").status, 400);
    for query in ["level=x", "newest=0", "newest=1001", "newest=-1", "newest=%3Cb%3E", "level=%ff"] {
        let answer = get(&server, VIEWER, &format!("/events?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text.contains("Hint: ") && !answer.text.contains("<b>%"), "{}", answer.text);
    }
    assert_eq!(get(&server, VIEWER, "/events?level=error&newest=").status, 200, "as a form sends it");
    assert_eq!(get(&server, VIEWER, "/host?profile=fast").status, 400);
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
    for path in [CARD, GROUP] {
        assert_eq!(post(&server, DEFINER, path, &"a=b&".repeat(20_000), &[]).status, 400);
        assert_eq!(post(&server, DEFINER, path, "", &[]).status, 400);
        let refused = post(&server, DEFINER, &format!("{path}?period=1h"), "receive_mode=x", &[]);
        assert_eq!(refused.status, 400, "{}", refused.text);
        let keeps = refused.text.contains(&format!("method=\"post\" action=\"{path}?period=1h\""));
        assert!(keeps, "the form keeps its period: {}", refused.text);
    }
    assert_eq!(post(&server, DEFINER, "/portgroups/none", FORM, &[]).status, 404);
    assert_eq!(post(&server, DEFINER, "/portgroups/%ff", FORM, &[]).status, 404);
    assert_eq!(server.revision(), before);
}

/// Returns the hidden field of a direction in a page's form, as a browser sends it.
fn was(page: &str, direction: &str) -> String {
    let (_, rest) = page.split_once(&format!("name=\"{direction}_was\" value=\"")).unwrap();
    format!("{direction}_was={}", rest.split_once('"').unwrap().0.replace('|', "%7C"))
}

#[test]
fn a_stale_form_replaces_nothing_and_one_that_is_sent_twice_changes_nothing() {
    let server = with_vm();
    let page = get(&server, DEFINER, CARD).text;
    let form = format!("{FORM}&{}&{}", was(&page, "receive"), was(&page, "transmit"));
    let sent = post(&server, DEFINER, &format!("{CARD}?period=1h"), &form, &[]);
    assert_eq!(sent.status, 303, "{}", sent.text);
    assert_eq!(sent.headers["location"], format!("{CARD}?period=1h&changed=shaping"));
    let of_card = |server: &Server| server.get("/v1/vms/one").is(200)["spec"]["nic"][0]["shaping"].clone();
    let first = of_card(&server);
    assert_eq!(post(&server, DEFINER, CARD, &form, &[]).status, 303, "twice");
    assert_eq!(of_card(&server), first);
    let stale = form.replace("receive_average=8", "receive_average=9");
    let refused = post(&server, DEFINER, CARD, &stale, &[]);
    assert_eq!(refused.status, 412, "{}", refused.text);
    assert!(refused.text.contains("Receive: somebody has changed the shaping"), "{}", refused.text);
    assert!(refused.text.contains("value=\"9\""), "the form keeps its content");
    assert_eq!(of_card(&server), first);
    // The page that was shown now is up to date, so its form replaces what is stored.
    let again = format!("{}&{}", was(&refused.text, "receive"), was(&refused.text, "transmit"));
    let (stale, _) = stale.split_once("&receive_was").unwrap();
    assert_eq!(post(&server, DEFINER, CARD, &format!("{stale}&{again}"), &[]).status, 303);
    assert_eq!(of_card(&server)["to_guest"]["average"], "9Mbit");
}

#[test]
fn a_form_changes_the_shaping_of_a_port_group() {
    let server = with_vm();
    let before = server.get("/v1/portgroups/lan").is(200);
    assert_eq!(post(&server, VIEWER, GROUP, FORM, &[]).status, 403);
    let changed = post(&server, DEFINER, GROUP, FORM, &[]);
    assert_eq!(changed.status, 303, "{}", changed.text);
    let next = changed.headers["location"].to_str().unwrap();
    let page = get(&server, VIEWER, next);
    assert!(page.text.contains("The change is stored") && page.text.contains("href=\"/vms/one\""));
    let after = server.get("/v1/portgroups/lan").is(200);
    let shape = json!({ "to_guest": { "average": "8Mbit", "burst": "2MiB" } });
    assert_eq!((&after["spec"]["shaping"], &after["spec"]["vswitch"]), (&shape, &before["spec"]["vswitch"]));
    let revision = server.revision();
    assert_eq!(post(&server, DEFINER, GROUP, FORM, &[]).status, 303);
    assert_eq!(server.revision(), revision, "a form that is sent twice writes nothing");
    let wrong = FORM.replace("transmit_mode=off", "transmit_mode=default");
    let refused = post(&server, DEFINER, GROUP, &wrong, &[]);
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.text.contains("not a choice of this form"), "{}", refused.text);
}

#[test]
fn a_card_of_a_vm_that_is_off_says_so() {
    let server = with_vm();
    let nic = server.get("/v1/vms/one").is(200)["status"]["nics"][0].clone();
    assert_eq!((&nic["link"], &nic["reason"]), (&json!("down"), &json!("the VM is off: taut vm start one")));
    for path in ["/", "/networks", "/vms/one", CARD, GROUP] {
        let page = get(&server, VIEWER, path).text;
        assert!(
            page.contains("<a class=\"about\" href=\"/reasons#link-powered-off\">powered-off</a>"),
            "{path}"
        );
    }
    assert!(get(&server, 4711, "/reasons").text.contains("<h3 id=\"link-powered-off\">"));
}

#[test]
fn events_are_filtered_before_they_are_counted() {
    let server = with_vm();
    for n in 0..5 {
        let group = format!("/v1/portgroups/g{n}");
        server.put(&group, &json!({ "vswitch": "nowhere" })).is(400);
    }
    let page = get(&server, VIEWER, "/events?level=warning&newest=2").text;
    assert!(page.contains("portgroup/g4") && page.contains("portgroup/g3"), "{page}");
    assert!(!page.contains("portgroup/g2") && !page.contains("vm.written"), "{page}");
    assert!(page.contains("<option value=\"warning\" selected>"), "{page}");
    assert!(page.contains("The newest 2 are listed."), "{page}");
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
        for path in ["/", "/networks", "/host", "/sockets", "/events", "/audit", "/vms/one", CARD, GROUP] {
            let request = Request::builder().method(method.clone()).uri(path).body(Body::empty()).unwrap();
            let status = ask(&server, VIEWER, request).status;
            assert!(matches!(status, 400 | 403 | 405), "{method} {path}: {status}");
        }
    }
}
