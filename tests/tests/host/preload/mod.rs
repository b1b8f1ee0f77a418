//! Programs that everybody has, with `libtaut_vmci.so` and without knowing of it. Both ends are on this host; between them is a VM's
//! socket as taut has it, whose guest is the host again.

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

/// The machine's address by the map; TCP has no way there.
const MACHINE: &str = "198.18.0.7";

/// A folder with a map, and what connects its socket with the programs that listen.
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

    /// A program with the library.
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

    /// The standard output of a program with the library, which must succeed and have nothing to complain of.
    fn run(&self, name: &str, args: &[&str]) -> String {
        checked(self.program(name).args(args).output().expect("it is installed"), name)
    }

    /// Starts a server, and waits until it listens on this port.
    fn serve(&self, command: &mut Command, port: u16) -> Background {
        let server = Background::start(command);
        let entrance = format!("{}_{port}", self.path().join("vm.sock").display());
        eventually("the server listens", || listens(&entrance).then_some(()));
        server
    }

    /// How many connections went over VMCI, of which the test knows.
    fn connections(&self) -> usize {
        self.relay.connections()
    }
}

/// Does anybody listen on a Unix socket of this path? Its file is there a moment before that, and to try would be a connection of which
/// the server knows.
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

/// A TCP port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}
