//! Common programs with `libtaut_vmci.so`, unmodified. Both ends are on this host; between them is
//! a VM's socket as taut makes it, whose guest is the host again.

mod python;
mod redis;
#[path = "../../../../crates/preload/tests/program/relay.rs"]
mod relay;
mod servers;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use relay::Relay;
use taut_tests::{Background, bin_dir, eventually};

/// Address of the machine in the map. TCP cannot reach it.
const MACHINE: &str = "198.18.0.7";

/// A folder with a map, and a relay between its socket and the programs that listen.
struct Machine {
    folder: tempfile::TempDir,
    relay: Relay,
}

impl Machine {
    fn new() -> Self {
        let folder = taut_tests::directory();
        let socket = folder.path().join("vm.sock");
        let path = socket.display();
        let map = format!(
            "{MACHINE}:* -> unix {path}\nlisten * -> unix {path}\nlocal {MACHINE}\npatience 5000 ms\n"
        );
        std::fs::write(folder.path().join("vmci.map"), map).unwrap();
        Self { relay: Relay::start(&socket), folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a command with the library preloaded.
    fn program(&self, name: impl AsRef<std::ffi::OsStr>) -> Command {
        let library = bin_dir().join("libtaut_vmci.so");
        assert!(library.exists(), "{} is not there\nhint: `make build` makes it", library.display());
        let mut command = Command::new(name);
        command
            .env("LD_PRELOAD", library)
            .env("TAUT_VMCI_MAP", self.path().join("vmci.map"))
            .current_dir(self.path());
        command
    }

    /// Runs a program with the library, which must succeed without complaints, and returns its
    /// standard output.
    fn run(&self, name: &str, args: &[&str]) -> String {
        checked(self.program(name).args(args).output().expect("it is installed"), name)
    }

    /// Starts a server and waits until it listens on this port.
    fn serve(&self, command: &mut Command, port: u16) -> Background {
        let server = Background::start(command);
        let entrance = format!("{}_{port}", self.path().join("vm.sock").display());
        eventually("the server listens", || listens(&entrance).then_some(()));
        server
    }

    /// Returns how many connections went over VMCI.
    fn connections(&self) -> usize {
        self.relay.connections()
    }
}

/// Returns true if somebody listens on a Unix socket of this path. The file alone does not tell,
/// and trying would be a connection that the server notices.
fn listens(path: &str) -> bool {
    /// `__SO_ACCEPTCON` (linux/net.h), the fourth column of /proc/net/unix.
    const LISTENS: &str = "00010000";
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let listening = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns.get(3) == Some(&LISTENS) && columns.last() == Some(&path)
    };
    sockets.lines().any(listening)
}

fn checked(output: Output, name: &str) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{stderr}", output.status);
    assert!(!stderr.contains("libtaut_vmci"), "{name}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a TCP port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}
