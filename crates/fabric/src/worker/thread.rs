//! One worker's thread: rounds over its active sources, events, timers, sleep.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{Pid, gettid};
use taut_api::fabric::PortId;
use taut_api::fabric::config::WorkerMode;
use taut_api::fabric::counters::{PortWord, WorkerWord};

use super::balance::{self, PAUSE};
use super::sources::{Plan, State};
use super::{Crew, Lists, Next, serve};
use crate::sys::counters::WorkerBlock;
use crate::sys::epoll::{EventFlags, Ready};
use crate::sys::lock::lock;
use crate::wake::mailbox::{LOAD_WINDOW, Mailbox, Message};
use crate::wake::timers::Wake;
use crate::wake::token;

/// While there is work, how often new events are looked for: a system call every so often costs little then, and a port
/// that wakes up next to a busy one does not wait long.
const EVENT_INTERVAL: Duration = Duration::from_micros(20);
/// The same for a worker that polls all its rings: only devices are told by events.
const POLLING_EVENT_INTERVAL: Duration = Duration::from_micros(100);
/// A frame that may go that soon is waited for: to sleep and to wake up takes longer.
const WORTH_SLEEPING: Duration = Duration::from_micros(5);

/// Rounds without a frame between two looks at the clock, and at all that goes by it: a look takes as long as a round.
const ROUNDS_PER_LOOK: u32 = 8;

/// Starts a worker and tells its thread id.
pub(super) fn start(
    crew: Arc<Crew>,
    number: usize,
    counters: WorkerBlock,
) -> io::Result<(JoinHandle<()>, Pid)> {
    let (send, receive) = std::sync::mpsc::channel();
    let handle = std::thread::Builder::new().name(format!("worker{number}")).spawn(move || {
        let _abort = AbortOnPanic;
        let _ = send.send(gettid());
        Worker::new(crew, number, counters).run();
    })?;
    let tid = receive.recv().map_err(io::Error::other)?;
    Ok((handle, tid))
}

/// A data plane without a worker would look alive: better to end, and be started anew with all sessions.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

#[derive(Debug)]
struct Worker {
    crew: Arc<Crew>,
    number: usize,
    counters: WorkerBlock,
    plan: Arc<Plan>,
    /// One for each source of the plan; only its own ones count.
    states: Vec<State>,
    active: Vec<u32>,
    /// Sources with [`State::waits`].
    waiting: Vec<u32>,
    lists: Lists,
    ready: Vec<Ready>,
    messages: Vec<Message>,
    quit: bool,
    /// When the load was last measured.
    measured: Instant,
    /// Nanoseconds in bursts since then.
    busy: u64,
}

impl Worker {
    fn new(crew: Arc<Crew>, number: usize, counters: WorkerBlock) -> Self {
        Self {
            crew,
            number,
            counters,
            plan: Arc::default(),
            states: Vec::new(),
            active: Vec::new(),
            waiting: Vec::new(),
            lists: Lists::default(),
            ready: Vec::new(),
            messages: Vec::new(),
            quit: false,
            measured: Instant::now(),
            busy: 0,
        }
    }

    fn mailbox(&self) -> &Mailbox {
        self.crew.mailboxes.get(self.number)
    }

    fn run(mut self) {
        self.take_up();
        let mut now = Instant::now();
        let mut looked = now;
        let mut empty: u32 = 0;
        loop {
            let (frames, end) = self.round(now);
            self.counters.add(if frames { WorkerWord::Bursts } else { WorkerWord::EmptyRounds }, 1);
            if frames {
                (now, empty) = (end, 0);
            } else {
                empty = empty.wrapping_add(1);
                if !empty.is_multiple_of(ROUNDS_PER_LOOK) && !self.active.is_empty() {
                    continue;
                }
                now = Instant::now();
            }
            if now.duration_since(self.measured) >= LOAD_WINDOW {
                self.measure(now);
            }
            if self.mailbox().has_mail() {
                self.read_messages(now);
                if self.quit {
                    return self.leave();
                }
            }
            while let Some((when, wake)) = self.lists.timers.pop_due(now) {
                self.wake(when, wake, now);
            }
            let polling = self.plan.mode == WorkerMode::Polling;
            let interval = if polling { POLLING_EVENT_INTERVAL } else { EVENT_INTERVAL };
            if self.active.is_empty() && !polling {
                now = self.sleep(now);
                looked = now;
            } else if now.duration_since(looked) >= interval {
                self.look(Some(Duration::ZERO));
                looked = now;
            } else if !frames {
                std::hint::spin_loop();
            }
        }
    }

    /// Serves every active source once; tells whether there was a frame, and the time after the last one.
    #[inline]
    fn round(&mut self, mut now: Instant) -> (bool, Instant) {
        let mut frames = false;
        let mut at = 0;
        while let Some(&number) = self.active.get(at) {
            let source = &self.plan.sources[number as usize];
            let state = &mut self.states[number as usize];
            let outcome = serve::burst(&self.plan.switch, source, now, &mut self.lists);
            if outcome.frames > 0 {
                frames = true;
                state.last_frame = now;
                // The only look at the clock, once a burst.
                let end = Instant::now();
                let took = end.duration_since(now).as_nanos() as u64;
                state.busy += took;
                self.busy += took;
                self.counters.add(WorkerWord::BusyNs, took);
                now = end;
            }
            if !outcome.incidents.is_empty() {
                lock(&self.crew.incidents).extend(outcome.incidents);
                self.crew.alarm.wake();
            }
            let patient = now.duration_since(state.last_frame) < state.patience;
            let stays = match outcome.next {
                Next::More => true,
                Next::Nothing => patient || serve::arm(&self.plan.switch, source),
                Next::Later(_) if self.plan.mode == WorkerMode::Polling => true,
                Next::At(when) | Next::Later(when) => {
                    let soon = when.saturating_duration_since(now) < WORTH_SLEEPING;
                    if !soon {
                        state.wake = Some(when);
                        self.lists.timers.at(when, Wake::Source(number));
                    }
                    soon
                }
                // Marked first, then looked at once more: from then on room is announced to this worker.
                Next::Wait(_) if patient || !state.waits => true,
                Next::Wait(until) => {
                    state.wake = Some(until);
                    self.lists.timers.at(until, Wake::Source(number));
                    false
                }
                Next::Absent => false,
            };
            if matches!(outcome.next, Next::Wait(_)) != state.waits {
                self.set_waits(number);
            }
            if stays {
                at += 1;
            } else {
                self.states[number as usize].active = false;
                self.active.swap_remove(at);
            }
        }
        (frames, now)
    }

    /// A source begins or ceases to wait for room.
    #[cold]
    fn set_waits(&mut self, number: u32) {
        let state = &mut self.states[number as usize];
        state.waits = !state.waits;
        let mailbox = self.crew.mailboxes.get(self.number);
        if state.waits {
            self.waiting.push(number);
            // Before the ring's driver is asked for a kick, which whoever gets it passes on to those that wait.
            mailbox.waiting.fetch_add(1, SeqCst);
        } else {
            self.waiting.retain(|&other| other != number);
            mailbox.waiting.fetch_sub(1, SeqCst);
        }
    }

    /// Sleeps until an event, a note or the next timer; returns the time.
    fn sleep(&mut self, now: Instant) -> Instant {
        if !self.mailbox().lie_down() {
            return now;
        }
        let until = self.lists.timers.next();
        self.look(until.map(|until| until.saturating_duration_since(now)));
        self.mailbox().get_up();
        let end = Instant::now();
        self.counters.add(WorkerWord::Sleeps, 1);
        self.counters.add(WorkerWord::SleepNs, end.duration_since(now).as_nanos() as u64);
        end
    }

    /// Takes what has happened; waits for it at most that long.
    fn look(&mut self, timeout: Option<Duration>) {
        let mut ready = std::mem::take(&mut self.ready);
        if let Err(error) = self.mailbox().events().wait(&mut ready, timeout) {
            // Nothing a guest does leads here; without events there is no worker.
            panic!("waiting for events failed: {error}");
        }
        for &(token, flags) in &ready {
            if token == token::WAKE {
                self.mailbox().clear_wake_ups();
            } else {
                self.event(token, flags);
            }
        }
        self.ready = ready;
    }

    /// A guest kicked, or a device is ready.
    fn event(&mut self, token: u64, flags: EventFlags) {
        let (id, queue) = token::queue(token);
        let Some(port) = self.plan.find(id) else { return };
        if port.is_guest() {
            port.counters.add_shared(PortWord::Kicks, 1);
        }
        if queue.is_multiple_of(2) {
            if queue / 2 < port.pairs() {
                let now = Instant::now();
                port.rx_due(queue / 2, now, now, &mut self.lists.timers);
            }
            return self.announce_room();
        }
        let room = flags.contains(EventFlags::OUT);
        if room {
            serve::flush(port);
        }
        self.claim(id, queue / 2);
        if room {
            self.announce_room();
        }
    }

    /// Serves a source that has something to do, or passes that on to its owner.
    fn claim(&mut self, id: PortId, pair: usize) {
        let (Some(first), Some(port)) = (self.plan.first(id), self.plan.find(id)) else { return };
        if pair >= port.pairs() {
            return;
        }
        match port.owner(pair) {
            own if own == self.number => self.activate(first + pair as u32),
            // It moved while the event was on its way.
            other => self.crew.mailboxes.get(other).post(Message::Take(id, pair)),
        }
    }

    /// A receiver has room again: whoever waits may go on.
    fn announce_room(&mut self) {
        for number in (0..self.plan.workers).filter(|&number| number != self.number) {
            let mailbox = self.crew.mailboxes.get(number);
            if mailbox.waiting.load(SeqCst) > 0 {
                mailbox.post(Message::Room);
            }
        }
        self.unpark();
    }

    fn read_messages(&mut self, now: Instant) {
        let mut messages = std::mem::take(&mut self.messages);
        self.mailbox().read(&mut messages);
        for &note in &messages {
            match note {
                Message::Configured => self.take_up(),
                Message::Look(id) => self.look_at(id, now),
                Message::Take(id, pair) => self.claim(id, pair),
                Message::Room => self.unpark(),
                Message::Adopt(id, pair) => {
                    if let Some(port) = self.plan.find(id).filter(|port| pair < port.pairs()) {
                        port.adopt(pair, now, &mut self.lists.timers);
                    }
                }
                Message::Quit => self.quit = true,
            }
        }
        self.messages = messages;
    }

    /// What is attached to a port has changed.
    fn look_at(&mut self, id: PortId, now: Instant) {
        let plan = Arc::clone(&self.plan);
        if let (Some(port), Some(first)) = (plan.find(id), plan.first(id)) {
            let own = self.number;
            for pair in (0..port.pairs()).filter(|&pair| port.owner(pair) == own) {
                port.rx_due(pair, now, now, &mut self.lists.timers);
                port.tx_due(pair, now, now, &mut self.lists.timers);
                self.activate(first + pair as u32);
            }
        }
        // Whoever waited for it may go on.
        self.unpark();
    }

    /// Takes up the plan in force and looks at everything that it owns.
    fn take_up(&mut self) {
        self.plan = Arc::clone(&lock(&self.crew.plan));
        let now = Instant::now();
        self.active.clear();
        self.waiting.clear();
        self.mailbox().waiting.store(0, SeqCst);
        self.lists.timers.forget_sources();
        self.lists.flow_cache.forget(now);
        let states = self.plan.sources.iter();
        self.states = states.map(|&s| State::new(now, self.plan.patience(self.plan.port(s)))).collect();
        let plan = Arc::clone(&self.plan);
        for number in plan.owned_by(self.number) {
            self.activate(number);
        }
    }

    fn activate(&mut self, number: u32) {
        let state = &mut self.states[number as usize];
        if !state.active {
            state.active = true;
            state.wake = None;
            self.active.push(number);
            serve::disarm(&self.plan.switch, &self.plan.sources[number as usize]);
        }
    }

    fn unpark(&mut self) {
        for at in 0..self.waiting.len() {
            self.activate(self.waiting[at]);
        }
    }

    /// A timer has gone off.
    fn wake(&mut self, when: Instant, wake: Wake, now: Instant) {
        match wake {
            Wake::Source(number) => {
                if self.states[number as usize].wake == Some(when) {
                    self.activate(number);
                }
            }
            Wake::Receiver(id, pair) => {
                if let Some(port) = self.plan.find(id).filter(|port| pair < port.pairs()) {
                    port.rx_due(pair, when, now, &mut self.lists.timers);
                }
            }
            Wake::Sender(id, pair) => {
                if let Some(port) = self.plan.find(id).filter(|port| pair < port.pairs()) {
                    port.tx_due(pair, when, now, &mut self.lists.timers);
                }
            }
        }
    }

    /// Ends a window of measurement: tells the others, and gives a source away if that helps.
    #[cold]
    fn measure(&mut self, now: Instant) {
        let window = now.duration_since(self.measured).as_nanos() as u64;
        let share = |busy: u64| (busy.saturating_mul(1000) / window).min(1000) as u32;
        let own = share(self.busy);
        self.mailbox().set_busy(now, own);
        (self.measured, self.busy) = (now, 0);
        let workers: Vec<_> =
            (0..self.plan.workers).map(|number| self.crew.mailboxes.get(number).busy(now)).collect();
        let loads = (0..).zip(&mut self.states).filter_map(|(number, state)| {
            let busy = std::mem::take(&mut state.busy);
            (busy > 0).then(|| (number, share(busy)))
        });
        let loads: Vec<_> = loads.collect();
        if let Some((number, to)) = balance::choose(self.number, &workers, &loads) {
            self.give(number, to, now);
        }
    }

    /// Gives a source to another worker, unless that would come too soon.
    fn give(&mut self, number: u32, to: usize, now: Instant) {
        let plan = Arc::clone(&self.plan);
        let source = plan.sources[number as usize];
        let port = plan.port(source);
        let Ok(mut moving) = self.crew.moving.try_lock() else { return };
        let soon = moving.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE);
        if soon || to >= moving.workers || port.owner(source.pair) != self.number {
            return;
        }
        if port.give(source.pair, to, &self.crew.mailboxes).is_err() {
            // No memory for another watch: it stays, and events are told here.
            return;
        }
        moving.last = Some(now);
        drop(moving);
        self.counters.add(WorkerWord::Given, 1);
        if self.states[number as usize].waits {
            self.set_waits(number);
        }
        let state = &mut self.states[number as usize];
        (state.active, state.wake) = (false, None);
        self.active.retain(|&other| other != number);
        self.crew.mailboxes.get(to).post(Message::Take(port.id, source.pair));
    }

    /// Its last act: what it would have come back to is somebody else's now.
    fn leave(mut self) {
        self.mailbox().waiting.store(0, SeqCst);
        self.mailbox().set_busy(Instant::now(), 0);
        for (_, wake) in self.lists.timers.drain() {
            if let (Wake::Receiver(port, pair) | Wake::Sender(port, pair), true) = (wake, self.number > 0) {
                self.crew.mailboxes.get(0).post(Message::Adopt(port, pair));
            }
        }
    }
}
