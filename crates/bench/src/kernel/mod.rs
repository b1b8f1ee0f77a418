//! Workloads on the kernel's sockets, as guests, namespaces and the host run them.

mod cpu;
mod interfaces;
mod ping;
mod poweroff;
mod probe;
mod puts;
mod rr;
mod server;
mod socket;
mod spin;
mod stream;
#[cfg(test)]
mod tests;
mod vsock;
mod wake_ups;

use std::fs;
use std::io;

pub use cpu::read as cpu;

use crate::agent::protocol::{
    AgentError, Checked, Configure, Cpu, Hello, Interface, Kind, Latency, PROTOCOL, Ping, Probe, Probed,
    Puts, Rr, Serve, Stream, Throughput, WakeUps, Woken,
};
use crate::agent::{Backend, Run, Serving, Spinning};

/// The agent's back end on the kernel of this machine: load generators on its sockets.
pub struct Kernel {
    kind: Kind,
    machine: Option<Machine>,
}

/// What the program around the agent does for it, because it needs more of the machine than sockets.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Judges the machine for a profile. Returns the report as text and as JSON, or why there is none.
    pub check: fn(profile: &str) -> Result<(String, String), String>,
    /// Gives the interface with this MAC address an IP address and sets it up. Returns false if there
    /// is no such interface.
    pub configure: fn(wanted: &Configure) -> io::Result<bool>,
}

impl Kernel {
    /// Creates a back end that runs load generators only. `kind` says what the machine is.
    pub fn new(kind: Kind) -> Self {
        Self { kind, machine: None }
    }

    /// Answers requests about the machine itself as well.
    #[must_use]
    pub fn with_machine(mut self, machine: Machine) -> Self {
        self.machine = Some(machine);
        self
    }

    fn machine(&self) -> Result<Machine, AgentError> {
        self.machine.ok_or_else(|| {
            AgentError::new("this agent only runs load generators", "ask an agent of taut-guest")
        })
    }
}

impl Backend for Kernel {
    fn hello(&self) -> Hello {
        let read = |name: &str| {
            let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
            text.trim().to_owned()
        };
        Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kind: self.kind,
            hostname: read("hostname"),
            kernel: read("osrelease"),
        }
    }

    fn addresses(&self) -> Result<Vec<Interface>, AgentError> {
        interfaces::list().map_err(|error| failed("interfaces could not be listed", &error))
    }

    fn configure(&self, wanted: &Configure) -> Result<(), AgentError> {
        match (self.machine()?.configure)(wanted) {
            Ok(true) => Ok(()),
            Ok(false) => Err(AgentError::new(
                format!("no interface has the address {}", wanted.mac),
                "`taut vm addresses` lists those that there are",
            )),
            Err(error) => Err(failed(&format!("{} could not get {}", wanted.mac, wanted.ip), &error)),
        }
    }

    fn check(&self, profile: &str) -> Result<Checked, AgentError> {
        match (self.machine()?.check)(profile) {
            Ok((text, json)) => Ok(Checked { text, json }),
            Err(why) => Err(AgentError::new(
                format!("the machine could not be checked: {why}"),
                "run `taut-guest check` there",
            )),
        }
    }

    fn cid(&self) -> Result<u32, AgentError> {
        vsock::local_cid().map_err(|error| {
            AgentError::new(
                format!("the machine's context ID could not be read: {error}"),
                "has the VM a VMCI device, and its kernel the driver (vmw_vsock_virtio_transport)?",
            )
        })
    }

    fn serve(&self, wanted: &Serve) -> Result<Box<dyn Serving>, AgentError> {
        Ok(Box::new(server::Server::start(wanted)?))
    }

    fn ping(&self, wanted: &Ping, run: &Run<'_>) -> Result<Latency, AgentError> {
        ping::run(wanted, run)
    }

    fn rr(&self, wanted: &Rr, run: &Run<'_>) -> Result<Latency, AgentError> {
        rr::run(wanted, run)
    }

    fn puts(&self, wanted: &Puts, run: &Run<'_>) -> Result<Latency, AgentError> {
        puts::run(wanted, run)
    }

    fn stream(&self, wanted: &Stream, run: &Run<'_>) -> Result<Throughput, AgentError> {
        stream::run(wanted, run)
    }

    fn probe(&self, wanted: &Probe, run: &Run<'_>) -> Result<Vec<Probed>, AgentError> {
        probe::run(wanted, run)
    }

    fn wake_ups(&self, wanted: &WakeUps, run: &Run<'_>) -> Result<Vec<Woken>, AgentError> {
        wake_ups::run(wanted, run)
    }

    fn cpu(&self) -> Result<Cpu, AgentError> {
        cpu::read().map_err(|error| failed("CPU times could not be read", &error))
    }

    fn spin(&self) -> Result<Box<dyn Spinning>, AgentError> {
        let spinners = spin::Spinners::start();
        Ok(Box::new(spinners.map_err(|error| failed("threads could not be started", &error))?))
    }

    fn poweroff(&self) -> Result<(), AgentError> {
        poweroff::run(self.kind)
    }
}

/// What the kernel refused. The hint for what should not happen is where to look.
fn failed(what: &str, error: &io::Error) -> AgentError {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "run the agent as root",
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
            "does a server listen there? VMs reach each other's VMCI sockets only in a common domain"
        }
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::TimedOut
        | io::ErrorKind::AddrNotAvailable => {
            "are both on one port group, with addresses of one network? `taut vm addresses` and `taut port list` say"
        }
        _ => "`taut port list` and `taut events` say what the switch saw; in the guest, its kernel log",
    };
    AgentError::new(format!("{what}: {error}"), hint)
}
