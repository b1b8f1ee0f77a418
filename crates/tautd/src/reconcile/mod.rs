//! The loop that makes the host what the store says: observe, plan, apply, settle.
//!
//! A round runs at every message and at least once a second; on a host with many VMs on which
//! nothing is to be done, at least once in ten seconds ([`pace`]). It configures the fabric, takes
//! the plan's actions, and then settles the plan's shares of the host. Other threads do whatever
//! touches a path that a user named, because its file system may not answer.

mod added_queue_pairs;
mod addresses;
mod apply;
mod attach;
mod counters;
mod dense;
mod devices;
mod disk_limits;
mod errand;
mod external;
mod group_folders;
mod host;
mod incidents;
mod interface;
mod links;
mod observe;
mod pace;
mod probe;
mod ready;
mod report;
mod retries;
mod shutdown;
mod start;
mod vsock;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use taut_api::enforcement::HostReport;
use taut_host::enforce::Enforcer;
use taut_plan::{Plan, plan};

pub(crate) use devices::admit_devices;
pub(crate) use interface::{admit_interface, admit_netdev_interface, learned_address};

use crate::board::Board;
use crate::fabric::{Fabric, counters::Counters};
use crate::inbox::{Inbox, Message};
use crate::store::Store;
use crate::vms::Vms;
use addresses::AddressWatches;
use counters::PortCounters;
use dense::DenseMode;
use external::Attempts;
use group_folders::SharedFolders;
use incidents::Incidents;
use pace::Pace;
use probe::Probe;
use retries::Retries;

/// Maximum time between two rounds of a host that may need another one soon.
const ALERT: Duration = Duration::from_secs(1);
/// The same while waiting for something without a notification: a front end's socket.
const WAITING: Duration = Duration::from_millis(250);
/// The same for a while after a start, and while memory is moved.
const ATTENTIVE: Duration = Duration::from_millis(15);
/// Time between two looks at the interfaces of uplinks, port groups and namespaces.
const LOOK: Duration = Duration::from_secs(1);
/// Time after a start in which a front end's socket is expected at any moment.
const ATTENTION: Duration = Duration::from_secs(10);
/// Time in which a front end is looked for every [`WAITING`] after one more port has none. One that
/// comes later is noticed by the next calm round.
const EXPECTATION: Duration = Duration::from_secs(20);

/// Front ends that ports wait for.
#[derive(Debug, Default)]
struct Expectation {
    /// Number of ports without one.
    ports: usize,
    /// Time at which that number last grew.
    since: Option<Instant>,
}

impl Expectation {
    /// Takes the number of ports without a front end. Returns whether one is looked for often.
    fn lasts(&mut self, ports: usize, now: Instant) -> bool {
        if ports > std::mem::replace(&mut self.ports, ports) {
            self.since = Some(now);
        }
        self.since.is_some_and(|since| now < since + EXPECTATION)
    }
}

/// The loop's state. No other thread has access to it.
#[derive(Debug)]
pub(crate) struct Reconciler {
    store: Arc<Store>,
    board: Arc<Board>,
    fabric: Fabric,
    counters: PortCounters,
    incidents: Incidents,
    vms: Vms,
    inbox: Inbox,
    /// Enforces the host's part of a plan.
    enforcer: Enforcer,
    /// Pauses of failed operations, by document or owner.
    retries: Retries,
    /// Attachments of external front ends in progress.
    attempts: Attempts,
    /// End of the time in which rounds follow each other quickly.
    attentive_until: Instant,
    expectation: Expectation,
    pace: Pace,
    /// Begin of the last round.
    began: Instant,
    /// Time of the next look at interfaces.
    next_look: Instant,
    dense: DenseMode,
    address_watches: AddressWatches,
    /// Folders of groups.
    shared: SharedFolders,
    /// The probe for QEMU and KVM, while it runs.
    probe: Option<Probe>,
    /// Revision of the documents for which a user asked to restore the host.
    restored_at: Option<u64>,
}

/// The parts that a [`Reconciler`] is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Documents and events.
    pub(crate) store: Arc<Store>,
    /// State as last observed.
    pub(crate) board: Arc<Board>,
    /// The data plane.
    pub(crate) fabric: Fabric,
    /// Counters of the data plane.
    pub(crate) counters: Arc<Counters>,
    /// VMs of this and earlier daemons.
    pub(crate) vms: Vms,
    /// Enforcement on the host.
    pub(crate) enforcer: Enforcer,
    /// The sending end of the loop's messages.
    pub(crate) inbox: Inbox,
    /// The run directory.
    pub(crate) run_dir: PathBuf,
}

impl Reconciler {
    /// Creates the loop; [`Reconciler::run`] runs it.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { store, board, fabric, counters, vms, enforcer, inbox, run_dir } = parts;
        let shared = SharedFolders::at(&run_dir);
        let counters = PortCounters::new(counters, &store.state().desired.numbers.ports);
        Self {
            store,
            board,
            fabric,
            counters,
            incidents: Incidents::default(),
            vms,
            inbox,
            enforcer,
            retries: Retries::default(),
            attempts: Attempts::default(),
            attentive_until: Instant::now() + ATTENTION,
            expectation: Expectation::default(),
            pace: Pace::default(),
            began: Instant::now(),
            next_look: Instant::now(),
            dense: DenseMode::default(),
            address_watches: AddressWatches::default(),
            shared,
            probe: None,
            restored_at: None,
        }
    }

    /// Runs until a message asks the daemon to end.
    pub(crate) fn run(mut self, messages: &Receiver<Message>) -> anyhow::Result<()> {
        self.recall()?;
        self.note_sizes();
        self.note_host();
        self.probe();
        for (name, watch) in self.vms.watches() {
            self.watch(&name, watch);
        }
        for (name, pid, watch) in self.vms.starting() {
            self.await_ready(name, pid, watch);
        }
        // A running fabric needs the first configuration before it is adopted.
        let first = self.plan();
        self.fabric.configure(first.fabric);
        // A fabric that is replaced at once has them, too.
        self.give_queue_pairs();
        self.fabric.start()?;
        loop {
            let pause = self.round();
            let mut next = self.wait(messages, pause);
            while let Some(message) = next {
                match message {
                    Message::Wake => {}
                    Message::Start => self.probe_if_needed(),
                    Message::RestoreHost(done) => {
                        // The receiver may have gone.
                        let _ = done.send(self.restore_host());
                    }
                    Message::DiskLimited(name, limits) => self.vms.record_disk_limits(&name, limits),
                    Message::LinkSet(name, index, link) => self.vms.record_link(&name, index, link),
                    Message::QueuePairsAdded(name, pid, added) => self.end_adding(&name, pid, added),
                    Message::Addresses(name, pid, addresses) => self.note_addresses(&name, pid, &addresses),
                    Message::Ready(name, pid) => self.vms.record_ready(&name, pid),
                    Message::Kill(name) => self.vms.kill(&name),
                    Message::Capture(request) => self.fabric.capture(request),
                    Message::UpgradeFabric(done) => self.fabric.upgrade(done),
                    Message::Shutdown { everything, done } => {
                        self.shut_down(everything);
                        // The receiver may have gone.
                        let _ = done.send(());
                        return Ok(());
                    }
                }
                next = messages.try_recv().ok();
            }
        }
    }

    /// Waits for a message until the next round, and looks at interfaces meanwhile. One that has
    /// changed ends the wait.
    fn wait(&mut self, messages: &Receiver<Message>, pause: Duration) -> Option<Message> {
        let end = Instant::now() + pause;
        loop {
            let next = end.min(self.next_look.max(Instant::now()));
            match messages.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(message) => return Some(message),
                // The channel cannot be closed: `self.inbox` is a sender.
                Err(_) if Instant::now() >= end || self.look() => return None,
                Err(_) => {}
            }
        }
    }

    /// Looks at interfaces if that is due. Returns whether one has changed.
    fn look(&mut self) -> bool {
        if Instant::now() < self.next_look {
            return false;
        }
        self.next_look = Instant::now() + LOOK;
        let are_lost = self.look_for_interfaces();
        self.look_at_interfaces() || are_lost
    }

    /// Observes, plans, applies and settles. Returns the maximum time until the next round.
    fn round(&mut self) -> Duration {
        self.began = Instant::now();
        self.pace.begin();
        self.vms.enforce_stops();
        self.finish_starts();
        self.notice_ends();
        self.look();
        let revision = self.store.state().revision;
        let plan = self.plan();
        self.give_up_unplanned_starts(&plan.host.starting);
        self.counters.clear_new(&self.store.state().desired.numbers.ports);
        self.note_refusals(&plan);
        self.report_incidents();
        self.fabric.configure(plan.fabric);
        self.give_queue_pairs();
        let acts = !plan.actions.is_empty() || !self.board.lock().starts.is_empty();
        for action in plan.actions {
            self.apply(action, &plan.exclusive);
        }
        self.vms.begin_starts();
        self.keep_group_folders();
        let report = self.settle_host(&plan.host);
        if acts {
            self.observe_vms();
        }
        self.watch_addresses();
        let mut seen = self.board.lock();
        seen.reconciled = revision;
        if !seen.awaits_fabric {
            seen.in_force = revision;
        }
        drop(seen);
        let calm = self.pace.end();
        let binds = !plan.exclusive.is_empty() || self.enforcer.places_vcpus();
        let is_calm = !acts && !binds && plan.host.cards.is_empty() && !has_failed(&report);
        self.pause(if is_calm { calm } else { ALERT })
    }

    fn plan(&mut self) -> Plan {
        self.observe_vms();
        self.test_load();
        self.observe_host();
        let (observed, report) = self.board.lock().for_rules();
        plan(&self.store.state().desired, &observed, &report)
    }

    /// Returns the maximum time until the next round, which is `calm` if nothing is waited for.
    fn pause(&mut self, calm: Duration) -> Duration {
        let until_test = self.dense.until_test(&self.store.state().desired.host);
        let seen = self.board.lock();
        let unattached = seen.observed.fabric.ports.values().filter(|port| !port.attached).count();
        drop(seen);
        let expects = self.expectation.lasts(unattached, Instant::now());
        let calm = self.retries.until_next(self.began).map_or(calm, |next| next.max(ALERT).min(calm));
        let pause = if self.enforcer.is_due(Instant::now()) {
            ATTENTIVE
        } else if unattached == 0 && !self.vms.any_stopping() {
            calm
        } else if Instant::now() < self.attentive_until {
            ATTENTIVE
        } else if self.vms.any_stopping() || expects {
            WAITING
        } else {
            calm
        };
        until_test.map_or(pause, |until| until.min(pause))
    }
}

/// Returns whether something for the host has failed that the next round tries again.
fn has_failed(report: &HostReport) -> bool {
    !report.unrecorded.is_empty()
        || !report.device_problems.is_empty()
        || report.vms.values().any(|vm| vm.group_problem.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_ends_are_looked_for_often_while_more_ports_begin_to_wait() {
        let mut expectation = Expectation::default();
        let begin = Instant::now();
        let mut lasts = |ports, seconds| expectation.lasts(ports, begin + Duration::from_secs(seconds));
        assert!(!lasts(0, 0));
        assert!(lasts(3, 1) && lasts(3, 20) && !lasts(3, 21));
        assert!(!lasts(2, 30), "one has come");
        assert!(lasts(3, 40) && !lasts(3, 60));
    }
}
