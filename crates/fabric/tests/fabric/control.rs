//! The connection to `tautd`, and the sandbox.

use std::fs;
use std::time::Duration;

use taut_api::fabric::message::Attachment;
use taut_api::fabric::{PortId, ToFabric};
use taut_api::link::Link;

use super::fabric::{Fabric, vnic};
use super::guest::{Guest, Model};

#[test]
fn the_process_has_no_privileges_and_no_capabilities() {
    let fabric = Fabric::start();
    for thread in fs::read_dir(format!("/proc/{}/task", fabric.pid())).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!(field("NoNewPrivs:"), "1");
        assert_eq!(field("Seccomp:"), "2");
        assert_eq!(field("Seccomp_filters:"), "2");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
    }
}

#[test]
fn a_ping_is_answered_and_sleeping_threads_are_not_silent() {
    let mut fabric = Fabric::start();
    for count in 1..=3 {
        fabric.send(&ToFabric::Ping, &[]);
        fabric.until(|fabric| fabric.pongs.len() == count);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fabric.pongs, [0; 3]);
}

#[test]
fn a_repeated_configuration_changes_nothing_and_a_port_left_out_is_closed() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![vnic(0, 1), vnic(1, 1)]);
    let mut guest = Guest::start(fabric.connect(PortId(0)), Model::default());
    fabric.until_link(PortId(0), Link::Up);
    fabric.configure(vec![vnic(0, 1), vnic(1, 1)]);
    assert_eq!(fabric.states[&PortId(0)].link, Link::Up);
    assert!(fabric.ended.is_empty());
    fabric.configure(vec![vnic(1, 1)]);
    assert_eq!(fabric.ended, [(PortId(0), "the port is no longer configured".to_owned())]);
    assert!(guest.front_end.is_closed());
}

#[test]
fn a_refused_attachment_is_reported_with_its_reason() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![vnic(0, 1)]);
    let expect = |fabric: &mut Fabric, port: u16, text: &str| {
        let port = PortId(port);
        fabric.until(|f| {
            f.states.get(&port).is_some_and(|s| s.reason.as_ref().is_some_and(|r| r.contains(text)))
        });
        assert!(!fabric.states[&port].attached);
    };
    fabric.attach(PortId(0), Attachment::Tap { uso: false }, &[]);
    expect(&mut fabric, 0, "a TAP device cannot be attached to a vNIC's port");
    fabric.attach(PortId(0), Attachment::Connected, &[]);
    expect(&mut fabric, 0, "0 descriptors came with an attachment that takes 1");
    fabric.attach(PortId(9), Attachment::Tap { uso: false }, &[]);
    expect(&mut fabric, 9, "port 9 is not configured");
}

#[test]
fn a_peer_that_sends_no_greeting_is_disconnected_and_the_next_one_is_served() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![vnic(0, 1)]);
    fabric.reconnect();
    fabric.send(&ToFabric::Hello { protocol: 999 }, &[]);
    fabric.reconnect();
    fabric.until_link(PortId(0), Link::Down);
    assert!(fabric.is_alive());
}

#[test]
fn the_answer_to_the_greeting_is_the_first_message() {
    let mut fabric = Fabric::start();
    fabric.configure(vec![vnic(0, 1)]);
    let mut guest = Guest::start(fabric.connect(PortId(0)), Model::default());
    fabric.until_link(PortId(0), Link::Up);
    fabric.connect_without_greeting();
    guest.front_end.end();
    assert!(guest.front_end.is_closed());
    fabric.hello();
    let state = fabric.until_link(PortId(0), Link::Down);
    assert!(!state.attached);
}
