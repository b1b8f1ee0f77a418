//! Captures, with a reconcile loop and a fabric that the test plays.

use axum::http::header;
use taut_api::fabric::capture::{Direction, HEADER, Record};

use super::*;
use crate::inbox::CaptureRequest;

/// A server with a namespace on port 0.
fn with_port() -> Server {
    let server = Server::with_lan();
    server.put("/v1/netns/n", &json!({ "netns": "n", "portgroup": "lan" })).is(200);
    assert_eq!(server.get("/v1/ports").is(200)[0]["port"], 0);
    // Only messages about captures follow.
    assert!(server.messages.try_iter().all(|message| matches!(message, Message::Wake)));
    server
}

#[test]
fn captures_that_cannot_be_are_refused_with_a_hint() {
    let server = with_port();
    server.get("/v1/ports/7/capture").refuses(404, &["no port 7"]);
    server.get("/v1/ports/x/capture").refuses(404, &["no port x"]);
    server.get("/v1/ports/0/capture?snaplen=0").refuses(400, &["between 1 and 65600"]);
    server.get("/v1/ports/0/capture?snaplen=65601").refuses(400, &["between 1 and 65600"]);
    server.get("/v1/ports/0/capture?count=0").refuses(400, &["count=0"]);
    server.get("/v1/ports/0/capture?direction=up").refuses(400, &["query", "direction=both"]);
    let request = Request::get("/v1/ports/0/capture").body(Body::empty()).unwrap();
    server.ask_as(DEFINER, request).refuses(403, &["needs the role `admin`"]);
    let recorded = server.get("/v1/audit").is(200);
    let last = recorded.as_array().unwrap().last().unwrap();
    assert_eq!((&last["path"], &last["outcome"]["status"]), (&json!("/v1/ports/0/capture"), &json!(400)));
    assert!(server.messages.try_iter().next().is_none(), "the fabric was not asked");
}

#[test]
fn a_capture_is_recorded_and_answered_in_pcapng() {
    use taut_api::fabric::capture::Message as FromFabric;
    let Server { dir, app, messages } = with_port();
    let fabric = std::thread::spawn(move || {
        let Message::Capture(request) = messages.recv().unwrap() else { panic!("no capture") };
        let CaptureRequest { port, snaplen, socket, done, .. } = request;
        assert_eq!((port.0, snaplen), (0, 100));
        done.send(Ok(())).unwrap();
        let record =
            Record { at_ns: 1, lost: 0, direction: Direction::Tx, dropped: None, len: 60, bytes: &[9; 60] };
        for message in [FromFabric::Begun, FromFabric::Frame(record), FromFabric::Frame(record)] {
            let bytes = if matches!(message, FromFabric::Begun) { &[][..] } else { record.bytes };
            let packet = [&message.header()[..], bytes].concat();
            assert!(packet.len() >= HEADER);
            rustix::net::send(&socket, &packet, rustix::net::SendFlags::empty()).unwrap();
        }
        socket
    });
    let uri = "/v1/ports/0/capture?snaplen=100&direction=tx&count=2";
    let mut request = Request::get(uri).body(Body::empty()).unwrap();
    request.extensions_mut().insert(connected(0));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (kind, bytes) = runtime.block_on(async {
        let response = router(app.clone()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let kind = response.headers()[header::CONTENT_TYPE].clone();
        (kind, response.into_body().collect().await.unwrap().to_bytes())
    });
    assert_eq!(kind, "application/x-pcapng");
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert_eq!(bytes.windows(60).filter(|window| **window == [9; 60]).count(), 2);
    drop(fabric.join().unwrap());
    let newest = app.audit.newest(crate::access::audit::Chain::Changes, 1, None).unwrap();
    assert_eq!((newest[0].method.as_str(), newest[0].path.as_str()), ("GET", "/v1/ports/0/capture"));
    assert_eq!(newest[0].outcome.as_ref().unwrap().status, 200);
    drop(dir);
}
