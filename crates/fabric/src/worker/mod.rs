//! Worker threads: they move frames.
//!
//! Each worker serves the transmit sides of the queue pairs that it owns: its *sources*.
//!
//! * An *active* source is served in each round, one burst at a time.
//! * If some port has a reservation on an uplink, a round pauses again and again, and sources that
//!   are to come first are served between the others ([`reserved`]).
//! * A source becomes *idle* when it has had no frame for a while ([`WorkerMode`]). Its guest may
//!   kick again, and it costs nothing until it does. In the adaptive mode, that time is zero while
//!   other threads want the worker's CPU ([`contention`]).
//! * A source is *parked* when its first frame waits for a receiver's room and polling has not
//!   helped. An announcement of room, caused by a kick to any worker, resumes it, or else the time
//!   at which the frame is dropped.
//!
//! With no active source, the worker sleeps until an event or its next timer. A busy worker looks
//! at the rings of busy cards itself. Before it sleeps, it has its epoll set watch them again
//! ([`cards`]).
//!
//! Any worker delivers into any receive queue. The queues' locks ([`crate::port`]) keep frames in
//! order and memory safe. Ownership decides who polls a queue and who is woken by its kick, and
//! nothing else.
//!
//! The control thread changes what workers see by replacing the [`plan`] and by putting ends into
//! ports. It then posts a message, upon which each worker looks at the change once, and binds
//! itself to its pCPUs. A worker with much more to do than another gives a source away between two
//! bursts ([`balance`]).

mod balance;
mod burst;
mod cards;
mod contention;
mod crew;
mod device;
mod events;
mod load;
mod next;
mod plan;
mod reserved;
mod round;
mod state;
mod thread;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use taut_api::fabric::PortId;
use taut_api::fabric::config::{WorkerConfig, WorkerMode};
use taut_api::fabric::counters::MAX_WORKERS;
use taut_virtq::counters::SharedWords;

use crate::switch::Switch;
use crate::sys::counters::WorkerBlock;
use crate::sys::epoll::Waker;
use crate::sys::lock::lock;
use crate::sys::thread::Thread;
use crate::wake::mailbox::{Mailboxes, Message, WorkerIdx};
pub use crew::Incident;
use crew::{Crew, Moving};
use plan::Plan;

/// Longest wait for workers to take up a plan. A burst takes microseconds; a worker that gets no
/// pCPU for longer than this is not waited for.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(1);

/// Reasons why workers differ from the configuration. All ports are served nevertheless.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// More workers are wanted than possible.
    #[error("{0} workers are wanted, {MAX_WORKERS} are possible")]
    TooMany(usize),
    /// The kernel refuses a thread or its descriptors.
    #[error("worker {number} cannot be started")]
    Start {
        /// Number of the worker.
        number: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// The worker runs on other pCPUs.
    #[error("worker {number} cannot be bound to pCPUs {cpus:?}")]
    Bind {
        /// Number of the worker.
        number: usize,
        /// The wanted pCPUs.
        cpus: Vec<u32>,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The control thread's handle to the workers.
#[derive(Debug)]
pub struct Workers {
    crew: Arc<Crew>,
    words: Arc<SharedWords>,
    threads: Vec<Thread>,
}

impl Workers {
    /// Starts one worker, with an empty switch.
    pub fn start(words: &Arc<SharedWords>) -> io::Result<Self> {
        let crew = Crew {
            mailboxes: Arc::new(Mailboxes::new()?),
            plan: Mutex::new(Arc::new(Plan::new(Switch::default(), WorkerMode::default(), vec![Vec::new()]))),
            moving: Mutex::new(Moving { workers: 1, last: None }),
            incidents: Mutex::default(),
            unbound: Mutex::default(),
            alarm: Waker::new()?,
        };
        let mut workers = Self { crew: Arc::new(crew), words: Arc::clone(words), threads: Vec::new() };
        workers.start_one()?;
        Ok(workers)
    }

    fn start_one(&mut self) -> io::Result<()> {
        let number = self.threads.len();
        self.crew.mailboxes.provide(number + 1)?;
        let counters = WorkerBlock::new(&self.words, number);
        self.threads.push(thread::start(Arc::clone(&self.crew), WorkerIdx(number as u8), counters)?);
        Ok(())
    }

    /// Builds the next switch from the one in force.
    pub fn next_switch(&self, make: impl FnOnce(&Switch) -> Switch) -> Switch {
        let plan = Arc::clone(&lock(&self.crew.plan));
        make(&plan.switch)
    }

    /// The workers' mailboxes, whose epoll sets watch kicks and devices.
    pub fn mailboxes(&self) -> &Arc<Mailboxes> {
        &self.crew.mailboxes
    }

    /// Readable when there are incidents.
    pub fn alarm(&self) -> &Waker {
        &self.crew.alarm
    }

    /// Removes and returns the incidents since the last call.
    pub fn take_incidents(&self) -> Vec<Incident> {
        self.crew.alarm.clear();
        std::mem::take(&mut *lock(&self.crew.incidents))
    }

    /// Puts a switch into force, and makes the workers and their pCPUs those of the configuration.
    ///
    /// # Errors
    /// The workers differ from the configuration. The switch is in force nevertheless.
    pub fn configure(&mut self, switch: Switch, config: &WorkerConfig) -> Result<(), WorkerError> {
        let wanted = config.count();
        let mut result = if wanted > MAX_WORKERS { Err(WorkerError::TooMany(wanted)) } else { Ok(()) };
        while self.threads.len() < wanted.min(MAX_WORKERS) {
            let number = self.threads.len();
            if let Err(source) = self.start_one() {
                result = Err(WorkerError::Start { number, source });
                break;
            }
        }
        let workers = wanted.min(self.threads.len());
        let own = |number| config.cpus.get(number).map_or_else(|| config.near.clone(), |&own| vec![own]);
        let plan = Arc::new(Plan::new(switch, config.mode, (0..workers).map(own).collect()));
        self.assign(&plan);
        let before = std::mem::replace(&mut *lock(&self.crew.plan), plan);
        self.dismiss(workers);
        self.post_all(Message::NewPlan);
        until_unused(&before);
        let unbound = std::mem::take(&mut *lock(&self.crew.unbound));
        unbound.into_iter().next().map_or(result, Err)
    }

    /// Gives every source of the plan an owner among its workers.
    ///
    /// Known sources keep their owner, unless the number of workers has changed.
    fn assign(&self, plan: &Plan) {
        let mut moving = lock(&self.crew.moving);
        let before = Arc::clone(&lock(&self.crew.plan));
        let respread = moving.workers != plan.workers;
        moving.workers = plan.workers;
        let mut owned = vec![0_usize; plan.workers];
        let mut unowned = Vec::new();
        for &source in &plan.sources {
            let port = plan.port(source);
            let known = before.find(port.id).is_some_and(|old| Arc::ptr_eq(old, port));
            if known && !respread {
                owned[port.owner(source.pair).index()] += 1;
            } else {
                unowned.push(source);
            }
        }
        for source in unowned {
            let (to, count) = WorkerIdx::all(plan.workers)
                .zip(&mut owned)
                .min_by_key(|(_, count)| **count)
                .expect("there is a worker");
            *count += 1;
            let port = plan.port(source);
            if let Err(error) = port.give(source.pair, to, &self.crew.mailboxes) {
                tracing::warn!("{} stays with worker {}: {error}", port.id, port.owner(source.pair));
            }
        }
    }

    /// Ends the workers from this number on. Their sources have been given to others.
    fn dismiss(&mut self, from: usize) {
        for worker in WorkerIdx::range(from, self.threads.len()) {
            self.crew.mailboxes.get(worker).post(Message::Quit);
        }
        self.threads.drain(from..).for_each(Thread::join);
    }

    fn post_all(&self, message: Message) {
        for worker in WorkerIdx::all(self.threads.len()) {
            self.crew.mailboxes.get(worker).post(message);
        }
    }

    /// The number of rounds of each worker; `None` for one that sleeps.
    pub fn progress(&self) -> impl Iterator<Item = Option<u64>> {
        WorkerIdx::all(self.threads.len()).map(move |worker| {
            let asleep = self.crew.mailboxes.get(worker).is_asleep();
            (!asleep).then(|| WorkerBlock::new(&self.words, worker.index()).rounds())
        })
    }

    /// Makes the workers look at a port's queues once: what is attached to it has changed.
    pub fn recheck(&self, port: PortId) {
        self.post_all(Message::Recheck(port));
    }

    /// Ends all workers after their current bursts.
    pub fn stop(&mut self) {
        self.dismiss(0);
    }
}

/// Waits until no worker follows a plan any more: a configuration is reported as in force only
/// then.
fn until_unused(plan: &Arc<Plan>) {
    let begun = Instant::now();
    while Arc::strong_count(plan) > 1 {
        if begun.elapsed() > TAKEN_UP_WITHIN {
            tracing::warn!("a worker has not taken up the configuration for {TAKEN_UP_WITHIN:?}");
            return;
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}
