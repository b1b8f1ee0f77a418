//! The daemon's side of the fabric: keeps one running with the newest configuration. After its
//! death the next one continues with every session and device.
//!
//! A thread of its own, the [`supervisor`], listens to the fabric and restarts it, so that slow
//! parts of the daemon cannot delay that. Other threads call [`Fabric::configure`] and
//! [`Fabric::attach`].

mod abilities;
mod connector;
mod conversation;
pub(crate) mod counters;
mod held;
mod launch;
mod successor;
mod supervisor;
mod upgrade;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use taut_api::error::ErrorKind;
use taut_api::fabric::channel;
use taut_api::fabric::config::{QueuePairMemory, SocketConfig};
use taut_api::fabric::message::Attachment;
use taut_api::fabric::{Abilities, Ability, FabricConfig, ForeignFd, PortId, ToFabric, keep_urgent};
use taut_api::vmci::Cid;
use taut_api::{ApiError, Name};

use crate::board::Board;
use crate::inbox::{CaptureRequest, Inbox};
use crate::interface;
use crate::store::Store;

use abilities::fit;
use connector::Connector;
use held::{GivenBack, Held};
pub(crate) use launch::Paths;
use supervisor::PATIENCE;
use upgrade::Upgrades;

/// Handle of the fabric.
#[derive(Debug, Clone)]
pub(crate) struct Fabric(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    paths: Paths,
    store: Arc<Store>,
    board: Arc<Board>,
    inbox: Inbox,
    /// Set when the daemon ends the fabric: the supervisor starts no other.
    ending: AtomicBool,
    /// The connection, locked while sending to keep messages in order. Taken before `wanted`, which
    /// is never held while sending: the supervisor must be able to read while both directions are
    /// full.
    wire: Mutex<Option<Wire>>,
    wanted: Mutex<Wanted>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
    upgrades: Upgrades,
    connector: Connector,
    /// Counts the fabrics, so that a request of one is never answered to another.
    generation: AtomicU64,
}

/// The connection to the running fabric.
#[derive(Debug)]
struct Wire {
    stream: UnixStream,
    abilities: Abilities,
}

/// State that the next fabric must receive.
#[derive(Debug, Default)]
struct Wanted {
    config: FabricConfig,
    held: Held,
    /// Ports that the newest configuration added. Reports about them before it is in force concern
    /// an earlier port with the same number.
    new_ports: BTreeSet<PortId>,
}

impl Wanted {
    fn has(&self, port: PortId) -> bool {
        owner(&self.config, port).is_some()
    }

    fn is_vmci(&self, port: PortId) -> bool {
        self.config.sockets.iter().any(|wanted| wanted.id == port)
    }

    fn owners(&self) -> BTreeMap<PortId, String> {
        owners(&self.config).map(|(port, owner)| (port, owner.to_owned())).collect()
    }

    fn cids(&self) -> BTreeMap<PortId, Cid> {
        self.config.sockets.iter().map(|socket| (socket.id, socket.cid)).collect()
    }
}

/// Returns the owner of each port, including VMCI devices.
fn owners(config: &FabricConfig) -> impl Iterator<Item = (PortId, &str)> {
    let ports = config.ports.iter().map(|port| (port.id, port.owner.as_str()));
    ports.chain(config.sockets.iter().map(|socket| (socket.id, socket.owner.as_str())))
}

/// Returns the owner of a wanted port.
fn owner(config: &FabricConfig, port: PortId) -> Option<&str> {
    owners(config).find(|(id, _)| *id == port).map(|(_, owner)| owner)
}

impl Fabric {
    /// Creates the handle; [`Fabric::start`] starts the supervisor.
    pub(crate) fn new(paths: Paths, store: Arc<Store>, board: Arc<Board>, inbox: Inbox) -> io::Result<Self> {
        let upgrades = Upgrades::new()?;
        Ok(Self(Arc::new(Shared {
            paths,
            store,
            board,
            inbox,
            ending: AtomicBool::new(false),
            wire: Mutex::new(None),
            wanted: Mutex::default(),
            supervisor: Mutex::new(None),
            upgrades,
            connector: Connector::default(),
            generation: AtomicU64::new(0),
        })))
    }

    /// Adopts the fabric that an earlier daemon left, or starts one. The fabric must be configured
    /// before.
    pub(crate) fn start(&self) -> io::Result<()> {
        let shared = self.0.clone();
        let thread =
            std::thread::Builder::new().name("fabric-supervisor".into()).spawn(move || shared.supervise())?;
        *self.0.supervisor.lock().expect("no holder panics") = Some(thread);
        let shared = self.0.clone();
        std::thread::Builder::new().name("vmci-connector".into()).spawn(move || shared.connect_guests())?;
        Ok(())
    }

    /// Makes `config` the wanted state, unless it is already. The revision is counted here.
    pub(crate) fn configure(&self, config: FabricConfig) {
        let wire = self.0.wire();
        if config == (FabricConfig { revision: config.revision, ..self.0.wanted().config.clone() }) {
            return;
        }
        // A port number that gets a new owner must not keep the old owner's session. The same holds
        // for a VMCI device that gets another context ID: for the fabric that is another device.
        let (before, cids) = {
            let wanted = self.0.wanted();
            (wanted.owners(), wanted.cids())
        };
        let mut kept = config.clone();
        let same_owner = |port: PortId, owner: &str| before.get(&port).is_none_or(|before| *before == owner);
        kept.ports.retain(|port| same_owner(port.id, &port.owner));
        kept.sockets.retain(|socket| same_owner(socket.id, &socket.owner));
        kept.sockets.retain(|socket| cids.get(&socket.id).is_none_or(|before| *before == socket.cid));
        let mut unwanted = Vec::new();
        if owners(&kept).count() < owners(&config).count() {
            unwanted = self.0.renew(wire.as_ref(), kept);
        }
        unwanted.extend(self.0.renew(wire.as_ref(), config));
        drop(wire);
        give_back(unwanted);
    }

    /// Hands the descriptors of an attachment to a port. Devices and listening sockets are kept for
    /// the next fabric.
    pub(crate) fn attach(&self, port: PortId, via: Attachment, fds: Vec<OwnedFd>) {
        if via == Attachment::Connected
            && let Err(error) = fds.iter().try_for_each(keep_urgent)
        {
            tracing::warn!(%port, %error, "what its front end sends as urgent is lost");
        }
        let wire = self.0.wire();
        let mut seen = self.0.board.lock();
        let state = seen.observed.fabric.ports.entry(port).or_default();
        state.attached = true;
        state.session = false;
        drop(seen);
        let fds = self.0.wanted().held.keep(port, &via, fds);
        send(wire.as_ref(), &ToFabric::Attach { port, via }, &fds);
    }

    /// Checks that the running fabric serves the XDP sockets of an interface with so many receive
    /// queues.
    ///
    /// # Errors
    /// The fabric is of an earlier version.
    pub(crate) fn check_xdp(&self, queues: u32) -> Result<(), ApiError> {
        self.0.wire().as_ref().map_or(Ok(()), |wire| abilities::check_xdp(wire.abilities, queues))
    }

    /// Takes the device of a port away, and closes it here and in the fabric: what it uses is then
    /// free for the next one. The port stays.
    pub(crate) fn take_device(&self, port: PortId) {
        let wire = self.0.wire();
        let config = self.0.wanted().config.clone();
        let mut without = config.clone();
        without.ports.retain(|other| other.id != port);
        let mut unwanted = self.0.renew(wire.as_ref(), without);
        unwanted.extend(self.0.renew(wire.as_ref(), config));
        drop(wire);
        give_back(unwanted);
    }

    /// Takes the XDP program of a port's device from its interface: the device is about to be
    /// replaced, and the interface takes no second program.
    pub(crate) fn detach_program(&self, port: PortId) {
        let link = self.0.wanted().held.xdp_link(port);
        if let Some(link) = link {
            interface::detach_program(&link);
        }
    }

    /// Returns the sockets of an interface that are kept for a port.
    pub(crate) fn interface_sockets(&self, port: PortId) -> Vec<Arc<ForeignFd>> {
        self.0.wanted().held.interface_sockets(port)
    }

    /// Gives a VMCI device the socket through which programs on the host reach it, and keeps it for
    /// the next fabric.
    pub(crate) fn listen_for_host(&self, port: PortId, listener: OwnedFd) {
        let wire = self.0.wire();
        self.0.board.lock().observed.fabric.ports.entry(port).or_default().host_socket = true;
        let listener = self.0.wanted().held.keep_host_socket(port, listener);
        send(wire.as_ref(), &ToFabric::HostListener { port }, &[listener]);
    }

    /// Returns the VMs whose memory for queue pairs is wanted and not kept yet, each with the
    /// memory.
    pub(crate) fn missing_queue_pairs(&self) -> Vec<(Name, QueuePairMemory)> {
        let refused = self.0.board.lock().refused_ports.clone();
        let wanted = self.0.wanted();
        let missing = |socket: &SocketConfig| {
            let memory = socket.queue_pairs?;
            let is_kept = wanted.held.has_queue_pairs(socket.id, memory.inode);
            let is_missing = !is_kept && !refused.contains_key(&socket.id);
            is_missing.then_some((connector::vm_of(&socket.owner)?, memory))
        };
        wanted.config.sockets.iter().filter_map(missing).collect()
    }

    /// Hands memory for queue pairs to the VMCI device that is configured with it, and keeps it for
    /// the next fabric.
    pub(crate) fn give_queue_pairs(&self, memory: QueuePairMemory, fd: OwnedFd) {
        let wire = self.0.wire();
        let mut wanted = self.0.wanted();
        let mut sockets = wanted.config.sockets.iter();
        let port = sockets.find(|socket| socket.queue_pairs == Some(memory)).map(|socket| socket.id);
        let Some(port) = port else { return };
        let kept = wanted.held.keep_queue_pairs(port, memory.inode, fd);
        drop(wanted);
        send(wire.as_ref(), &ToFabric::QueuePairMemory { port }, &[kept]);
    }

    /// Asks the fabric to send the frames of a port over a socket, until its other end is closed.
    pub(crate) fn capture(&self, request: CaptureRequest) {
        let CaptureRequest { port, snaplen, directions, socket, done } = request;
        let wire = self.0.wire();
        let can = match &*wire {
            None => Err(ApiError::new(
                ErrorKind::Unavailable,
                "no fabric runs at the moment",
                "try again; `taut events` shows what happened to the last one",
            )),
            Some(Wire { abilities, .. }) if !abilities.has(Ability::Captures) => Err(ApiError::new(
                ErrorKind::Unavailable,
                "the running fabric is of an earlier version that does not capture frames",
                "to replace it while traffic goes on: taut daemon upgrade-fabric",
            )),
            Some(_) => Ok(()),
        };
        if can.is_ok() {
            let socket = Arc::new(ForeignFd::own(socket));
            send(wire.as_ref(), &ToFabric::Capture { port, snaplen, directions }, &[socket]);
        }
        // The receiver may have gone.
        let _ = done.send(can);
    }

    /// Replaces the running fabric by a new process; `done` receives the result.
    pub(crate) fn upgrade(&self, done: upgrade::Done) {
        self.0.upgrades.ask(done);
    }

    /// Ends the fabric and waits for it.
    pub(crate) fn end(&self) {
        self.0.ending.store(true, Ordering::SeqCst);
        send(self.0.wire().as_ref(), &ToFabric::Quit, &[]);
        let supervisor = self.0.supervisor.lock().expect("no holder panics").take();
        if let Some(thread) = supervisor {
            // A supervisor that panicked has printed that; there is nothing left to wait for.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Sends a changed configuration. Returns what is to be given back after the connection is
    /// unlocked.
    #[must_use]
    fn renew(&self, wire: Option<&Wire>, mut config: FabricConfig) -> Vec<GivenBack> {
        let unwanted = {
            let mut wanted = self.wanted();
            config.revision = wanted.config.revision + 1;
            wanted.new_ports = owners(&config).map(|(id, _)| id).filter(|id| !wanted.has(*id)).collect();
            let unwanted = wanted.held.keep_only(&config);
            wanted.config = config.clone();
            let mut seen = self.board.lock();
            seen.observed
                .fabric
                .ports
                .retain(|&port, _| wanted.has(port) && !wanted.new_ports.contains(&port));
            seen.observed
                .fabric
                .quarantined
                .retain(|&port, _| wanted.has(port) && !wanted.new_ports.contains(&port));
            seen.refused_ports.clear();
            seen.groups.retain(|segment, _| config.snooping.contains(segment));
            seen.observed.fabric.ready = false;
            seen.awaits_fabric = wire.is_some();
            unwanted
        };
        send(wire, &ToFabric::Configure(config), &[]);
        unwanted
    }

    /// Notes the ports that the fabric has refused to create, and why.
    fn note_refused(&self, refused: BTreeMap<PortId, String>) {
        let mut wanted = self.wanted();
        for port in refused.keys() {
            wanted.held.forget_queue_pairs(*port);
        }
        drop(wanted);
        self.board.lock().refused_ports = refused;
    }

    fn wire(&self) -> MutexGuard<'_, Option<Wire>> {
        self.wire.lock().expect("no holder panics")
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().expect("no holder panics")
    }
}

/// Gives interfaces back to the host. The kernel's lock of network settings may be held for
/// seconds, so the caller holds no lock that the supervisor needs.
fn give_back(unwanted: Vec<GivenBack>) {
    for GivenBack { promiscuous, link } in unwanted {
        interface::end_membership(&promiscuous);
        if let Some(link) = link {
            interface::detach_program(&link);
        }
    }
}

/// Sends a message if a fabric is connected and understands it. After a failure the connection
/// ends, and the supervisor tells this fabric or the next one everything.
fn send(wire: Option<&Wire>, message: &ToFabric, fds: &[Arc<ForeignFd>]) {
    let Some(Wire { stream, abilities }) = wire else { return };
    let Some(message) = fit(*abilities, message) else { return };
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    if let Err(error) = channel::send_within(stream, &*message, &fds, PATIENCE) {
        tracing::debug!(%error, "the fabric did not take a message");
        // An error means that the fabric has closed the connection already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}
