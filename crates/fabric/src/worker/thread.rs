//! One worker's thread: rounds over its active sources, timers, events and sleep.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use taut_api::fabric::config::WorkerMode;
use taut_api::fabric::counters::WorkerWord;

use super::burst::Outcome;
use super::cards::{Cards, UNWATCHED};
use super::contention::Contention;
use super::crew::{Crew, Incident};
use super::next::Next;
use super::plan::Plan;
use super::reserved::PAUSE_AFTER;
use super::state::{SourceStates, State};
use super::{WorkerError, burst};
use crate::switch::forward::Workspace;
use crate::sys::affinity::CpuAffinity;
use crate::sys::counters::WorkerBlock;
use crate::sys::epoll::Ready;
use crate::sys::lock::lock;
use crate::sys::thread::{Thread, cpu_time};
use crate::wake::mailbox::{LOAD_WINDOW, Mailbox, Message, WorkerIdx};
use crate::wake::timers::{SourceIdx, Timers, Wake};

/// Interval at which a busy worker looks for events. A system call at this interval costs little,
/// and a port that wakes up next to a busy one does not wait long.
const EVENT_INTERVAL: Duration = Duration::from_micros(20);
/// Interval for a worker that polls all its rings: only devices need events then.
const POLLING_EVENT_INTERVAL: Duration = Duration::from_micros(100);
/// Shortest worthwhile sleep: falling asleep and waking up takes longer than this.
const WORTH_SLEEPING: Duration = Duration::from_micros(5);
/// Rounds without a frame between two looks at the clock. A look takes as long as a round.
const ROUNDS_PER_LOOK: u32 = 8;

/// Starts a worker.
pub(super) fn start(crew: Arc<Crew>, number: WorkerIdx, counters: WorkerBlock) -> io::Result<Thread> {
    Thread::start(format!("worker{number}"), move || Worker::new(crew, number, counters).run())
}

/// A worker, on its own thread.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) crew: Arc<Crew>,
    pub(super) number: WorkerIdx,
    pub(super) counters: WorkerBlock,
    affinity: CpuAffinity,
    pub(super) plan: Arc<Plan>,
    pub(super) sources: SourceStates,
    pub(super) cards: Cards,
    pub(super) work: Workspace,
    /// Queues that stopped working in the last burst.
    incidents: Vec<Incident>,
    pub(super) timers: Timers,
    pub(super) ready: Vec<Ready>,
    pub(super) messages: Vec<Message>,
    pub(super) quit: bool,
    /// Time of the last measurement of the load.
    pub(super) measured: Instant,
    /// Nanoseconds spent in bursts since then.
    pub(super) busy: u64,
    /// Time spent asleep since then.
    pub(super) slept: Duration,
    /// CPU time that the worker had got then.
    pub(super) ran: Duration,
    pub(super) contention: Contention,
}

impl Worker {
    fn new(crew: Arc<Crew>, number: WorkerIdx, counters: WorkerBlock) -> Self {
        Self {
            crew,
            number,
            counters,
            affinity: CpuAffinity::default(),
            plan: Arc::default(),
            sources: SourceStates::default(),
            cards: Cards::default(),
            work: Workspace::default(),
            incidents: Vec::new(),
            timers: Timers::default(),
            ready: Vec::new(),
            messages: Vec::new(),
            quit: false,
            measured: Instant::now(),
            busy: 0,
            slept: Duration::ZERO,
            ran: cpu_time(),
            contention: Contention::default(),
        }
    }

    fn run(mut self) {
        self.take_up_plan();
        let mut now = Instant::now();
        let mut next_measurement = now + LOAD_WINDOW;
        let mut next_look = now;
        let mut empty: u32 = 0;
        loop {
            let (frames, end) = self.round(now);
            self.counters.add(if frames { WorkerWord::Bursts } else { WorkerWord::EmptyRounds }, 1);
            if frames {
                (now, empty) = (end, 0);
            } else {
                empty = empty.wrapping_add(1);
                if !empty.is_multiple_of(ROUNDS_PER_LOOK) && !self.sources.round.is_empty() {
                    continue;
                }
                now = Instant::now();
            }
            if now >= next_measurement {
                self.measure_load(now);
                next_measurement = now + LOAD_WINDOW;
            }
            if self.mailbox().has_mail() {
                self.read_messages(now);
                if self.quit {
                    return self.leave();
                }
            }
            while let Some((when, wake)) = self.timers.pop_due(now) {
                self.timer_expired(when, wake, now);
            }
            let polling = self.plan.mode == WorkerMode::Polling;
            let interval = if polling { POLLING_EVENT_INTERVAL } else { EVENT_INTERVAL };
            if self.sources.round.is_empty() && !polling {
                now = self.sleep(now);
                next_look = now + interval;
            } else if now >= next_look {
                self.handle_events(Some(Duration::ZERO));
                self.look_at_cards(now);
                next_look = now + interval;
            } else if !frames {
                std::hint::spin_loop();
            }
        }
    }

    /// Takes up the plan in force and activates all sources that the worker owns.
    pub(super) fn take_up_plan(&mut self) {
        let plan = Arc::clone(&lock(&self.crew.plan));
        // Before the last plan is given up, for which the control thread waits.
        self.bind(plan.cpus(self.number));
        // The list of cards has places in the last plan.
        let watched = self.watch_cards();
        if plan.mode != self.plan.mode {
            self.contention = Contention::default();
        }
        self.plan = plan;
        self.cards = Cards::of(&self.plan, watched);
        let now = Instant::now();
        self.mailbox().waiting.store(0, SeqCst);
        self.timers.forget_sources();
        self.work.flow_cache.forget(now);
        let plan = Arc::clone(&self.plan);
        let contention = &self.contention;
        let states = plan.sources.iter().map(|&source| {
            let port = plan.port(source);
            State::new(now, contention.limit(plan.patience(port)), port.has_reservation())
        });
        self.sources.reset(states);
        self.work.longest_burst = plan.has_reservations.then_some(PAUSE_AFTER);
        for source in plan.owned_by(self.number) {
            self.activate(source);
        }
    }

    /// Binds the worker to its pCPUs.
    fn bind(&mut self, cpus: &[u32]) {
        if let Err(source) = self.affinity.bind(cpus) {
            let error = WorkerError::Bind { number: self.number.index(), cpus: cpus.to_vec(), source };
            lock(&self.crew.unbound).push(error);
        }
    }

    /// Makes a source active and disables its guest's kicks.
    pub(super) fn activate(&mut self, source: SourceIdx) {
        if !self.sources.state(source).active {
            self.sources.activate(source);
            burst::disable_kicks(&self.plan.switch, self.plan.source(source));
        }
    }

    /// Serves every active source once. If some port has a reservation on an uplink, the round
    /// pauses after some time, and the next call continues it. Returns whether there was a frame,
    /// and the time after the last burst.
    #[inline]
    fn round(&mut self, mut now: Instant) -> (bool, Instant) {
        let mut frames = false;
        if self.sources.round.resume() {
            (frames, now) = self.serve_reserved(now);
        }
        let pause = self.plan.has_reservations.then(|| now + PAUSE_AFTER);
        while let Some(index) = self.sources.round.current() {
            let (outcome, end) = self.burst(index, false, now);
            now = end;
            frames |= outcome.frames > 0;
            let source = &self.plan.sources[index.index()];
            let state = &mut self.sources.states[index.index()];
            let patient = state.is_patient(now);
            let stays = match outcome.next {
                Next::More => true,
                Next::Nothing => patient || burst::enable_kicks(&self.plan.switch, source),
                Next::Later(_) if self.plan.mode == WorkerMode::Polling => true,
                Next::At(when) | Next::Later(when) => {
                    let soon = when.saturating_duration_since(now) < WORTH_SLEEPING;
                    if !soon && state.sleep_until(when) {
                        self.timers.set(when, Wake::Source(index));
                    }
                    soon
                }
                // First mark the source as waiting, then serve it once more: from the mark on, room
                // is announced to this worker.
                Next::Wait(_) if patient || !state.waits => true,
                Next::Wait(until) => {
                    if state.sleep_until(until) {
                        self.timers.set(until, Wake::Source(index));
                    }
                    false
                }
                Next::Absent => false,
            };
            if matches!(outcome.next, Next::Wait(_)) != state.waits {
                self.toggle_waits(index);
            }
            if stays {
                self.sources.round.keep_current();
            } else {
                self.sources.deactivate_current(index);
            }
            if outcome.frames > 0 && pause.is_some_and(|pause| now >= pause) {
                break;
            }
        }
        (frames, now)
    }

    /// Serves sources that come before those of the paused round. Each keeps its place there, where
    /// the worker acts on what it needs next. Returns whether there was a frame, and the time after
    /// the last burst.
    #[cold]
    fn serve_reserved(&mut self, mut now: Instant) -> (bool, Instant) {
        let mut frames = false;
        let mut looks = self.sources.reserved.looks();
        loop {
            let plan = &self.plan;
            let is_behind = |index| plan.port(plan.source(index)).is_behind_reservation(now);
            let Some(index) = self.sources.reserved.next(&mut looks, is_behind) else { break };
            let (outcome, end) = self.burst(index, true, now);
            now = end;
            frames |= outcome.frames > 0;
        }
        (frames, now)
    }

    /// Serves a source once, because it `comes_first` or has its place in the round. Returns the
    /// outcome, and the time after the burst.
    #[inline(always)]
    fn burst(&mut self, index: SourceIdx, comes_first: bool, now: Instant) -> (Outcome, Instant) {
        let Self { plan, work, timers, incidents, .. } = self;
        let source = &plan.sources[index.index()];
        let outcome = burst::serve(&plan.switch, source, now, work, timers, incidents);
        let mut end = now;
        if outcome.frames > 0 {
            let state = &mut self.sources.states[index.index()];
            state.had_frame(now);
            // The only look at the clock, once per burst.
            end = Instant::now();
            let took = end.duration_since(now).as_nanos() as u64;
            state.busy += took;
            self.busy += took;
            self.counters.add(WorkerWord::BusyNs, took);
            if state.reserved {
                self.plan.port(self.plan.source(index)).count_reserved(comes_first, end);
            }
        }
        if !self.incidents.is_empty() {
            self.report_incidents();
        }
        (outcome, end)
    }

    /// Hands what has stopped working to the control thread.
    #[cold]
    fn report_incidents(&mut self) {
        lock(&self.crew.incidents).append(&mut self.incidents);
        self.crew.alarm.wake();
    }

    /// Marks a source as waiting for a receiver's room, or removes the mark.
    #[cold]
    pub(super) fn toggle_waits(&mut self, source: SourceIdx) {
        let state = self.sources.state(source);
        state.waits = !state.waits;
        let mailbox = self.crew.mailboxes.get(self.number);
        if state.waits {
            self.sources.waiting.push(source);
            // Increment before the receiver's driver is asked for a kick: the worker that receives
            // the kick announces the room to workers with waiting sources.
            mailbox.waiting.fetch_add(1, SeqCst);
        } else {
            self.sources.waiting.retain(|&other| other != source);
            mailbox.waiting.fetch_sub(1, SeqCst);
        }
    }

    /// Sleeps until an event, a message or the next timer, and returns the time.
    fn sleep(&mut self, now: Instant) -> Instant {
        let watched = self.watch_cards();
        if !self.mailbox().fall_asleep() {
            return now;
        }
        let until = self.timers.next();
        let until = until.map(|until| until.saturating_duration_since(now));
        let until = if watched { until } else { Some(until.map_or(UNWATCHED, |until| until.min(UNWATCHED))) };
        self.handle_events(until);
        let end = Instant::now();
        if !watched {
            self.look_at_cards(end);
        }
        self.counters.add(WorkerWord::Sleeps, 1);
        let slept = end.duration_since(now);
        self.slept += slept;
        self.counters.add(WorkerWord::SleepNs, slept.as_nanos() as u64);
        end
    }

    /// The worker's own mailbox.
    pub(super) fn mailbox(&self) -> &Mailbox {
        self.crew.mailboxes.get(self.number)
    }
}

#[cfg(test)]
#[path = "thread_tests.rs"]
mod tests;
