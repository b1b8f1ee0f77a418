//! The machine under the programs of a microguest: vNICs, vsock device, and sockets of both.

mod socket;

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use smoltcp::iface::SocketHandle;
use smoltcp::time::Instant as StackInstant;
use taut_bench::agent::protocol::{Address, AgentError};
use taut_bench::front_end::Link;

pub(crate) use socket::{Socket, ZEROS};

use crate::nic::Nic;
use crate::vsock::{ConnectionId, Vsock};

/// TCP sockets that wait for a connection on each vNIC, and so the most connections at the same
/// moment.
const BACKLOG: usize = 8;

/// A device of the machine.
#[derive(Debug, Clone, Copy)]
pub(super) enum DeviceId {
    /// The vNIC with this index.
    Nic(usize),
    Vsock,
}

/// The machine without its CPU.
pub(super) struct Machine {
    pub(super) nics: Vec<Nic>,
    pub(super) vsock: Option<Vsock>,
    started: Instant,
}

/// A connection of one program.
#[derive(Debug, Clone, Copy)]
pub(super) enum Connection {
    /// Index of the vNIC, and its socket.
    Tcp(usize, SocketHandle),
    Vsock(ConnectionId),
}

/// The sockets with which a server waits for connections.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp {
        /// The only own address that accepts connections; all if none.
        address: Option<Ipv4Addr>,
        port: u16,
        buffer: usize,
        /// Waiting sockets, with the index of their vNIC.
        waiting: Vec<(usize, SocketHandle)>,
    },
    Vsock {
        port: u16,
    },
}

impl Machine {
    pub(super) fn new(nics: Vec<Nic>, vsock: Option<Vsock>) -> Self {
        Self { nics, vsock, started: Instant::now() }
    }

    /// Connects a device's new link.
    pub(super) fn plug(&mut self, device: DeviceId, link: Link) -> anyhow::Result<()> {
        match device {
            DeviceId::Nic(index) => self.nics[index].connect(link),
            DeviceId::Vsock => self.vsock.as_mut().map_or(Ok(()), |vsock| vsock.connect(link)),
        }
    }

    /// Drops a device's link.
    pub(super) fn unplug(&mut self, device: DeviceId) {
        match device {
            DeviceId::Nic(index) => self.nics[index].device.disconnect(),
            DeviceId::Vsock => self.vsock.iter_mut().for_each(Vsock::disconnect),
        }
    }

    /// Returns the index of the vNIC whose network contains the address, or else of the one with a
    /// gateway.
    pub(super) fn route(&self, to: Ipv4Addr) -> Result<usize, AgentError> {
        let near = self.nics.iter().position(|nic| nic.reaches(to));
        near.or_else(|| self.nics.iter().position(Nic::has_gateway)).ok_or_else(|| {
            AgentError::new(
                format!("no vNIC of this microguest is in the network of {to}, and none has a gateway"),
                "give one of its vNICs an address in that network, or a `gateway`",
            )
        })
    }

    /// Begins a connection with buffers of `buffer` bytes.
    pub(super) fn connect(
        &mut self,
        to: &Address,
        port: u16,
        buffer: usize,
    ) -> Result<Connection, AgentError> {
        match to {
            Address::Ip(ip) => {
                let nic = self.route(*ip)?;
                let handle = self.nics[nic].connect_tcp(*ip, port, buffer);
                handle.map(|handle| Connection::Tcp(nic, handle)).ok_or_else(|| {
                    let message = format!("the connection to {ip} port {port} is not possible");
                    AgentError::new(message, "use a port from 1 to 65535")
                })
            }
            Address::Vsock(cid) => Ok(Connection::Vsock(self.vsock()?.connect_to(*cid, port, buffer))),
            Address::Ring(_) => Err(no_queue_pairs(to)),
            Address::Unix(_) => Err(no_unix_sockets(to)),
        }
    }

    /// Begins to wait for connections, which are accepted from now on.
    pub(super) fn listen(
        &mut self,
        address: Option<&Address>,
        port: u16,
        buffer: usize,
    ) -> Result<Listener, AgentError> {
        let address = match address {
            None => None,
            Some(Address::Ip(ip)) => Some(*ip),
            Some(Address::Vsock(_)) => {
                return if self.vsock()?.listen(port, buffer) {
                    Ok(Listener::Vsock { port })
                } else {
                    let message = format!("a server listens on VMCI port {port} already");
                    Err(AgentError::new(message, "choose another port, or 0 for any"))
                };
            }
            Some(ring @ Address::Ring(_)) => return Err(no_queue_pairs(ring)),
            Some(unix @ Address::Unix(_)) => return Err(no_unix_sockets(unix)),
        };
        let mut waiting = vec![];
        self.wait_for_tcp(address, port, buffer, &mut waiting);
        Ok(Listener::Tcp { address, port, buffer, waiting })
    }

    /// Returns the next new connection.
    pub(super) fn accept(&mut self, listener: &mut Listener) -> Option<Connection> {
        match listener {
            Listener::Vsock { port } => self.vsock.as_mut()?.accept(*port).map(Connection::Vsock),
            Listener::Tcp { address, port, buffer, waiting } => {
                self.wait_for_tcp(*address, *port, *buffer, waiting);
                let found =
                    |&(nic, handle): &(usize, SocketHandle)| !self.nics[nic].tcp(handle).is_listening();
                let at = waiting.iter().position(found)?;
                let (nic, handle) = waiting.swap_remove(at);
                Some(Connection::Tcp(nic, handle))
            }
        }
    }

    /// Adds waiting sockets up to the backlog, on each vNIC with a matching address.
    fn wait_for_tcp(
        &mut self,
        address: Option<Ipv4Addr>,
        port: u16,
        buffer: usize,
        waiting: &mut Vec<(usize, SocketHandle)>,
    ) {
        for (index, nic) in self.nics.iter_mut().enumerate() {
            let own = nic.ip().map(|ip| ip.addr());
            if address.is_some() && address != own {
                continue;
            }
            let already = waiting.iter().filter(|(of, _)| *of == index).count();
            for _ in already..BACKLOG {
                waiting.extend(nic.listen_tcp(port, buffer).map(|handle| (index, handle)));
            }
        }
    }

    /// Stops waiting for connections.
    pub(super) fn ignore(&mut self, listener: &mut Listener) {
        match listener {
            Listener::Vsock { port } => {
                if let Some(vsock) = &mut self.vsock {
                    vsock.ignore(*port);
                }
            }
            Listener::Tcp { waiting, .. } => {
                waiting.drain(..).for_each(|(nic, handle)| self.nics[nic].abort(handle));
            }
        }
    }

    /// Returns a connection that was neither closed nor aborted.
    pub(super) fn socket(&mut self, connection: Connection) -> Socket<'_> {
        match connection {
            Connection::Tcp(nic, handle) => Socket::Tcp(self.nics[nic].tcp(handle)),
            Connection::Vsock(id) => Socket::Vsock(self.its_vsock().socket(id)),
        }
    }

    /// Closes a connection. Bytes that were sent still arrive.
    pub(super) fn close(&mut self, connection: Connection) {
        match connection {
            Connection::Tcp(nic, handle) => self.nics[nic].close(handle),
            Connection::Vsock(id) => self.its_vsock().close(id),
        }
    }

    /// Resets a connection.
    pub(super) fn abort(&mut self, connection: Connection) {
        match connection {
            Connection::Tcp(nic, handle) => self.nics[nic].abort(handle),
            Connection::Vsock(id) => self.its_vsock().abort(id),
        }
    }

    /// Returns the vsock device, or an error if the machine has none.
    pub(super) fn vsock(&mut self) -> Result<&mut Vsock, AgentError> {
        self.vsock.as_mut().ok_or_else(|| {
            AgentError::new("this microguest has no VMCI device", "add a section [vmci] to its VM's file")
        })
    }

    fn its_vsock(&mut self) -> &mut Vsock {
        self.vsock.as_mut().expect("a machine that has VMCI connections has the device")
    }

    /// Receives, answers and sends. Returns true if a socket may have changed.
    pub(super) fn poll(&mut self) -> bool {
        let now = self.stack_time();
        let changed = self.nics.iter_mut().fold(false, |changed, nic| nic.poll(now) | changed);
        self.vsock.as_mut().is_some_and(|vsock| vsock.poll(Instant::now())) | changed
    }

    /// Returns a number that changes when a connection that [waits for
    /// credit](Socket::waits_for_credit) may have got some, or has ended.
    pub(super) fn news(&self) -> u64 {
        self.vsock.as_ref().map_or(0, Vsock::news)
    }

    /// Publishes everything sent and taken so far on all devices. Returns true if a socket has
    /// changed, because a back end broke the rules and its device was disconnected.
    pub(super) fn flush(&mut self) -> bool {
        // TCP sockets outlive the link of their vNIC.
        self.nics.iter_mut().for_each(|nic| nic.device.flush());
        self.vsock.as_mut().is_some_and(Vsock::flush)
    }

    /// Asks for interrupts. Returns true if something arrived meanwhile.
    pub(super) fn arm(&mut self) -> bool {
        let arrived = self.nics.iter_mut().fold(false, |arrived, nic| nic.device.arm() | arrived);
        self.vsock.as_mut().is_some_and(Vsock::arm) | arrived
    }

    /// Asks for no interrupts.
    pub(super) fn disarm(&mut self) {
        self.nics.iter_mut().for_each(|nic| nic.device.disarm());
        self.vsock.iter_mut().for_each(Vsock::disarm);
    }

    /// Returns the descriptors that become readable with an interrupt.
    pub(super) fn interrupts(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_vsock = self.vsock.iter().flat_map(Vsock::interrupts);
        self.nics.iter().flat_map(|nic| nic.device.interrupts()).chain(of_vsock)
    }

    /// Returns the time until the next timer of a stack.
    pub(super) fn poll_delay(&mut self) -> Option<Duration> {
        let now = self.stack_time();
        let of_nics = self.nics.iter_mut().filter_map(|nic| nic.poll_delay(now)).map(Duration::from);
        let deadline = self.vsock.as_ref().and_then(Vsock::next_deadline);
        let of_vsock = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        of_nics.chain(of_vsock).min()
    }

    fn stack_time(&self) -> StackInstant {
        StackInstant::from_micros(i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}

fn no_queue_pairs(address: &Address) -> AgentError {
    AgentError::new(
        format!("{address} asks for a queue pair, and a microguest has none"),
        "name VMs under QEMU that have `queue_pairs`, or leave out the transport `ring`",
    )
}

fn no_unix_sockets(address: &Address) -> AgentError {
    AgentError::new(format!("{address} is for programs of the host"), "ask the agent of the host")
}
