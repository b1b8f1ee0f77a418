//! Requests that are refused with a hint that can be followed.

use super::*;

#[test]
fn a_document_that_exists_is_not_replaced_by_a_creation() {
    let server = Server::with_lan();
    let tagged = json!({ "vswitch": "sw", "vlan": 10 });
    server.put("/v1/portgroups/web", &tagged).is(200);
    let create = |path: &str, body: &Value| {
        let request = Request::put(path).header("if-none-match", "*").body(Body::from(body.to_string()));
        server.ask(request.unwrap())
    };
    let web = json!({ "vswitch": "sw" });
    create("/v1/portgroups/web", &web).refuses(409, &["port group `web` exists", "taut portgroup set web"]);
    create("/v1/vswitches/sw", &json!({})).refuses(409, &["vSwitch `sw` exists", "taut vswitch list"]);
    assert_eq!(server.get("/v1/portgroups/web").is(200)["spec"]["vlan"], tagged["vlan"]);
    server.create("one", MICRO).is(201);
    server.create("one", MICRO).refuses(409, &["VM `one` exists", "taut vm set one"]);
}
