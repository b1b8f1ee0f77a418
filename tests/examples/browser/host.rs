//! The host that is looked at: two microguests with a stream between them, and its page by TCP.

use std::net::{TcpListener, TcpStream};
use std::process::Command;

use serde_json::Value;
use taut_tests::{Background, Taut, eventually};

use crate::Outcome;

/// A daemon with VMs `m1` and `m2` on one port group.
pub(crate) struct Host {
    /// Connects the page's address to its socket. Ends before the daemon does.
    _forwarder: Background,
    pub(crate) taut: Taut,
    /// Address of the page: `http://127.0.0.1:PORT`.
    pub(crate) page: String,
}

impl Host {
    pub(crate) fn start() -> Outcome<Self> {
        let taut = Taut::start().with_lan();
        for (name, ip) in [("m1", "10.85.0.1/24"), ("m2", "10.85.0.2/24")] {
            let nic = format!("[[nic]]\nportgroup = \"lan\"\nip = \"{ip}\"\n");
            taut.boot(name, &format!("kind = \"micro\"\nmemory = \"64MiB\"\n{nic}"));
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let listen = format!("TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr");
        let connect = format!("UNIX-CONNECT:{}", taut.dir().join("run/page.sock").display());
        let forwarder = Background::start(Command::new("socat").args([listen, connect]));
        eventually("the page can be reached", || TcpStream::connect(("127.0.0.1", port)).ok());
        Ok(Self { _forwarder: forwarder, taut, page: format!("http://127.0.0.1:{port}") })
    }

    /// Lets `m1` send to `m2` as fast as it can, for so many seconds.
    pub(crate) fn stream(&self, seconds: u32) -> Background {
        let mut command = self.taut.command();
        command.args(["bench", "stream", "m1", "m2", "--duration", &seconds.to_string()]);
        Background::start(command.stdout(std::process::Stdio::null()))
    }

    /// Returns the bytes that the card of `m2` has received.
    pub(crate) fn received(&self) -> Outcome<u64> {
        let ports = self.taut.json(["port", "list"]);
        let is_m2 = |port: &&Value| port["owner"] == "vm/m2/nic0";
        let port = ports.as_array().into_iter().flatten().find(is_m2).ok_or("m2 has no port")?;
        let bytes = port["counters"]["rx_bytes"].as_u64();
        bytes.ok_or_else(|| format!("no counter of bytes: {port}").into())
    }
}
