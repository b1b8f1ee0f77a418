//! Network namespaces as end points.

use std::collections::BTreeSet;
use std::process::{Child, Command, Output, Stdio};

use crate::{Background, Taut, eventually};

/// A namespace with a TAP port on a port group. Its name begins with the name of the daemon's
/// directory.
#[derive(Debug)]
pub struct Netns {
    /// Name for `ip netns`.
    pub name: String,
    /// IP address without the prefix length.
    pub ip: String,
}

impl Netns {
    /// Attaches a new namespace. `shutdown --everything` removes it.
    pub fn attach(taut: &Taut, suffix: &str, portgroup: &str, ip: &str) -> Self {
        let name = Self::name(taut, suffix);
        taut.ok(["netns", "attach", &name, "--portgroup", portgroup, "--ip", &format!("{ip}/24")]);
        Self { name, ip: ip.to_owned() }
    }

    /// Returns the name of one of this daemon's namespaces.
    pub fn name(taut: &Taut, suffix: &str) -> String {
        let directory = taut.dir().file_name().and_then(std::ffi::OsStr::to_str);
        format!("{}-{suffix}", directory.expect("temporary paths are text"))
    }

    /// Returns a command that runs a program inside the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a program inside the namespace and waits for its end.
    pub fn run<const N: usize>(&self, program: &str, args: [&str; N]) -> Output {
        self.command(program).args(args).output().expect("ip can be run")
    }

    /// Sends `count` echo requests by `ping`; each must be answered once, however late.
    pub fn reaches(&self, to: &str, count: u32) {
        self.pinging(to, count, "0.02").all_come_back();
    }

    /// Starts a `ping` with one request each `interval` seconds.
    pub fn pinging(&self, to: &str, count: u32, interval: &str) -> Pings {
        // With a deadline `ping` continues until `count` answers came. Without one it hardly waits
        // longer for the last answer than for those before.
        let mut command = self.command("ping");
        command.args(["-n", "-c", &count.to_string(), "-i", interval, "-w", "120", to]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        Pings { ping: command.spawn().expect("ip can be run"), count }
    }

    /// Returns how many of `count` echo requests were answered, the last within a second. For
    /// conditions that are tried again, and for traffic that must not pass.
    pub fn pings(&self, to: &str, count: u32) -> u32 {
        let count = count.to_string();
        let output = self.run("ping", ["-n", "-c", &count, "-i", "0.02", "-W", "1", to]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let received = text.split(" received").next().and_then(|head| head.rsplit(", ").next());
        received.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("ping said: {text}"))
    }

    /// Sends 64 MiB by TCP to the `iperf3` at an address, or receives them with `-R` in `more`.
    pub fn streams(&self, to: &str, more: &[&str]) {
        // The server listens anew for each client, and resets one that comes just then. Such a
        // client has no stream yet.
        let report = eventually("iperf3 has a stream", || {
            let mut client = self.command("iperf3");
            let output = client.args(["-c", to, "-n", "64M", "-J"]).args(more).output();
            let report = output.expect("ip can be run").stdout;
            let report: serde_json::Value = serde_json::from_slice(&report).expect("iperf3 writes JSON");
            let has_stream = report["start"]["connected"].as_array().is_some_and(|all| !all.is_empty());
            (has_stream || report["error"].is_null()).then_some(report)
        });
        // The sender reports the end while bytes are still in the buffers of both sockets, and the
        // receiver does not count those. Linux lets the buffers grow to tens of MiB.
        let mib = |of: &str| report["end"][of]["bytes"].as_u64().unwrap_or_default() >> 20;
        assert!(mib("sum_sent") >= 64 && mib("sum_received") >= 16, "{report}");
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

    /// Returns true if the namespace exists.
    pub fn exists(&self) -> bool {
        std::path::Path::new("/run/netns").join(&self.name).exists()
    }
}

/// A `ping` that runs.
#[derive(Debug)]
pub struct Pings {
    ping: Child,
    count: u32,
}

impl Pings {
    /// Returns whether `ping` still runs.
    pub fn are_under_way(&mut self) -> bool {
        self.ping.try_wait().expect("our child").is_none()
    }

    /// Waits until each request was answered once.
    pub fn all_come_back(self) {
        let output = self.ping.wait_with_output().expect("our child");
        let text = String::from_utf8_lossy(&output.stdout);
        let answer = |line: &str| -> Option<u32> {
            let number = line.split_once(" bytes from ")?.1.split_once("icmp_seq=")?.1;
            number.split(' ').next()?.parse().ok()
        };
        let answered: BTreeSet<u32> = text.lines().filter_map(answer).collect();
        // `ping` sends more than `count` requests while one is late, and a later answer replaces a
        // lost one.
        let lost: Vec<u32> = (1..=self.count).filter(|number| !answered.contains(number)).collect();
        assert!(lost.is_empty() && !text.contains("DUP!"), "{lost:?} did not come back: {text}");
    }
}
