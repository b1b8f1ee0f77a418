//! A guest that writes garbage into its ring loses its own port, with the reason; other ports go
//! on.

use std::process::Command;

use taut_tests::{Background, Netns, Taut, bin_dir, eventually};

/// Attacks of `taut-micro --hostile`.
const KINDS: &[&str] = &["avail-index", "loop", "outside", "length", "indirect"];

#[test]
fn a_hostile_guest_breaks_its_own_port_only() {
    let taut = Taut::start().with_lan();
    let a = Netns::attach(&taut, "a", "lan", "10.71.0.1");
    let b = Netns::attach(&taut, "b", "lan", "10.71.0.2");
    for kind in KINDS {
        let socket = taut.dir().join(format!("{kind}.sock"));
        let agent = taut.dir().join(format!("{kind}.agent"));
        let nic = format!("socket={},mac=02:66:00:00:00:01,ip=10.71.0.66/24", socket.display());
        let mut command = Command::new(bin_dir().join("taut-micro"));
        command.args(["--name", kind, "--agent-socket"]).arg(&agent).args(["--nic", &nic, "--hostile", kind]);
        let _hostile = Background::start(&mut command);
        taut.ok([
            "port",
            "attach",
            kind,
            "--portgroup",
            "lan",
            "--mac",
            "02:66:00:00:00:01",
            "--path",
            socket.to_str().unwrap(),
        ]);
        let reason = eventually("the port is broken", || {
            let ports = taut.json(["port", "list"]);
            let owner = format!("external/{kind}");
            let port =
                ports.as_array().unwrap().iter().find(|port| port["owner"] == owner.as_str()).cloned()?;
            (port["link"] == "broken").then(|| port["reason"].as_str().unwrap_or_default().to_owned())
        });
        assert!(!reason.is_empty(), "{kind} has no reason");
        a.reaches(&b.ip, 10);
        taut.ok(["port", "detach", kind]);
    }
}
