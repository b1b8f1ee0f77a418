//! Worker threads: they move the frames.
//!
//! Each worker serves the transmit sides of the queue pairs that it owns. Those with something to do are *active* and
//! looked at round after round, a burst each; one that has had nothing for a while ([`WorkerMode`]) is *idle*: its guest
//! may kick again, and it costs nothing until it does. One whose first frame waits for a receiver's room is *parked* once
//! polling has been of no use: room, announced by a kick to whichever worker, or the time at which the frame is dropped
//! brings it back. With none active the worker sleeps, until an event or its next timer.
//!
//! Any worker delivers into any receive queue. What keeps frames in order and memory safe is the queues' locks
//! ([`crate::port`]); ownership decides who polls a queue and who is woken by its kick, nothing else.
//!
//! The control thread changes what workers see by replacing the [`Plan`](sources::Plan) and by putting ends into ports;
//! either is followed by a note on their mailboxes, on which they look at what has changed once. A worker that has much more
//! to do than another gives a source away ([`balance`]) between two bursts.

mod balance;
mod device;
mod serve;
mod sources;
mod thread;

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use taut_api::fabric::PortId;
use taut_api::fabric::config::{WorkerConfig, WorkerMode};
use taut_api::fabric::counters::MAX_WORKERS;
use taut_virtq::counters::SharedWords;

use crate::port::Failure;
use crate::switch::Switch;
use crate::switch::flow_cache::FlowCache;
use crate::switch::forward::{FailedQueue, Scratch};
use crate::switch::target::Target;
use crate::sys::affinity::CpuAffinity;
use crate::sys::counters::WorkerBlock;
use crate::sys::epoll::Waker;
use crate::sys::lock::lock;
use crate::wake::mailbox::{Mailboxes, Message};
use crate::wake::timers::Timers;
use sources::{Plan, Source};

/// A queue that stopped working by itself. The worker has taken its end out.
#[derive(Debug)]
pub struct Incident {
    /// The port.
    pub port: PortId,
    /// Index of the queue.
    pub queue: usize,
    /// Why.
    pub failure: Failure,
}

/// What a source needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another burst: there may be more.
    More,
    /// Nothing: it has been emptied.
    Nothing,
    /// Its first frame waits for room, at the latest until then.
    Wait(Instant),
    /// Its first frame may not go before then.
    At(Instant),
    /// Nothing: it has been emptied, and is looked at again then; its guest need not kick.
    Later(Instant),
    /// Nothing is attached.
    Absent,
}

/// Memory that bursts use again and again, and the worker's timers.
#[derive(Debug, Default)]
struct Lists {
    scratch: Scratch,
    flow_cache: FlowCache,
    touched: Vec<Target>,
    failed: Vec<FailedQueue>,
    timers: Timers,
}

/// A burst takes microseconds; a worker that is not given its pCPU for so long is not waited for.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(1);

/// What control and workers share.
#[derive(Debug)]
struct Crew {
    mailboxes: Arc<Mailboxes>,
    plan: Mutex<Arc<Plan>>,
    /// Held while the owner of a source changes.
    moving: Mutex<Moving>,
    incidents: Mutex<Vec<Incident>>,
    /// Wakes the control thread for incidents.
    alarm: Waker,
}

/// What changes of ownership depend on.
#[derive(Debug)]
struct Moving {
    /// Workers below this number own sources.
    workers: usize,
    /// When a worker last gave one away.
    last: Option<Instant>,
}

/// Why workers are not what they are wanted to be. The others are, and all ports are served.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// More than there can be.
    #[error("{0} workers are wanted, {MAX_WORKERS} are possible")]
    TooMany(usize),
    /// No thread, or no descriptors for it.
    #[error("worker {number} cannot be started")]
    Start {
        /// Its number.
        number: usize,
        /// Why.
        source: io::Error,
    },
    /// It runs somewhere else.
    #[error("worker {number} cannot be bound to pCPUs {cpus:?}")]
    Bind {
        /// Its number.
        number: usize,
        /// The pCPUs.
        cpus: Vec<u32>,
        /// Why.
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

#[derive(Debug)]
struct Thread {
    handle: JoinHandle<()>,
    affinity: CpuAffinity,
}

impl Workers {
    /// Starts one worker, with an empty switch.
    pub fn start(words: &Arc<SharedWords>) -> io::Result<Self> {
        let crew = Crew {
            mailboxes: Arc::new(Mailboxes::new()?),
            plan: Mutex::new(Arc::new(Plan::new(Switch::default(), WorkerMode::default(), 1))),
            moving: Mutex::new(Moving { workers: 1, last: None }),
            incidents: Mutex::default(),
            alarm: Waker::new()?,
        };
        let mut workers = Self { crew: Arc::new(crew), words: Arc::clone(words), threads: Vec::new() };
        workers.start_one()?;
        Ok(workers)
    }

    fn start_one(&mut self) -> io::Result<()> {
        let number = self.threads.len();
        self.crew.mailboxes.provide(number + 1)?;
        let (handle, tid) =
            thread::start(Arc::clone(&self.crew), number, WorkerBlock::new(&self.words, number))?;
        self.threads.push(Thread { handle, affinity: CpuAffinity::new(tid) });
        Ok(())
    }

    /// Makes the next switch of the one in force.
    pub fn next_switch(&self, make: impl FnOnce(&Switch) -> Switch) -> Switch {
        let plan = Arc::clone(&lock(&self.crew.plan));
        make(&plan.switch)
    }

    /// Where kicks and devices are watched.
    pub fn mailboxes(&self) -> &Arc<Mailboxes> {
        &self.crew.mailboxes
    }

    /// Readable when there are incidents.
    pub fn alarm(&self) -> &Waker {
        &self.crew.alarm
    }

    /// What stopped working since the last call.
    pub fn take_incidents(&self) -> Vec<Incident> {
        self.crew.alarm.clear();
        std::mem::take(&mut *lock(&self.crew.incidents))
    }

    /// Puts another switch in force, and as many workers as are wanted, where they are wanted. Whatever fails, the
    /// switch is in force.
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
        let plan = Arc::new(Plan::new(switch, config.mode, workers));
        self.assign(&plan);
        let before = std::mem::replace(&mut *lock(&self.crew.plan), plan);
        self.dismiss(workers);
        self.post_all(Message::Configured);
        until_unused(&before);
        for (number, thread) in self.threads.iter_mut().enumerate() {
            let own = config.cpus.get(number).map(std::slice::from_ref);
            let cpus = own.unwrap_or(&config.near);
            if let Err(source) = thread.affinity.put(cpus) {
                result = Err(WorkerError::Bind { number, cpus: cpus.to_vec(), source });
            }
        }
        result
    }

    /// Gives every source of the plan an owner among its workers. Old ones keep theirs, unless the number of workers
    /// has changed.
    fn assign(&self, plan: &Plan) {
        let mut moving = lock(&self.crew.moving);
        let before = Arc::clone(&lock(&self.crew.plan));
        let respread = moving.workers != plan.workers;
        moving.workers = plan.workers;
        let mut owned = vec![0_usize; plan.workers];
        let mut homeless = Vec::new();
        for &source in &plan.sources {
            let port = plan.port(source);
            let known = before.find(port.id).is_some_and(|old| Arc::ptr_eq(old, port));
            if known && !respread {
                owned[port.owner(source.pair)] += 1;
            } else {
                homeless.push(source);
            }
        }
        for source in homeless {
            let (to, count) =
                owned.iter_mut().enumerate().min_by_key(|(_, count)| **count).expect("there is a worker");
            *count += 1;
            let port = plan.port(source);
            if let Err(error) = port.give(source.pair, to, &self.crew.mailboxes) {
                tracing::warn!("{} stays with worker {}: {error}", port.id, port.owner(source.pair));
            }
        }
    }

    /// Ends the workers from this number on; nothing is theirs any more.
    fn dismiss(&mut self, from: usize) {
        for number in from..self.threads.len() {
            self.crew.mailboxes.get(number).post(Message::Quit);
        }
        for thread in self.threads.drain(from..) {
            // A worker that panicked has taken the process along.
            let _ = thread.handle.join();
        }
    }

    fn post_all(&self, note: Message) {
        for number in 0..self.threads.len() {
            self.crew.mailboxes.get(number).post(note);
        }
    }

    /// Has a port's queues looked at once, soon: what is attached to it has changed.
    pub fn look_at(&self, port: PortId) {
        self.post_all(Message::Look(port));
    }

    /// Lets the bursts in hand end, and the workers with them.
    pub fn stop(&mut self) {
        self.dismiss(0);
    }
}

/// Waits until no worker goes by a plan any more: what is said to be in force is. Each drops it after the burst in hand.
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
