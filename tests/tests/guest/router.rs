//! The guide's firewall: a VM with a card in each of two networks forwards between a microguest and
//! a namespace, which name it as their gateway.

use std::process::{Command, Stdio};

use taut_tests::{Netns, Taut, any_image, bin_dir};

use crate::direct;
use crate::guide::{commands_for, files_of};

#[test]
fn a_vm_with_two_cards_forwards_between_two_networks() {
    let taut = Taut::start();
    let image = any_image();
    for (name, text) in files_of("networks.md") {
        let at = |file: &str| format!("\"{}/{file}\"", image.display());
        taut.file(&name, &text.replace("\"vmlinuz\"", &at("vmlinuz")).replace("\"initrd\"", &at("initrd")));
    }
    let client = Netns::name(&taut, "client");
    let path = format!("{}:{}", bin_dir().display(), std::env::var("PATH").unwrap());
    let commands = commands_for("tests/tests/guest/router.rs");
    assert!(commands.iter().any(|line| line.contains("--name fw --start")), "{commands:?}");
    for line in commands {
        let line = line.replace(" client ", &format!(" {client} "));
        let output = Command::new("bash")
            .args(["-c", &line])
            .current_dir(taut.dir())
            .env("PATH", &path)
            .env("TAUT_SOCKET", taut.dir().join("run/tautd.sock"))
            .stdin(Stdio::null())
            .output()
            .expect("bash is installed");
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "{line}: {}{}\n{}", said[0], said[1], taut.logs());
    }
    // The way is through the VM.
    let client = Netns { name: client, ip: "10.2.0.9".to_owned() };
    let hops = String::from_utf8(client.run("ping", ["-c", "1", "-t", "1", "10.1.0.9"]).stdout).unwrap();
    assert!(hops.contains("From 10.2.0.1") && hops.contains("Time to live exceeded"), "{hops}");
    taut.ok(["vm", "stop", "--force", "fw"]);
    assert_eq!(client.pings("10.1.0.9", 2), 0, "without the firewall nothing passes");
}

#[test]
fn a_linux_guest_takes_its_gateway_from_the_file_of_its_vm() {
    let taut = Taut::start().with_lan();
    taut.ok(["portgroup", "create", "far", "--vswitch", "sw", "--vlan", "7"]);
    let router = Netns::attach(&taut, "router", "lan", "10.72.0.254");
    let second = Netns::name(&taut, "router-far");
    let far = ["--name", &second, "--ifname", "far0", "--portgroup", "far", "--ip", "10.72.7.1/24"];
    taut.ok(["netns", "attach", &router.name].into_iter().chain(far));
    assert!(router.run("sysctl", ["-qw", "net.ipv4.ip_forward=1"]).status.success());
    taut.boot("g", &direct(&any_image(), "ip = \"10.72.0.1/24\"\ngateway = \"10.72.0.254\""));
    let client = Netns::name(&taut, "client");
    let attach = ["--portgroup", "far", "--ip", "10.72.7.9/24", "--gateway", "10.72.7.1"];
    taut.ok(["netns", "attach", &client].into_iter().chain(attach));
    Netns { name: client, ip: "10.72.7.9".to_owned() }.reaches("10.72.0.1", 3);
    assert!(taut.ok(["vm", "show", "g"]).contains("10.72.0.1/24 via 10.72.0.254"));
}
