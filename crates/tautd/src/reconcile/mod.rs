//! The loop that makes the host what the store says: observe, plan, apply; at every change and every second.

mod apply;
mod groups;
mod latency;
mod machine;
mod memory;
mod observe;
mod passthrough;
mod precedence;
mod probe;
mod shutdown;
mod tune;
mod vmci;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use taut_api::enforcement::HostPlan;
use taut_api::machine::DiskLimits;
use taut_api::passthrough::PciAddress;
use taut_api::route::UpgradedFabric;
use taut_api::{ApiError, Name};
use taut_host::exclusive::Exclusive;
use taut_host::groups::Groups;
use taut_host::migrate::Mover;
use taut_host::pci::bind::Binder;
use taut_host::precedence::Precedence;
use taut_plan::placement::problem::Grant;
use taut_plan::{Plan, plan};
use tokio::sync::oneshot;

pub(crate) use passthrough::admit as admit_devices;

use crate::board::Board;
use crate::fabric::{Fabric, counters::Counters};
use crate::store::Store;
use crate::vms::Vms;

/// Longest time between two looks at the host.
const CALM: Duration = Duration::from_secs(1);
/// The same while something is awaited that sends no notice of itself: a socket of a front end.
const WAITING: Duration = Duration::from_millis(250);
/// The same for a while after a start, and while memory is moved.
const ATTENTIVE: Duration = Duration::from_millis(15);
/// How long after a start sockets are expected any moment.
const ATTENTION: Duration = Duration::from_secs(10);

/// What the loop is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// Something changed: look.
    Wake,
    /// A VM is to be started, again if it failed.
    Start,
    /// Everything that was changed on the host is to be put back.
    RestoreHost(oneshot::Sender<Result<(), ApiError>>),
    /// A VM's disk has these limits now.
    DiskLimited(Name, DiskLimits),
    /// A VM's process is to end now.
    Kill(Name),
    /// Another fabric is to take over from the one that runs.
    UpgradeFabric(oneshot::Sender<Result<UpgradedFabric, ApiError>>),
    /// The daemon is to end; `done` is told when that may happen.
    Shutdown {
        /// VMs, attachments and fabric are to end first.
        everything: bool,
        /// Told when all of it has ended.
        done: oneshot::Sender<()>,
    },
}

/// Where the loop is told things.
#[derive(Debug, Clone)]
pub(crate) struct Inbox(Sender<Message>);

impl Inbox {
    /// An inbox and its other end.
    pub(crate) fn new() -> (Self, Receiver<Message>) {
        let (sender, receiver) = channel();
        (Self(sender), receiver)
    }

    /// Tells the loop. One that has ended needs to know nothing any more.
    pub(crate) fn send(&self, message: Message) {
        let _ = self.0.send(message);
    }
}

/// The loop and what only it may touch.
#[derive(Debug)]
pub(crate) struct Reconciler {
    store: Arc<Store>,
    board: Arc<Board>,
    fabric: Fabric,
    counters: Arc<Counters>,
    vms: Vms,
    libexec: PathBuf,
    inbox: Inbox,
    messages: Receiver<Message>,
    /// Whose counters each port number counts.
    counted: BTreeMap<u16, String>,
    /// When a failed attachment, or plugging in a VMCI device again, is tried again, by document or owner.
    retries: BTreeMap<String, Instant>,
    attentive_until: Instant,
    /// Where the load's present interval began, while it is tested.
    tune_look: Option<tune::Look>,
    /// Exclusive pCPUs of VMs that run or are about to start, by the last plan.
    grants: BTreeMap<Name, Grant>,
    /// The wanted state of the host, by the last plan.
    host_plan: HostPlan,
    /// Moves it.
    mover: Mover,
    /// Takes devices from the host and gives them back.
    binder: Binder,
    /// Devices that are taken, and whose they are.
    devices: BTreeMap<PciAddress, Name>,
    /// What is changed on the host for them.
    exclusive: Exclusive,
    /// The control groups by which they get it.
    groups: Groups,
    /// Who goes first beside them.
    precedence: Precedence,
    /// What could not be done about that, told already.
    unsettled: Vec<String>,
    /// How guests run here, while that is found out.
    probe: Option<probe::Probe>,
    /// Where everything was put back at the user's wish: the revision that this holds for.
    restored_at: Option<u64>,
}

/// What a [`Reconciler`] works with.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Documents and events.
    pub(crate) store: Arc<Store>,
    /// What was last seen.
    pub(crate) board: Arc<Board>,
    /// The data plane.
    pub(crate) fabric: Fabric,
    /// Its counters.
    pub(crate) counters: Arc<Counters>,
    /// The VMs that were found.
    pub(crate) vms: Vms,
    /// Folder of taut's programs.
    pub(crate) libexec: PathBuf,
    /// What is changed on the host for VMs, and what an earlier daemon left.
    pub(crate) exclusive: Exclusive,
    /// Takes devices from the host and gives them back.
    pub(crate) binder: Binder,
    /// Devices that an earlier daemon took, and whose they are.
    pub(crate) devices: BTreeMap<PciAddress, Name>,
    /// Control groups of VMs, and those that an earlier daemon left.
    pub(crate) groups: Groups,
    /// Who goes before others, and what an earlier daemon left of that.
    pub(crate) precedence: Precedence,
    /// The loop's own inbox.
    pub(crate) inbox: Inbox,
    /// The inbox's other end.
    pub(crate) messages: Receiver<Message>,
}

impl Reconciler {
    /// The loop, not yet running.
    pub(crate) fn new(parts: Parts) -> Self {
        let numbers = parts.store.state().desired.numbers.ports.clone();
        groups::note_controllers(&parts.groups, &parts.board);
        Self {
            store: parts.store,
            board: parts.board,
            fabric: parts.fabric,
            counters: parts.counters,
            vms: parts.vms,
            libexec: parts.libexec,
            inbox: parts.inbox,
            messages: parts.messages,
            counted: numbers.into_iter().map(|(owner, number)| (number, owner)).collect(),
            retries: BTreeMap::new(),
            attentive_until: Instant::now() + ATTENTION,
            tune_look: None,
            grants: BTreeMap::new(),
            host_plan: HostPlan::default(),
            mover: Mover::new(Path::new("/")),
            binder: parts.binder,
            devices: parts.devices,
            exclusive: parts.exclusive,
            groups: parts.groups,
            precedence: parts.precedence,
            unsettled: Vec::new(),
            probe: None,
            restored_at: None,
        }
    }

    /// Runs until the daemon is to end.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        self.recall()?;
        self.probe();
        for (name, watch) in self.vms.watches() {
            self.watch(&name, watch);
        }
        // The first configuration has to be there before a fabric that runs is told one.
        let first = self.plan();
        self.fabric.configure(first.fabric);
        self.fabric.start()?;
        loop {
            let pause = self.round();
            let mut next = match self.messages.recv_timeout(pause) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                // Cannot be: this loop holds a sender itself.
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            while let Some(message) = next {
                match message {
                    Message::Wake => {}
                    Message::Start => self.probe_if_needed(),
                    Message::RestoreHost(done) => {
                        // Whoever asked may have gone.
                        let _ = done.send(self.restore_host());
                    }
                    Message::DiskLimited(name, limits) => self.vms.disk_is_limited(&name, limits),
                    Message::Kill(name) => self.vms.kill(&name),
                    Message::UpgradeFabric(done) => self.fabric.upgrade(done),
                    Message::Shutdown { everything, done } => {
                        self.shut_down(everything);
                        // Whoever asked may have gone.
                        let _ = done.send(());
                        return Ok(());
                    }
                }
                next = self.messages.try_recv().ok();
            }
        }
    }

    /// Observe, plan, apply. Returns when to look again at the latest.
    fn round(&mut self) -> Duration {
        self.vms.insist();
        self.notice_ends();
        let plan = self.plan();
        self.clear_new_counters();
        self.note_refusals(&plan);
        self.fabric.configure(plan.fabric);
        self.grants = plan.exclusive;
        self.host_plan = plan.host;
        for action in plan.actions {
            self.apply(action);
        }
        self.observe();
        self.make_groups();
        self.give_devices_back();
        self.settle_exclusive();
        self.clear_groups();
        self.settle_precedence();
        self.move_memory();
        self.pause()
    }

    fn plan(&mut self) -> Plan {
        self.observe();
        self.tune();
        self.look_at_host();
        let (observed, report) = self.board.lock().for_rules();
        plan(&self.store.state().desired, &observed, &report)
    }

    fn pause(&self) -> Duration {
        let until_test = self.until_test(&self.store.state().desired.host);
        let seen = self.board.lock();
        let unattached = seen.observed.fabric.ports.values().any(|port| !port.attached);
        let pause = if self.mover.is_due(Instant::now()) {
            ATTENTIVE
        } else if !unattached && !self.vms.any_stopping() {
            CALM
        } else if Instant::now() < self.attentive_until {
            ATTENTIVE
        } else {
            WAITING
        };
        until_test.map_or(pause, |until| until.min(pause))
    }
}
