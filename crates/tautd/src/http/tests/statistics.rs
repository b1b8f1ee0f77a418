//! Statistics through the API.

use super::*;

#[test]
fn every_port_has_statistics_and_a_bad_period_is_refused() {
    let server = Server::with_lan();
    let path = "/v1/statistics/ports";
    assert_eq!(server.get(path).is(200), json!([]));
    server.put("/v1/external-ports/gen", &json!({ "portgroup": "lan", "socket": "/tmp/gen.sock" })).is(200);
    for query in ["", "?period=90", "?period=5m", "?period=30d"] {
        let all = server.get(&format!("{path}{query}")).is(200);
        assert_eq!(
            (all[0]["owner"].as_str(), all[0]["portgroup"].as_str()),
            (Some("external/gen"), Some("lan"))
        );
        assert_eq!(all[0]["covered_ms"], 0, "it has no sample yet");
        assert_eq!(all[0]["rates"]["rx_bits_per_s"], 0.0);
    }
    for query in ["?period=0", "?period=367d", "?period=", "?period=soon", "?since=5"] {
        server.get(&format!("{path}{query}")).refuses(400, &["the query cannot be read", "period=5m"]);
    }
    assert_eq!(server.get("/v1/statistics/vms?period=1h").is(200), json!([]));
    server.get("/v1/statistics/vms?period=1w").refuses(400, &["`1w` is not a period"]);
    let series = "/v1/statistics/series";
    let lost = ["no port `external/gen` has samples of the last 5m", "after two seconds"];
    server.get(&format!("{series}?subject=port&name=external/gen")).refuses(404, &lost);
    server
        .get(&format!("{series}?subject=disk&name=x"))
        .refuses(400, &["subject=port, uplink, vm or sockets"]);
    server.get(&format!("{series}?subject=vm")).refuses(404, &["no vm ``"]);
    server.get(&format!("{series}?name=x")).refuses(400, &["subject=port, uplink, vm or sockets"]);
    server.get(&format!("{series}?subject=host")).refuses(404, &["no host"]);
    assert_eq!(server.get("/v1/statistics/sockets").is(200), json!([]));
    let host = server.get("/v1/statistics/host?period=1h").is(200);
    assert_eq!((&host["covered_ms"], host.get("cpu_busy_percent")), (&json!(0), None), "no sample yet");
    server.get("/v1/statistics/host?period=0").refuses(400, &["`0` is not a period"]);
    server.get(&format!("{series}?subject=vm&name=x&period=1w")).refuses(400, &["`1w` is not a period"]);
    server.ask_as(VIEWER, Request::get(path).body(Body::empty()).unwrap()).is(200);
}
