//! The thread that keeps a console process running, and makes its sources those that are wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use taut_api::event::Level;
use taut_console::control::caller::Caller;
use taut_console::control::message::{Request, SourceId};

use super::wanted::Hindrance;
use super::{PATIENCE, Shared};
use crate::process::Process;
use crate::store::Store;

/// Time between two rounds in which nothing changes. A round lists all sources, so it costs more
/// with each VM. A change, or the end of the process, begins a round at once. A process that hangs
/// is noticed after this time.
const CALM: Duration = Duration::from_secs(5);
/// The same while a source is missing.
const WAITING: Duration = Duration::from_millis(250);
/// The same for a while after a change: QEMU is about to listen.
const ATTENTIVE: Duration = Duration::from_millis(10);
/// Time after a change in which QEMU is expected to listen at any moment.
const ATTENTION: Duration = Duration::from_secs(10);
/// Rounds without an answer after which the process is replaced. One that only waits for a CPU
/// answers earlier.
const MOST_UNANSWERED: u32 = 5;
/// A process that ran for a shorter time counts as a failed start.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// Longest pause before the next start.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// Time for a process that was told to end.
const LAST_GRACE: Duration = Duration::from_secs(2);

/// What the thread knows.
#[derive(Debug)]
pub(super) struct Supervisor<'a> {
    shared: &'a Shared,
    store: &'a Store,
    process: Option<Process>,
    begun: Instant,
    /// Number of rounds since its last answer.
    unanswered: u32,
    /// Number of starts that failed one after another.
    failed_starts: u32,
    /// What hindered a source, or the start of the process, when it was last tried.
    problems: BTreeMap<String, String>,
    attentive_until: Instant,
}

impl Shared {
    /// Runs until the daemon ends the process.
    pub(super) fn supervise(&self, store: &Store) {
        let found = self.found.lock().expect("no holder panics").take();
        if let Some(process) = &found {
            let message = format!("found the console process {}", process.pid());
            store.event(Level::Info, "console", "console.adopted", &message);
        }
        let mut supervisor = Supervisor::new(self, store, found);
        while !self.ending.load(Ordering::SeqCst) {
            let pause = supervisor.round();
            supervisor.wait(pause);
        }
        supervisor.end();
    }
}

impl<'a> Supervisor<'a> {
    /// Takes over a process that was found.
    pub(super) fn new(shared: &'a Shared, store: &'a Store, found: Option<Process>) -> Self {
        let now = Instant::now();
        Self {
            shared,
            store,
            process: found,
            begun: now,
            unanswered: 0,
            failed_starts: 0,
            problems: BTreeMap::new(),
            attentive_until: now + ATTENTION,
        }
    }

    /// Makes sure that a process runs and has its sources. Returns the time until the next round.
    fn round(&mut self) -> Duration {
        if self.process.as_ref().is_some_and(|process| process.has_ended(Duration::ZERO)) {
            self.bury("it ended");
        }
        let mut started = None;
        if self.process.is_none() {
            match self.shared.places.spawn() {
                Ok(process) => {
                    started = Some(format!("started the console process {}", process.pid()));
                    (self.process, self.begun, self.unanswered) = (Some(process), Instant::now(), 0);
                }
                Err(error) => {
                    self.failed_starts += 1;
                    let message =
                        format!("the console process cannot be started, so VMs' output is not kept: {error}");
                    self.report("console", "console.not-started", message);
                    return self.pause();
                }
            }
        }
        let settled = self.settle();
        // Whoever waits for the process does not wait for the store.
        if let Some(message) = started {
            self.store.event(Level::Info, "console", "console.started", &message);
        }
        match settled {
            Ok(is_complete) => {
                self.unanswered = 0;
                if self.begun.elapsed() >= SHORT_LIFE {
                    self.failed_starts = 0;
                    self.problems.remove("console");
                }
                if is_complete {
                    // The next round sees that the process has lived for long enough.
                    SHORT_LIFE.checked_sub(self.begun.elapsed()).map_or(CALM, |left| left.max(WAITING))
                } else if Instant::now() < self.attentive_until {
                    ATTENTIVE
                } else {
                    WAITING
                }
            }
            Err(error) => {
                self.unanswered += 1;
                let is_stranger = error.kind() == io::ErrorKind::InvalidInput;
                if is_stranger || self.unanswered >= MOST_UNANSWERED {
                    self.bury(&format!("it was replaced: {error}"));
                    return self.pause();
                }
                // It may have ended, or not listen yet, which takes no time to find out.
                if error.kind() == io::ErrorKind::TimedOut { ATTENTIVE } else { WAITING }
            }
        }
    }

    /// Gives the process what it lacks, and takes what is not wanted. Returns whether it has all.
    pub(super) fn settle(&mut self) -> io::Result<bool> {
        if self.shared.caller().is_none() {
            // Nobody else waits meanwhile.
            let caller = Caller::connect(&self.shared.places.control(), PATIENCE)?;
            *self.shared.caller() = Some(caller);
        }
        let listed = {
            let mut caller = self.shared.caller();
            let Some(open) = caller.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
            let listed = open.list(PATIENCE);
            if open.is_broken() {
                *caller = None;
            }
            BTreeSet::from_iter(listed?)
        };
        let (surplus, missing) = {
            let wanted = self.shared.wanted();
            let surplus: Vec<_> = listed.iter().filter(|id| !wanted.contains_key(id)).cloned().collect();
            let missing = wanted.iter().filter(|(id, _)| !listed.contains(id));
            (surplus, missing.map(|(id, wanted)| (id.clone(), wanted.clone())).collect::<Vec<_>>())
        };
        // Meanwhile a source may have become wanted, or not wanted any more.
        let shared = self.shared;
        let is_wanted = |id: &SourceId| shared.wanted().contains_key(id);
        for id in surplus.into_iter().filter(|id| !is_wanted(id)) {
            shared.tell(&Request::Remove { id }, &[])?;
        }
        let mut is_complete = true;
        for (id, wanted) in missing.into_iter().filter(|(id, _)| is_wanted(id)) {
            match self.shared.give(&id, &wanted) {
                Ok(()) => drop(self.problems.remove(&id.to_string())),
                Err(Hindrance::NotYet) => is_complete = false,
                Err(Hindrance::Failed(error)) => {
                    if self.shared.caller().is_none() {
                        return Err(error);
                    }
                    is_complete = false;
                    self.report_source(&id, &error);
                }
            }
        }
        Ok(is_complete)
    }

    /// Raises an event for a source that cannot be kept, unless it is known already.
    fn report_source(&mut self, id: &SourceId, error: &io::Error) {
        let name = id.to_string();
        let (subject, what) = name.rsplit_once('/').unwrap_or((&name, "output"));
        let message = format!("its {what} is not kept: {error}");
        if self.problems.insert(name.clone(), message.clone()).as_ref() != Some(&message) {
            self.store.event(Level::Warning, subject, "console.not-kept", &message);
        }
    }

    fn report(&mut self, subject: &str, kind: &str, message: String) {
        if self.problems.get(subject) != Some(&message) {
            self.store.event(Level::Error, subject, kind, &message);
            self.problems.insert(subject.to_owned(), message);
        }
    }

    /// Makes sure that a process has ended, and reports its death.
    fn bury(&mut self, why: &str) {
        *self.shared.caller() = None;
        let Some(process) = self.process.take() else { return };
        let pid = process.pid();
        let status = if process.has_ended(Duration::ZERO) { process.status() } else { None };
        let status = status.map(|status| format!(" ({status})")).unwrap_or_default();
        process.kill(LAST_GRACE);
        if self.begun.elapsed() < SHORT_LIFE {
            self.failed_starts += 1;
        }
        let said = self.shared.places.logs.console_process();
        let message = format!(
            "the console process {pid} is gone: {why}{status}; another one takes over. Log: {}",
            said.display()
        );
        self.store.event(Level::Error, "console", "console.died", &message);
    }

    /// Returns the pause before the next start.
    fn pause(&self) -> Duration {
        match self.failed_starts {
            0 => Duration::ZERO,
            failures => Duration::from_millis(50).saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE),
        }
    }

    /// Waits for a change, for the end of the process, or for the time of the next round.
    fn wait(&mut self, pause: Duration) {
        let pidfd = self.process.as_ref().and_then(|process| process.watch().ok());
        let mut polled = vec![PollFd::new(&self.shared.changed, PollFlags::IN)];
        polled.extend(pidfd.as_ref().map(|pidfd| PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)));
        // EINTR begins a round early.
        let _ = poll(&mut polled, Timespec::try_from(pause).ok().as_ref());
        if !polled[0].revents().is_empty() {
            let _ = rustix::io::read(&self.shared.changed, &mut [0; 8]);
            self.attentive_until = Instant::now() + ATTENTION;
        }
    }

    /// Ends the process.
    fn end(self) {
        if let Some(process) = self.process {
            // An error means that it has ended, or is killed below.
            let _ = self.shared.tell(&Request::Quit, &[]);
            if process.has_ended(LAST_GRACE) {
                process.status();
            } else {
                process.kill(LAST_GRACE);
            }
        }
        *self.shared.caller() = None;
        self.shared.places.clean();
    }
}
