//! Network namespaces as end points.

use std::process::{Command, Output};

use crate::{Background, Taut, eventually};

/// A namespace with a TAP port on a port group; its name is unique to this process.
#[derive(Debug)]
pub struct Netns {
    /// As `ip netns` names it.
    pub name: String,
    /// Its address without prefix.
    pub ip: String,
}

impl Netns {
    /// Attaches a new namespace. It goes away with the daemon's `shutdown --everything`.
    pub fn attach(taut: &Taut, suffix: &str, portgroup: &str, ip: &str) -> Self {
        let name = format!("taut-t{}-{suffix}", std::process::id());
        taut.ok(["netns", "attach", &name, "--portgroup", portgroup, "--ip", &format!("{ip}/24")]);
        Self { name, ip: ip.to_owned() }
    }

    /// A program inside the namespace, ready to be started.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a program inside the namespace to its end.
    pub fn run<const N: usize>(&self, program: &str, args: [&str; N]) -> Output {
        self.command(program).args(args).output().expect("ip can be run")
    }

    /// Real `ping`: how many of `count` echoes came back.
    pub fn pings(&self, to: &str, count: u32) -> u32 {
        let count = count.to_string();
        let output = self.run("ping", ["-n", "-c", &count, "-i", "0.02", "-W", "1", to]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let received = text.split(" received").next().and_then(|head| head.rsplit(", ").next());
        received.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("ping said: {text}"))
    }

    /// Starts `iperf3 -s` and waits until it listens.
    pub fn iperf3_server(&self) -> Background {
        let server = Background::start(self.command("iperf3").arg("-s"));
        eventually("iperf3 listens", || {
            let sockets = self.run("ss", ["-Hltn", "sport", "=", ":5201"]).stdout;
            sockets.starts_with(b"LISTEN").then_some(())
        });
        server
    }

    /// Does the namespace exist?
    pub fn exists(&self) -> bool {
        std::path::Path::new("/run/netns").join(&self.name).exists()
    }
}
