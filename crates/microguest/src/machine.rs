//! What the programs of a microguest run on: its vNICs and its VMCI device, and sockets of either.

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use smoltcp::time::Instant as StackInstant;
use taut_bench::agent::protocol::{Address, AgentError};
use taut_bench::front_end::Link;

use crate::nic::Nic;
use crate::vsock::{self, ConnectionId, Vmci};

/// TCP sockets that wait for a connection, per vNIC: as many can come at the same moment.
const BACKLOG: usize = 8;

/// Payload of which nobody cares what it is.
pub(super) static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// One of the machine's devices.
#[derive(Debug, Clone, Copy)]
pub(super) enum DeviceId {
    /// The vNIC of this index.
    Nic(usize),
    Vmci,
}

/// The machine without its CPU.
pub(super) struct Machine {
    pub(super) nics: Vec<Nic>,
    pub(super) vmci: Option<Vmci>,
    started: Instant,
}

/// A connection of one program.
#[derive(Debug, Clone, Copy)]
pub(super) enum Connection {
    /// Index of the vNIC, and its socket.
    Tcp(usize, SocketHandle),
    Vmci(ConnectionId),
}

/// What a server waits with.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp {
        /// The only own address to listen on.
        address: Option<Ipv4Addr>,
        port: u16,
        buffer: usize,
        /// Index of the vNIC, and its socket.
        waiting: Vec<(usize, SocketHandle)>,
    },
    Vmci {
        port: u16,
    },
}

impl Machine {
    pub(super) fn new(nics: Vec<Nic>, vmci: Option<Vmci>) -> Self {
        Self { nics, vmci, started: Instant::now() }
    }

    /// Connects a device's new link.
    pub(super) fn plug(&mut self, device: DeviceId, link: Link) -> anyhow::Result<()> {
        match device {
            DeviceId::Nic(index) => self.nics[index].connect(link),
            DeviceId::Vmci => self.vmci.as_mut().map_or(Ok(()), |vmci| vmci.connect(link)),
        }
    }

    /// A device's link has gone.
    pub(super) fn unplug(&mut self, device: DeviceId) {
        match device {
            DeviceId::Nic(index) => self.nics[index].device.disconnect(),
            DeviceId::Vmci => self.vmci.iter_mut().for_each(Vmci::disconnect),
        }
    }

    /// The vNIC that has the address in its network.
    pub(super) fn route(&self, to: Ipv4Addr) -> Result<usize, AgentError> {
        self.nics.iter().position(|nic| nic.reaches(to)).ok_or_else(|| {
            AgentError::new(
                format!("no vNIC of this microguest is in the network of {to}"),
                "a microguest has no routes: give one of its vNICs an address in that network",
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
                    AgentError::new(message, "ask for a port from 1 to 65535")
                })
            }
            Address::Vsock(cid) => Ok(Connection::Vmci(self.vmci()?.connect_to(*cid, port, buffer))),
            Address::Unix(_) => Err(no_unix_sockets(to)),
        }
    }

    /// Begins to wait for connections: who connects from now on is not refused.
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
                return if self.vmci()?.listen(port, buffer) {
                    Ok(Listener::Vmci { port })
                } else {
                    let message = format!("a server listens on VMCI port {port} already");
                    Err(AgentError::new(message, "choose another port, or 0 for any"))
                };
            }
            Some(unix @ Address::Unix(_)) => return Err(no_unix_sockets(unix)),
        };
        let mut waiting = vec![];
        self.wait_for_tcp(address, port, buffer, &mut waiting);
        Ok(Listener::Tcp { address, port, buffer, waiting })
    }

    /// The next connection that has come.
    pub(super) fn accept(&mut self, listener: &mut Listener) -> Option<Connection> {
        match listener {
            Listener::Vmci { port } => self.vmci.as_mut()?.accept(*port).map(Connection::Vmci),
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

    /// Has as many sockets wait as there should be, on each vNIC that is meant.
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

    /// Waits no more.
    pub(super) fn ignore(&mut self, listener: &mut Listener) {
        match listener {
            Listener::Vmci { port } => {
                if let Some(vmci) = &mut self.vmci {
                    vmci.ignore(*port);
                }
            }
            Listener::Tcp { waiting, .. } => {
                waiting.drain(..).for_each(|(nic, handle)| self.nics[nic].abort(handle));
            }
        }
    }

    /// A connection that was neither closed nor aborted.
    pub(super) fn socket(&mut self, connection: Connection) -> Socket<'_> {
        match connection {
            Connection::Tcp(nic, handle) => Socket::Tcp(self.nics[nic].tcp(handle)),
            Connection::Vmci(id) => Socket::Vmci(self.its_vmci().socket(id)),
        }
    }

    /// Closes a connection; what was sent still arrives.
    pub(super) fn close(&mut self, connection: Connection) {
        match connection {
            Connection::Tcp(nic, handle) => self.nics[nic].close(handle),
            Connection::Vmci(id) => self.its_vmci().close(id),
        }
    }

    /// Resets a connection.
    pub(super) fn abort(&mut self, connection: Connection) {
        match connection {
            Connection::Tcp(nic, handle) => self.nics[nic].abort(handle),
            Connection::Vmci(id) => self.its_vmci().abort(id),
        }
    }

    /// The VMCI device, if the machine was given one.
    pub(super) fn vmci(&mut self) -> Result<&mut Vmci, AgentError> {
        self.vmci.as_mut().ok_or_else(|| {
            AgentError::new("this microguest has no VMCI device", "give its VM one: [vmci] in its file")
        })
    }

    fn its_vmci(&mut self) -> &mut Vmci {
        self.vmci.as_mut().expect("a machine that has VMCI connections has the device")
    }

    /// Receives, answers and sends. True if a socket may have changed.
    pub(super) fn poll(&mut self) -> bool {
        let now = self.stack_time();
        let changed = self.nics.iter_mut().fold(false, |changed, nic| nic.poll(now) | changed);
        self.vmci.as_mut().is_some_and(|vmci| vmci.poll(Instant::now())) | changed
    }

    /// Shows the other sides everything sent and taken so far.
    pub(super) fn flush(&mut self) {
        self.nics.iter_mut().for_each(|nic| nic.device.flush());
        self.vmci.iter_mut().for_each(Vmci::flush);
    }

    /// Asks for interrupts. True if something arrived in the meantime.
    pub(super) fn arm(&mut self) -> bool {
        let arrived = self.nics.iter_mut().fold(false, |arrived, nic| nic.device.arm() | arrived);
        self.vmci.as_mut().is_some_and(Vmci::arm) | arrived
    }

    /// Asks for no interrupts.
    pub(super) fn disarm(&mut self) {
        self.nics.iter_mut().for_each(|nic| nic.device.disarm());
        self.vmci.iter_mut().for_each(Vmci::disarm);
    }

    /// What becomes readable when an interrupt comes.
    pub(super) fn interrupts(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_vmci = self.vmci.iter().flat_map(Vmci::interrupts);
        self.nics.iter().flat_map(|nic| nic.device.interrupts()).chain(of_vmci)
    }

    /// Time until a stack wants to be polled though nothing has arrived.
    pub(super) fn poll_delay(&mut self) -> Option<Duration> {
        let now = self.stack_time();
        let of_nics = self.nics.iter_mut().filter_map(|nic| nic.poll_delay(now)).map(Duration::from);
        let deadline = self.vmci.as_ref().and_then(Vmci::next_deadline);
        let of_vmci = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        of_nics.chain(of_vmci).min()
    }

    fn stack_time(&self) -> StackInstant {
        StackInstant::from_micros(i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}

fn no_unix_sockets(address: &Address) -> AgentError {
    AgentError::new(format!("{address} is for programs of the host"), "ask the agent of the host")
}

/// A connection to use: the same for both families.
pub(super) enum Socket<'a> {
    Tcp(&'a mut tcp::Socket<'static>),
    Vmci(vsock::Socket<'a>),
}

impl Socket<'_> {
    /// Is it being established, does it stand, or is there something left to read?
    pub(super) fn is_open(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_open(),
            Self::Vmci(socket) => socket.is_open(),
        }
    }

    /// Will the peer take bytes, now or later?
    pub(super) fn may_send(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.may_send(),
            Self::Vmci(socket) => socket.may_send(),
        }
    }

    /// Is there something to read, or may it come?
    pub(super) fn may_receive(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.may_recv(),
            Self::Vmci(socket) => socket.may_receive(),
        }
    }

    /// Would it take bytes now?
    pub(super) fn can_send(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.can_send(),
            Self::Vmci(socket) => socket.can_send(),
        }
    }

    /// Sends bytes; returns how many it took.
    pub(super) fn send(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Tcp(socket) => socket.send_slice(bytes).unwrap_or(0),
            Self::Vmci(socket) => socket.send(bytes),
        }
    }

    /// Sends up to `len` bytes of which nobody cares what they are; returns how many it took.
    pub(super) fn send_any(&mut self, len: usize) -> usize {
        match self {
            Self::Tcp(socket) => {
                let mut sent = 0;
                while sent < len {
                    match socket.send_slice(&ZEROS[..ZEROS.len().min(len - sent)]) {
                        Ok(count) if count > 0 => sent += count,
                        _ => break,
                    }
                }
                sent
            }
            Self::Vmci(socket) => socket.send_any(&ZEROS, len),
        }
    }

    /// From now on its program only counts what arrives.
    pub(super) fn only_counts(&mut self) {
        match self {
            Self::Tcp(_) => {}
            Self::Vmci(socket) => socket.only_counts(),
        }
    }

    /// Takes bytes that have arrived; returns how many.
    pub(super) fn receive(&mut self, mut into: &mut [u8]) -> usize {
        match self {
            Self::Tcp(socket) => socket.recv_slice(into).unwrap_or(0),
            Self::Vmci(socket) => socket.receive(into.len(), |piece| {
                let (now, later) = std::mem::take(&mut into).split_at_mut(piece.len());
                now.copy_from_slice(piece);
                into = later;
            }),
        }
    }

    /// Shows `look` up to `len` bytes that have arrived, in order, and takes them; returns how many.
    pub(super) fn take(&mut self, len: usize, mut look: impl FnMut(&[u8])) -> usize {
        match self {
            Self::Tcp(socket) => socket
                .recv(|bytes| {
                    let taken = bytes.len().min(len);
                    look(&bytes[..taken]);
                    (taken, taken)
                })
                .unwrap_or(0),
            Self::Vmci(socket) => socket.receive(len, look),
        }
    }

    /// Has the peer confirmed all that was sent, as far as that matters for [`Self::end`]?
    ///
    /// This TCP takes an end at its word even where it has cut the bytes before it to its window, and bytes are then lost
    /// without an error: the end travels alone.
    pub(super) fn may_end(&mut self) -> bool {
        match self {
            Self::Tcp(socket) => socket.send_queue() == 0,
            Self::Vmci(_) => true,
        }
    }

    /// Nothing is sent any more.
    pub(super) fn end(&mut self) {
        match self {
            Self::Tcp(socket) => socket.close(),
            Self::Vmci(socket) => socket.end(),
        }
    }
}
