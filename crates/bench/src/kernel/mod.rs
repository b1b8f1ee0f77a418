//! The agent's back end on a Linux kernel: load generators on its sockets, in guests, network
//! namespaces and on the host.

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
pub mod vsock;
mod wake_ups;

use std::fs;
use std::io;

pub use cpu::read as cpu;
use taut_vmci_client::NotAttached;

use crate::agent::protocol::{
    AgentError, Checked, Configure, Cpu, Hello, Interface, Kind, Latency, PROTOCOL, Ping, Probe, Probed,
    Puts, Rr, Serve, Stream, Throughput, WakeUps, Woken,
};
use crate::agent::{Backend, Run, Serving, Spinning};

/// The back end of an agent on the kernel of this machine.
pub struct Kernel {
    kind: Kind,
    machine: Option<Machine>,
}

/// Functions of the program around the agent, for requests about the machine itself.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Checks the machine's settings for a profile. Returns the report as text and as JSON.
    pub check: fn(profile: &str) -> Result<(String, String), String>,
    /// Gives the interface with this MAC address an IP address and sets it up. Returns false if
    /// there is no such interface.
    pub configure: fn(wanted: &Configure) -> io::Result<bool>,
}

impl Kernel {
    /// Creates a back end that runs load generators only.
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
                "`taut vm addresses` lists the interfaces of a VM",
            )),
            Err(error) => Err(failed(&format!("{} could not get {}", wanted.mac, wanted.ip), &error)),
        }
    }

    fn check(&self, profile: &str) -> Result<Checked, AgentError> {
        match (self.machine()?.check)(profile) {
            Ok((text, json)) => Ok(Checked { text, json }),
            Err(why) => Err(AgentError::new(
                format!("the machine could not be checked: {why}"),
                "run `taut-guest check` on that machine to see more",
            )),
        }
    }

    fn cid(&self) -> Result<u32, AgentError> {
        vsock::local_cid().map_err(|error| {
            AgentError::new(
                format!("the machine's context ID could not be read: {error}"),
                "the VM needs a VMCI device, and its kernel the driver vmw_vsock_virtio_transport",
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

/// Returns the error for a system call that failed. Unexpected errors get a hint where to look.
fn failed(what: &str, error: &io::Error) -> AgentError {
    if let Some(reason) = error.get_ref().and_then(|reason| reason.downcast_ref::<NotAttached>()) {
        let message = format!("{what} with a queue pair: {}", reason.with_causes());
        return AgentError::new(message, reason.hint());
    }
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "run the agent as root",
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => {
            "start the server; VMs reach each other's VMCI sockets only in a common domain"
        }
        io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::TimedOut
        | io::ErrorKind::AddrNotAvailable => {
            "both need ports on one port group and addresses of one network: see `taut vm addresses` and `taut port list`"
        }
        _ => "see `taut port list` and `taut events`, and the kernel log of the guest",
    };
    AgentError::new(format!("{what}: {error}"), hint)
}
