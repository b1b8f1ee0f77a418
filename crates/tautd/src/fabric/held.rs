//! Duplicates of all descriptors that ports work on, for the next fabric.
//!
//! The other ends of these are strangers. A duplicate may be the last one, and closing it may wait
//! for them. Threads of their own close what is dropped here, under whatever lock.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use taut_api::fabric::message::Attachment;
use taut_api::fabric::{ClosingQueue, FabricConfig, ForeignFd, PortId, SessionRecord, ToFabric};

use super::owner;

/// Place of the program's link among the descriptors of an XDP socket.
const LINK: usize = 3;
/// Place of the socket that makes its interface promiscuous.
const PROMISCUOUS: usize = 4;
/// Place of the socket of the interface's second queue. Its memory and those of further queues
/// follow.
const OTHER_QUEUES: usize = 5;

/// Descriptors of an interface that is given back, whose effects end at once. The fabric has
/// duplicates of them for a while still.
#[derive(Debug)]
pub(super) struct GivenBack {
    /// The packet socket that makes the interface promiscuous.
    pub(super) promiscuous: Arc<ForeignFd>,
    /// The link of its XDP program.
    pub(super) link: Option<Arc<ForeignFd>>,
}

impl GivenBack {
    /// Picks them from the descriptors of a device; `None` if it is no interface of the host.
    fn of(via: &Attachment, fds: &[Arc<ForeignFd>]) -> Option<Self> {
        let fd = |place| fds.get(place).map(Arc::clone);
        match via {
            Attachment::Packet(_) => Some(Self { promiscuous: fd(0)?, link: None }),
            Attachment::Xdp(_) => Some(Self { promiscuous: fd(PROMISCUOUS)?, link: fd(LINK) }),
            _ => None,
        }
    }
}

/// A message that gives a port something, with its descriptors.
pub(super) type Attach = (PortId, ToFabric, Vec<Arc<ForeignFd>>);

/// Descriptors for the next fabric, by port.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<PortId, Port>);

/// Descriptors of a port. A listening port may also have a session.
#[derive(Debug)]
struct Port {
    strangers: ClosingQueue,
    /// Closes connections to programs on the host that listen for a VMCI device.
    programs: ClosingQueue,
    /// Device or listening socket: its descriptors as they were attached.
    device: Option<(Attachment, Vec<Arc<ForeignFd>>)>,
    session: Option<(SessionRecord, Vec<Arc<ForeignFd>>)>,
    /// Sockets through which programs on the host connect to VMCI devices. They are independent of
    /// the devices' front ends.
    host: Option<Arc<ForeignFd>>,
    /// Memory for queue pairs of a VMCI device, with the number of its file.
    queue_pairs: Option<(u64, Arc<ForeignFd>)>,
}

impl Port {
    fn new(port: PortId) -> Self {
        let strangers = ClosingQueue::new(port);
        Self {
            programs: strangers.beside(),
            strangers,
            device: None,
            session: None,
            host: None,
            queue_pairs: None,
        }
    }

    fn serves(&self) -> bool {
        self.device.is_some() || self.session.is_some()
    }
}

impl Held {
    fn port(&mut self, port: PortId) -> &mut Port {
        self.0.entry(port).or_insert_with(|| Port::new(port))
    }

    /// Takes a descriptor at whose other end is a stranger of a port.
    pub(super) fn foreign(&mut self, port: PortId, fd: OwnedFd) -> Arc<ForeignFd> {
        let strangers = match self.0.get(&port) {
            Some(port) => &port.strangers,
            None => &ClosingQueue::new(port),
        };
        Arc::new(ForeignFd::new(fd, strangers))
    }

    /// The queue of connections to programs that listen for a VMCI device. It is not that of the
    /// front end, which would lose its port for what a program sends.
    pub(super) fn queue_of_programs(&self, port: PortId) -> ClosingQueue {
        self.0.get(&port).map_or_else(|| ClosingQueue::new(port), |port| port.programs.clone())
    }

    /// Keeps a device or listening socket. A plain connection is not kept: its negotiated state
    /// comes as a session, and a connection without a session is opened anew.
    pub(super) fn keep(&mut self, port: PortId, via: &Attachment, fds: Vec<OwnedFd>) -> Vec<Arc<ForeignFd>> {
        let port = self.port(port);
        let fds: Vec<_> = ForeignFd::all(fds, &port.strangers).into_iter().map(Arc::new).collect();
        let device = match via {
            Attachment::Tap { .. } | Attachment::Packet(_) | Attachment::Xdp(_) | Attachment::Listening => {
                Some((via.clone(), fds.clone()))
            }
            Attachment::Connected | Attachment::Session(_) => None,
        };
        port.device = device;
        port.session = None;
        fds
    }

    /// Keeps a device or listening socket that the fabric has, unless this daemon keeps one
    /// already: that is the one that the port was given last.
    pub(super) fn keep_found(&mut self, port: PortId, via: &Attachment, fds: Vec<OwnedFd>) {
        let port = self.port(port);
        let fds = ForeignFd::all(fds, &port.strangers).into_iter().map(Arc::new).collect();
        port.device.get_or_insert_with(|| (via.clone(), fds));
    }

    /// Returns the sockets of an interface that is a port's device: an XDP socket for each queue,
    /// or one packet socket.
    pub(super) fn interface_sockets(&self, port: PortId) -> Vec<Arc<ForeignFd>> {
        let Some((via, fds)) = self.0.get(&port).and_then(|held| held.device.as_ref()) else {
            return Vec::new();
        };
        let others = match via {
            Attachment::Packet(_) => None,
            Attachment::Xdp(_) => fds.get(OTHER_QUEUES..),
            _ => return Vec::new(),
        };
        let others = others.unwrap_or_default().iter().step_by(2);
        fds.first().into_iter().chain(others).map(Arc::clone).collect()
    }

    /// Keeps the socket through which programs on the host reach a VMCI device.
    pub(super) fn keep_host_socket(&mut self, port: PortId, listener: OwnedFd) -> Arc<ForeignFd> {
        let port = self.port(port);
        let listener = Arc::new(ForeignFd::new(listener, &port.strangers));
        port.host = Some(Arc::clone(&listener));
        listener
    }

    /// Keeps the memory for queue pairs of a VMCI device. Its close does not wait.
    pub(super) fn keep_queue_pairs(&mut self, port: PortId, inode: u64, memory: OwnedFd) -> Arc<ForeignFd> {
        let memory = Arc::new(ForeignFd::own(memory));
        self.port(port).queue_pairs = Some((inode, Arc::clone(&memory)));
        memory
    }

    /// Closes the memory for queue pairs of a device that the fabric has refused. Once the fabric
    /// has the device, the memory is missing and is given again.
    pub(super) fn forget_queue_pairs(&mut self, port: PortId) {
        if let Some(port) = self.0.get_mut(&port) {
            port.queue_pairs = None;
        }
    }

    /// Returns whether this memory of a VMCI device is kept.
    pub(super) fn has_queue_pairs(&self, port: PortId, inode: u64) -> bool {
        self.0.get(&port).and_then(|held| held.queue_pairs.as_ref()).is_some_and(|(held, _)| *held == inode)
    }

    /// Keeps the newest state of a session. Its first descriptor is the connection; the fabric has
    /// checked that the close of the others does not wait, or trusts the front end.
    pub(super) fn keep_session(&mut self, record: SessionRecord, fds: Vec<OwnedFd>) {
        let port = self.port(record.port);
        let mut fds = ForeignFd::all(fds, &port.strangers);
        fds.iter_mut().skip(1).for_each(ForeignFd::admit);
        let fds = fds.into_iter().map(Arc::new).collect();
        port.session = Some((record, fds));
    }

    /// Closes the duplicates of a session that ended.
    pub(super) fn end_session(&mut self, port: PortId) {
        if let Some(port) = self.0.get_mut(&port) {
            port.session = None;
        }
    }

    /// Closes the descriptors of a port without a working device.
    pub(super) fn release(&mut self, port: PortId) {
        if let Some(port) = self.0.get_mut(&port) {
            port.device = None;
            port.session = None;
        }
    }

    /// Closes the descriptors of ports, and the memory for queue pairs, that are no longer wanted.
    /// Returns those of interfaces of the host.
    pub(super) fn keep_only(&mut self, config: &FabricConfig) -> Vec<GivenBack> {
        let wanted: BTreeMap<_, _> = config.sockets.iter().map(|socket| (socket.id, socket)).collect();
        for (id, port) in &mut self.0 {
            let memory = wanted.get(id).and_then(|socket| socket.queue_pairs);
            port.queue_pairs.take_if(|(inode, _)| memory.is_none_or(|memory| memory.inode != *inode));
        }
        let unwanted: Vec<_> = self.0.keys().copied().filter(|port| owner(config, *port).is_none()).collect();
        let devices = unwanted.into_iter().filter_map(|port| self.0.remove(&port)?.device);
        devices.filter_map(|(via, fds)| GivenBack::of(&via, &fds)).collect()
    }

    /// Returns the link of the XDP program of a port's device, if it has one.
    pub(super) fn xdp_link(&self, port: PortId) -> Option<Arc<ForeignFd>> {
        let (via, fds) = self.0.get(&port)?.device.as_ref()?;
        GivenBack::of(via, fds)?.link
    }

    /// Returns the ports that are served and have more descriptors waiting for their close than a
    /// port may have.
    pub(super) fn clogged(&self) -> Vec<PortId> {
        let clogged = self.0.iter().filter(|(_, port)| port.serves() && port.strangers.is_clogged());
        clogged.map(|(&id, _)| id).collect()
    }

    /// Returns whether the port has a session.
    pub(super) fn has_session(&self, port: PortId) -> bool {
        self.0.get(&port).is_some_and(|port| port.session.is_some())
    }

    /// Returns the messages that give a new fabric the memory for queue pairs of VMCI devices. They
    /// have no answer. They go before all others: a guest whose device is served may ask for queue
    /// pairs at once.
    pub(super) fn queue_pairs(&self) -> Vec<Attach> {
        let memory = self.0.iter().filter_map(|(&port, held)| Some((port, held.queue_pairs.clone()?.1)));
        memory.map(|(port, fd)| (port, ToFabric::QueuePairMemory { port }, vec![fd])).collect()
    }

    /// Returns the messages that give a new fabric the host sockets of VMCI devices. They have no
    /// answer. They go behind all others: clients that come before the device is served are
    /// refused.
    pub(super) fn host_sockets(&self) -> Vec<Attach> {
        let sockets = self.0.iter().filter_map(|(&port, held)| Some((port, held.host.clone()?)));
        sockets.map(|(port, fd)| (port, ToFabric::HostListener { port }, vec![fd])).collect()
    }

    /// Returns the messages that give a new fabric everything.
    pub(super) fn messages(&self) -> Vec<Attach> {
        self.0.keys().flat_map(|&port| self.messages_of(port)).collect()
    }

    /// Returns the messages that give a new fabric the descriptors of one port. A listening socket
    /// precedes the session that was begun on it.
    pub(super) fn messages_of(&self, port: PortId) -> Vec<Attach> {
        let mut messages = Vec::new();
        if let Some(held) = self.0.get(&port) {
            if let Some((via, fds)) = &held.device {
                messages.push((port, ToFabric::Attach { port, via: via.clone() }, fds.clone()));
            }
            if let Some((record, fds)) = &held.session {
                let via = Attachment::Session(record.clone());
                messages.push((port, ToFabric::Attach { port, via }, fds.clone()));
            }
        }
        messages
    }

    /// Iterates over the ports that have descriptors.
    pub(super) fn ports(&self) -> Vec<PortId> {
        self.0.iter().filter(|(_, port)| port.serves()).map(|(&id, _)| id).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::net::UnixStream;

    use taut_api::Bytes;
    use taut_api::fabric::config::{FrontEndRules, QueuePairMemory, SocketConfig};
    use taut_api::vmci::Cid;

    use super::*;

    #[test]
    fn programs_on_the_host_do_not_use_the_queue_of_the_front_end() {
        let mut held = Held::default();
        let (front_end, program) = UnixStream::pair().unwrap();
        held.keep(PortId(1), &Attachment::Listening, vec![front_end.into()]);
        let program = ForeignFd::new(program.into(), &held.queue_of_programs(PortId(1)));
        let port = &held.0[&PortId(1)];
        assert!(port.programs.is_used() && program.is_of(&port.programs));
        assert!(!program.is_of(&port.strangers));
    }

    #[test]
    fn memory_for_queue_pairs_is_kept_until_the_vm_has_another() {
        const PORT: PortId = PortId(1);
        let mut held = Held::default();
        let memory = || std::fs::File::open("/dev/zero").unwrap().into();
        let configured = |inode| {
            let memory = QueuePairMemory { inode, offset: Bytes::mib(2), size: Bytes::mib(4), ring: None };
            let device = SocketConfig { queue_pairs: Some(memory), ..socket(PORT) };
            FabricConfig { sockets: vec![device], ..FabricConfig::default() }
        };
        held.keep_queue_pairs(PORT, 7, memory());
        held.keep_only(&configured(7));
        assert!(held.has_queue_pairs(PORT, 7) && !held.has_queue_pairs(PORT, 8));
        let [(port, message, fds)] = held.queue_pairs().try_into().unwrap();
        assert_eq!((port, message, fds.len()), (PORT, ToFabric::QueuePairMemory { port: PORT }, 1));
        held.keep_only(&configured(8));
        assert!(!held.has_queue_pairs(PORT, 7) && held.queue_pairs().is_empty());
        held.keep_queue_pairs(PORT, 8, memory());
        let without = FabricConfig { sockets: vec![socket(PORT)], ..FabricConfig::default() };
        held.keep_only(&without);
        assert!(!held.has_queue_pairs(PORT, 8), "the VM is off");
    }

    /// A VMCI device without queue pairs.
    pub(in crate::fabric) fn socket(id: PortId) -> SocketConfig {
        SocketConfig {
            id,
            owner: "vm/a/vmci".to_owned(),
            cid: Cid(3),
            domains: Vec::new(),
            unrestricted: false,
            connections: 1,
            half_open: 1,
            front_end: FrontEndRules::default(),
            queue_pairs: None,
        }
    }
}
