//! Addresses that a Linux guest gives its card, under both policies for MAC changes.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use taut_tests::{Netns, Taut, any_image, eventually, kill_9};

use crate::direct;

const GUEST: &str = "10.72.0.1";
const OTHER: &str = "02:66:00:00:00:01";

/// A guest with a shell on its console, and a namespace beside it.
struct Rig {
    taut: Taut,
    client: Netns,
    console: UnixStream,
    configured: String,
}

impl Rig {
    fn start() -> Self {
        let taut = Taut::start().with_lan();
        let (image, guest) = (any_image(), taut.dir().join("guest"));
        let tool = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tools/make-shell.sh");
        let mut make = Command::new(tool);
        make.arg(image.parent().unwrap()).arg(image.file_name().unwrap()).arg(&guest).arg("ip");
        assert!(make.status().unwrap().success());
        taut.boot("g", &direct(&guest, &format!("ip = \"{GUEST}/24\"")).replace("128MiB", "256MiB"));
        let client = Netns::attach(&taut, "a", "lan", "10.72.0.9");
        client.reaches(GUEST, 1);
        let status = taut.json(["vm", "show", "g"])["status"].clone();
        let console = UnixStream::connect(status["console_socket"].as_str().unwrap()).unwrap();
        let configured = status["nics"][0]["mac"].as_str().unwrap().to_owned();
        Self { taut, client, console, configured }
    }

    fn port(&self) -> Value {
        self.taut.json(["port", "show", "vm/g/nic0"])
    }

    /// Waits until the port's effective address is this one, and rejected or not.
    fn has(&self, address: &str, rejected: bool) {
        let mut last = Value::Null;
        eventually(&format!("the effective address is {address}, rejected: {rejected}"), || {
            last = self.port();
            (last["effective_mac"] == address && last["mac_rejected"] == rejected).then_some(())
        });
    }

    /// Has the guest set an address.
    fn set(&mut self, address: &str) {
        writeln!(self.console, "\nip link set eth0 address {address}").unwrap();
    }

    /// Has the client send frames for the guest to this address, or ask for it.
    fn send_to(&self, address: Option<&str>) {
        let flushed = self.client.run("ip", ["neigh", "flush", "dev", "taut0", "nud", "all"]);
        assert!(flushed.status.success());
        if let Some(address) = address {
            let words = ["neigh", "replace", GUEST, "lladdr", address, "dev", "taut0", "nud", "permanent"];
            assert!(self.client.run("ip", words).status.success());
        }
    }

    fn dropped(&self, direction: &str, reason: &str) -> u64 {
        let drops = self.port()["counters"][direction].clone();
        let found = drops.as_array().unwrap().iter().find(|drop| drop[0] == reason);
        found.map_or(0, |drop| drop[1].as_u64().unwrap())
    }

    /// Checks that the guest is cut off although frames are sent to it.
    fn is_cut_off(&self) {
        // Other stations' broadcasts are dropped as well, at any time.
        for address in [None, Some(&*self.configured)] {
            let before = self.dropped("rx_drops", "address-changed");
            self.send_to(address);
            assert_eq!(self.client.pings(GUEST, 2), 0, "{address:?}");
            assert!(self.dropped("rx_drops", "address-changed") > before, "{address:?}");
        }
        self.send_to(Some(OTHER));
        assert_eq!(self.client.pings(GUEST, 2), 0);
        self.send_to(None);
    }
}

#[test]
fn a_guest_that_changes_its_address_is_reached_there_or_cut_off() {
    let mut rig = Rig::start();
    let configured = rig.configured.clone();
    rig.has(&configured, false);

    // By default a change is rejected, and the guest receives nothing until it takes it back.
    rig.set(OTHER);
    rig.has(OTHER, true);
    rig.is_cut_off();
    assert!(rig.taut.ok(["vm", "show", "g"]).contains(&format!("{OTHER} (rejected)")));
    assert!(rig.taut.ok(["port", "list"]).contains("receives no frames: its guest has changed its address"));
    rig.taut.restart_daemon();
    rig.is_cut_off();
    rig.set(&configured);
    rig.has(&configured, false);
    rig.client.reaches(GUEST, 2);

    // Accepted: frames to the new address are delivered, those to the old one are not.
    rig.taut.ok(["portgroup", "set", "lan", "--mac-changes"]);
    rig.set(OTHER);
    rig.has(OTHER, false);
    let forged = rig.dropped("tx_drops", "forged-transmit");
    rig.send_to(None);
    rig.client.reaches(GUEST, 2);
    let neighbours = String::from_utf8(rig.client.run("ip", ["neigh", "show", GUEST]).stdout).unwrap();
    assert!(neighbours.contains(OTHER), "{neighbours}");
    rig.send_to(Some(&configured));
    assert_eq!(rig.client.pings(GUEST, 2), 0, "the configured address is given up");
    rig.send_to(Some(OTHER));
    rig.client.reaches(GUEST, 2);
    let fabric = rig.taut.fabric_pid();
    kill_9(fabric);
    eventually("the next fabric has the address", || (rig.client.pings(GUEST, 2) == 2).then_some(()));
    assert_eq!(rig.dropped("tx_drops", "forged-transmit"), forged, "frames from the address are not forged");

    // The policy changes while the guest keeps its address.
    rig.taut.ok(["portgroup", "set", "lan", "--mac-changes=false"]);
    rig.has(OTHER, true);
    rig.is_cut_off();
    rig.taut.ok(["portgroup", "set", "lan", "--mac-changes"]);
    rig.has(OTHER, false);
    rig.client.reaches(GUEST, 2);
    let events = rig.taut.ok(["events"]);
    for told in [
        format!("from {configured} to {OTHER}, which port group lan rejects"),
        format!("from {OTHER} to {configured}, which is the configured one"),
        format!("from {configured} to {OTHER}, which port group lan accepts"),
    ] {
        assert!(events.contains(&told), "{told}\n{events}");
    }
}
