//! A fabric process and the test's `tautd`.
#![allow(unsafe_code, reason = "descriptors 3 and 4 are put in place between fork and exec")]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use taut_api::MacAddr;
use taut_api::fabric::config::{
    FrontEndRules, PortConfig, PortKind, SegmentId, SocketConfig, WorkerConfig, WorkerMode,
};
use taut_api::fabric::counters::{
    FILE_SIZE, PORT_WORDS, PortCounters, SocketWord, WorkerWord, port_base, worker_base,
};
use taut_api::fabric::message::Attachment;
use taut_api::fabric::{FabricConfig, FromFabric, PROTOCOL, PortId, SessionRecord, ToFabric, channel, fd};
use taut_api::link::Link;
use taut_api::vmci::{self, Cid};
use taut_virtq::counters::SharedWords;

/// Longest wait, which only a failing test reaches.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The last reported state of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) link: Link,
    pub(crate) reason: Option<String>,
    pub(crate) attached: bool,
}

/// A `taut-fabric` process, and everything that its `tautd` knows.
pub(crate) struct Fabric {
    child: Child,
    address: SocketAddr,
    control: UnixStream,
    counters: Arc<OwnedFd>,
    pub(crate) states: HashMap<PortId, State>,
    /// Reasons why memory for queue pairs is not used.
    pub(crate) unused_queue_pairs: HashMap<PortId, String>,
    pub(crate) sessions: HashMap<PortId, (SessionRecord, Vec<OwnedFd>)>,
    /// TAP devices and listening sockets that this connection was told of.
    pub(crate) attached: Vec<(PortId, Attachment)>,
    /// Ports whose attachments were prepared, with the reasons of refused ones.
    prepared: Vec<(PortId, Option<String>)>,
    pub(crate) ended: Vec<(PortId, String)>,
    /// Answers to pings: milliseconds without progress.
    pub(crate) pongs: Vec<u64>,
    /// Ports whose front end has harmed the fabric.
    pub(crate) quarantined: Vec<PortId>,
    pub(crate) configured: Option<(u64, Vec<(PortId, String)>)>,
    /// Guests' connections to the host: device, number of the question, port.
    pub(crate) questions: Vec<(PortId, u32, u32)>,
    pub(crate) violations: Vec<(PortId, String)>,
    /// Host connections that were handed over.
    streams: Vec<(u32, OwnedFd)>,
    revision: u64,
}

impl Fabric {
    pub(crate) fn start() -> Self {
        let counters = memfd_create("counters", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&counters, FILE_SIZE).unwrap();
        Self::with_counters(Arc::new(counters))
    }

    fn with_counters(counters: Arc<OwnedFd>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("taut-fabric-test/{}/{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let child = spawn(listener.as_fd(), counters.as_fd());
        let control = UnixStream::connect_addr(&address).unwrap();
        control.set_nonblocking(true).unwrap();
        let mut fabric = Self {
            child,
            address,
            control,
            counters,
            states: HashMap::new(),
            unused_queue_pairs: HashMap::new(),
            sessions: HashMap::new(),
            prepared: Vec::new(),
            ended: Vec::new(),
            pongs: Vec::new(),
            quarantined: Vec::new(),
            configured: None,
            questions: Vec::new(),
            violations: Vec::new(),
            attached: Vec::new(),
            streams: Vec::new(),
            revision: 0,
        };
        fabric.hello();
        fabric
    }

    /// Kills the process with SIGKILL, and starts another one with the sessions that `tautd` has.
    pub(crate) fn kill_and_replace(mut self) -> Self {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // Messages that it sent before it died count.
        while let Ok(Some((message, fds))) = channel::receive_within(&self.control, PATIENCE) {
            self.note(message, fds);
        }
        self.replacement()
    }

    /// Starts another process in standby, with the sessions that `tautd` has. The old process must
    /// have ended.
    pub(crate) fn replacement(mut self) -> Self {
        let mut next = self.beside();
        next.send(&ToFabric::StandBy, &[]);
        next.sessions = std::mem::take(&mut self.sessions);
        next
    }

    /// Starts another process without sessions.
    pub(crate) fn beside(&self) -> Self {
        Self::with_counters(Arc::clone(&self.counters))
    }

    /// Closes the connection of `tautd` for good, and waits for the process to end.
    pub(crate) fn hang_up(mut self) {
        self.control.shutdown(std::net::Shutdown::Both).unwrap();
        self.child.wait().unwrap();
    }

    /// Lets another process take over while this one serves, as `tautd` does for an upgrade.
    pub(crate) fn upgrade(self, ports: Vec<PortConfig>) -> Self {
        self.upgrade_to(|next| next.configure(ports))
    }

    /// The same, with a configuration of the process in standby by `configure`.
    pub(crate) fn upgrade_to(mut self, configure: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.beside();
        next.stand_by_for(&self, configure);
        self.send(&ToFabric::Quit, &[]);
        loop {
            match self.receive() {
                FromFabric::Stopped => break,
                FromFabric::Session(SessionRecord { port, .. }) => {
                    let (record, fds) = &self.sessions[&port];
                    next.attach(port, Attachment::Session(record.clone()), fds);
                }
                _ => {}
            }
        }
        for (connection, stream) in self.streams.drain(..) {
            next.send(&ToFabric::HostStreams { connections: vec![connection] }, &[stream.as_fd()]);
        }
        next.sessions = std::mem::take(&mut self.sessions);
        next.take_over();
        next
    }

    /// Stands by with all sessions of another process.
    pub(crate) fn stand_by_for(&mut self, other: &Self, configure: impl FnOnce(&mut Self)) {
        self.send(&ToFabric::StandBy, &[]);
        configure(self);
        self.prepare(&other.sessions);
        assert!(self.prepared.iter().all(|(_, refused)| refused.is_none()), "{:?}", self.prepared);
    }

    fn prepare(&mut self, sessions: &HashMap<PortId, (SessionRecord, Vec<OwnedFd>)>) {
        for (port, (record, fds)) in sessions {
            self.attach(*port, Attachment::Session(record.clone()), fds);
        }
        self.until(|next| next.prepared.len() == sessions.len());
    }

    /// Hands all sessions over and has them served at once, as `tautd` does after a crash: frames
    /// to a port that is not served yet would be dropped.
    pub(crate) fn resume(&mut self) {
        let sessions = std::mem::take(&mut self.sessions);
        self.prepare(&sessions);
        self.sessions = sessions;
        self.take_over();
    }

    /// Serves the sessions, which are not sent to `tautd` again.
    fn take_over(&mut self) {
        let ports = self.sessions.keys().copied().collect();
        self.send(&ToFabric::TakeOver { ports }, &[]);
        while self.receive() != FromFabric::TookOver {}
    }

    /// Sends the greeting, and expects its answer as the first message.
    pub(crate) fn hello(&mut self) {
        self.send(&ToFabric::Hello { protocol: PROTOCOL }, &[]);
        let welcome = self.receive();
        assert!(matches!(welcome, FromFabric::Welcome { protocol: PROTOCOL, .. }), "{welcome:?}");
    }

    /// Closes the connection of `tautd`.
    pub(crate) fn disconnect(&mut self) {
        self.control.shutdown(std::net::Shutdown::Both).unwrap();
    }

    /// Closes the connection of `tautd`, and connects a new one that knows nothing.
    pub(crate) fn reconnect(&mut self) {
        self.connect_without_greeting();
        self.hello();
    }

    /// Connects a new `tautd` that knows nothing and sends nothing yet.
    pub(crate) fn connect_without_greeting(&mut self) {
        self.control = UnixStream::connect_addr(&self.address).unwrap();
        self.control.set_nonblocking(true).unwrap();
        self.states.clear();
        self.sessions.clear();
        self.attached.clear();
    }

    pub(crate) fn send(&self, message: &ToFabric, fds: &[BorrowedFd<'_>]) {
        channel::send_within(&self.control, message, fds, PATIENCE).unwrap();
    }

    pub(crate) fn configure(&mut self, ports: Vec<PortConfig>) {
        let workers = WorkerConfig { mode: WorkerMode::Adaptive { poll_us: 10 }, ..WorkerConfig::default() };
        self.configure_with(ports, workers);
    }

    pub(crate) fn configure_with(&mut self, ports: Vec<PortConfig>, workers: WorkerConfig) {
        self.configure_all(FabricConfig { ports, workers, ..FabricConfig::default() });
    }

    /// Configures only vsock devices.
    pub(crate) fn configure_sockets(&mut self, sockets: Vec<SocketConfig>) {
        self.configure_all(FabricConfig { sockets, ..FabricConfig::default() });
    }

    pub(crate) fn configure_all(&mut self, config: FabricConfig) {
        self.revision += 1;
        let config = FabricConfig { revision: self.revision, ..config };
        self.send(&ToFabric::Configure(config), &[]);
        let revision = self.revision;
        self.until(|fabric| fabric.configured.as_ref().is_some_and(|(now, _)| *now == revision));
    }

    pub(crate) fn attach(&self, port: PortId, via: Attachment, fds: &[OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        self.send(&ToFabric::Attach { port, via }, &fds);
    }

    /// Attaches one end of a new connection and returns the other.
    pub(crate) fn connect(&self, port: PortId) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.attach(port, Attachment::Connected, &[theirs.into()]);
        ours
    }

    /// Receives messages until a condition holds.
    pub(crate) fn until(&mut self, mut so: impl FnMut(&Self) -> bool) {
        while !so(self) {
            self.receive();
        }
    }

    pub(crate) fn until_link(&mut self, port: PortId, link: Link) -> State {
        self.until(|fabric| fabric.states.get(&port).is_some_and(|state| state.link == link));
        self.states[&port].clone()
    }

    /// Receives all messages sent so far. A `tautd` that does not read is disconnected.
    pub(crate) fn hear(&mut self) {
        let waits = |fabric: &Self| {
            let mut control = [PollFd::new(&fabric.control, PollFlags::IN)];
            poll(&mut control, Some(&Timespec::default())).unwrap() > 0
        };
        while waits(self) {
            self.receive();
        }
    }

    fn receive(&mut self) -> FromFabric {
        let received = channel::receive_within(&self.control, PATIENCE).unwrap();
        let (message, fds): (FromFabric, _) = received.expect("the fabric closed the connection");
        self.note(message.clone(), fds);
        message
    }

    fn note(&mut self, message: FromFabric, fds: Vec<OwnedFd>) {
        match message {
            FromFabric::Prepared { port, refused } => self.prepared.push((port, refused)),
            FromFabric::Welcome { .. }
            | FromFabric::TookOver
            | FromFabric::TakesNothing { .. }
            | FromFabric::CloseBlocked { .. }
            | FromFabric::HostSocketFull { .. }
            | FromFabric::Groups { .. }
            | FromFabric::Stopped => {}
            FromFabric::Pong { silent_ms } => self.pongs.push(silent_ms),
            FromFabric::HostConnect { port, request, to } => self.questions.push((port, request, to)),
            FromFabric::HostStreams { connections } => {
                assert_eq!(connections.len(), fds.len());
                self.streams.extend(connections.into_iter().zip(fds));
            }
            FromFabric::Violation { port, what } => self.violations.push((port, what)),
            FromFabric::Configured { revision, refused } => self.configured = Some((revision, refused)),
            FromFabric::Attached { port, via } => {
                assert_eq!(fds.len(), 1);
                assert!(!self.sessions.contains_key(&port), "the session comes after it");
                self.attached.push((port, via));
            }
            FromFabric::Session(record) => {
                assert_eq!(record.descriptors().len(), fds.len());
                self.sessions.insert(record.port, (record, fds));
            }
            FromFabric::SessionEnded { port, reason, quarantined } => {
                self.sessions.remove(&port);
                self.ended.push((port, reason));
                self.quarantined.extend(quarantined.then_some(port));
            }
            FromFabric::PortState { port, link, reason, attached, unused_queue_pairs } => {
                self.states.insert(port, State { link, reason, attached });
                self.unused_queue_pairs.remove(&port);
                self.unused_queue_pairs.extend(unused_queue_pairs.map(|why| (port, why)));
            }
        }
    }

    /// Asks the process to end, reads the connection to its end, and waits for the process.
    pub(crate) fn quit(&mut self) -> ExitStatus {
        self.send(&ToFabric::Quit, &[]);
        while let Ok(Some((message, fds))) = channel::receive_within(&self.control, PATIENCE) {
            self.note(message, fds);
        }
        self.child.wait().unwrap()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A word of a worker's counters.
    pub(crate) fn worker(&self, worker: usize, word: WorkerWord) -> u64 {
        let words = SharedWords::map(self.counters.as_fd(), FILE_SIZE as usize / 8).unwrap();
        words.words()[worker_base(worker) + word as usize].load(Ordering::Relaxed)
    }

    /// A word of a vsock device's counters.
    pub(crate) fn socket_word(&self, port: PortId, word: SocketWord) -> u64 {
        let words = SharedWords::map(self.counters.as_fd(), FILE_SIZE as usize / 8).unwrap();
        words.words()[port_base(port) + word as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn counters(&self, port: PortId) -> PortCounters {
        let words = SharedWords::map(self.counters.as_fd(), FILE_SIZE as usize / 8).unwrap();
        let mut block = [0; PORT_WORDS];
        for (word, shared) in block.iter_mut().zip(&words.words()[port_base(port)..]) {
            *word = shared.load(Ordering::Relaxed);
        }
        PortCounters::from_words(&block)
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(listener: BorrowedFd<'_>, counters: BorrowedFd<'_>) -> Child {
    let (listener, counters) = (listener.as_raw_fd(), counters.as_raw_fd());
    let mut command = Command::new(env!("CARGO_BIN_EXE_taut-fabric"));
    command.env("TAUT_LOG", "warn");
    let place = move || {
        // First duplicate both to unused numbers: each may have the number that the other needs.
        let mut free = [(listener, fd::CONTROL), (counters, fd::COUNTERS)];
        for (from, _) in &mut free {
            // SAFETY: fcntl is async-signal-safe and touches only the child's descriptors.
            *from = unsafe { libc::fcntl(*from, libc::F_DUPFD_CLOEXEC, fd::COUNTERS + 1) };
        }
        for (from, to) in free {
            // SAFETY: dup2 is async-signal-safe, and refuses the -1 of a failed fcntl.
            if unsafe { libc::dup2(from, to) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `place` only calls fcntl and dup2.
    unsafe { command.pre_exec(place) };
    command.spawn().unwrap()
}

/// The configuration of a vNIC's port with the address [`mac`].
pub(crate) fn vnic(id: u16, segment: u16) -> PortConfig {
    PortConfig {
        lro: true,
        ..PortConfig::new(
            PortId(id),
            format!("vm/guest{id}/nic0"),
            PortKind::VhostUser { offloads: true, queue_pairs: 1 },
            SegmentId(segment),
            mac(id),
        )
    }
}

/// The configuration of a vsock device in these domains. Its context ID is its number plus 100.
pub(crate) fn socket(id: u16, domains: &[&str]) -> SocketConfig {
    SocketConfig {
        id: PortId(id),
        owner: format!("vm/guest{id}/vmci"),
        cid: Cid(cid(id) as u32),
        domains: domains.iter().map(|name| name.parse().unwrap()).collect(),
        unrestricted: false,
        connections: vmci::CONNECTIONS,
        half_open: vmci::HALF_OPEN,
        front_end: FrontEndRules::default(),
        queue_pairs: None,
    }
}

/// The context ID of a vsock device.
pub(crate) fn cid(id: u16) -> u64 {
    u64::from(id) + 100
}

/// The address of a port.
pub(crate) fn mac(id: u16) -> MacAddr {
    let [high, low] = id.to_be_bytes();
    MacAddr([2, 0x11, 0, 0, high, low])
}
