//! Worker threads: they move the frames.
//!
//! A worker serves the transmit sides of its ports. Those with something to do are *active* and looked at round after
//! round, a burst each; one that has had nothing for [`WorkerConfig::poll_us`] is *idle*: its guest may kick again, and
//! it costs nothing until it does. One whose first frame waits for a receiver's room is *parked* once polling has been
//! of no use: an event or the time at which the frame is dropped brings it back. With none active the worker sleeps.
//!
//! The control thread changes what a worker sees by replacing its [`Switch`] and by putting ends into ports; either is
//! followed by a wake-up, on which the worker looks at what has changed once.
//!
//! [`WorkerConfig::poll_us`]: taut_api::fabric::config::WorkerConfig::poll_us

mod serve;
pub mod token;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use taut_api::fabric::PortId;
use taut_api::fabric::config::WorkerConfig;
use taut_api::fabric::counters::{PortWord, WorkerWord};
use taut_virtq::counters::SharedWords;

use crate::counters::WorkerBlock;
use crate::epoll::{Epoll, EventFlags, Ready, Waker, Watched};
use crate::port::Failure;
use crate::switch::Switch;
use crate::switch::forward::{Fallen, Scratch};

/// While there is work, how often new events are looked for: a system call every so often costs little then, and a port
/// that wakes up next to a busy one does not wait long.
const EVENT_INTERVAL: Duration = Duration::from_micros(10);

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
    /// Nothing is attached.
    Absent,
}

/// What control and worker share.
#[derive(Debug)]
struct Shared {
    events: Epoll,
    waker: Waker,
    quit: AtomicBool,
    poll_us: AtomicU32,
    switch: Mutex<Arc<Switch>>,
    /// Ports that are to be looked at.
    changed: Mutex<Vec<PortId>>,
    incidents: Mutex<Vec<Incident>>,
    /// Wakes the control thread for incidents.
    alarm: Waker,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The control thread's handle to the worker.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The worker's thread, and where it may run unless it is bound.
    tid: Pid,
    anywhere: CpuSet,
}

impl Workers {
    /// Starts the worker, with an empty switch.
    pub fn start(words: &Arc<SharedWords>) -> io::Result<Self> {
        let anywhere = sched_getaffinity(None)?;
        let shared = Arc::new(Shared {
            events: Epoll::new()?,
            waker: Waker::new()?,
            quit: AtomicBool::new(false),
            poll_us: AtomicU32::new(WorkerConfig::default().poll_us),
            switch: Mutex::default(),
            changed: Mutex::default(),
            incidents: Mutex::default(),
            alarm: Waker::new()?,
        });
        let (send, receive) = std::sync::mpsc::channel();
        let worker = Worker::new(Arc::clone(&shared), WorkerBlock::new(words, 0))?;
        let thread = std::thread::Builder::new().name("worker0".to_owned()).spawn(move || {
            let _abort = AbortOnPanic;
            let _ = send.send(gettid());
            worker.run();
        })?;
        let tid = receive.recv().map_err(io::Error::other)?;
        Ok(Self { shared, thread: Some(thread), tid, anywhere })
    }

    /// Where kicks and devices are to be watched.
    pub fn events(&self) -> &Epoll {
        &self.shared.events
    }

    /// Readable when there are incidents.
    pub fn alarm(&self) -> &Waker {
        &self.shared.alarm
    }

    /// What stopped working since the last call.
    pub fn take_incidents(&self) -> Vec<Incident> {
        self.shared.alarm.clear();
        std::mem::take(&mut *lock(&self.shared.incidents))
    }

    /// Puts another switch in force, and the behaviour that goes with it. There is one worker: it is bound to the first
    /// of the pCPUs named.
    pub fn configure(&self, switch: Switch, config: &WorkerConfig) -> io::Result<()> {
        *lock(&self.shared.switch) = Arc::new(switch);
        self.shared.poll_us.store(config.poll_us, Relaxed);
        self.shared.waker.wake();
        let mut cpus = CpuSet::new();
        match config.cpus.first() {
            Some(&cpu) if (cpu as usize) < CpuSet::MAX_CPU => cpus.set(cpu as usize),
            Some(&cpu) => return Err(io::Error::other(format!("there is no pCPU {cpu}"))),
            None => cpus = self.anywhere,
        }
        Ok(sched_setaffinity(Some(self.tid), &cpus)?)
    }

    /// Has a port's queues looked at once, soon: what is attached to it has changed.
    pub fn look_at(&self, port: PortId) {
        lock(&self.shared.changed).push(port);
        self.shared.waker.wake();
    }

    /// Lets the burst in hand end, and the worker with it.
    pub fn stop(&mut self) {
        self.shared.quit.store(true, Relaxed);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A worker that panicked has taken the process along.
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A data plane without its worker would look alive: better to end, and be started anew with all sessions.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// The transmit side of one queue pair.
#[derive(Debug)]
struct Source {
    segment: usize,
    member: u32,
    pair: usize,
    active: bool,
    /// When it last had a frame.
    last_frame: Instant,
}

#[derive(Debug)]
struct Worker {
    shared: Arc<Shared>,
    counters: WorkerBlock,
    wake: Watched<Waker>,
    switch: Arc<Switch>,
    sources: Vec<Source>,
    /// Index of each port's first source, by port number.
    index: Vec<Option<u32>>,
    active: Vec<u32>,
    parked: Vec<(u32, Instant)>,
    lists: Lists,
    ready: Vec<Ready>,
}

/// Memory that bursts use again and again.
#[derive(Debug, Default)]
struct Lists {
    scratch: Scratch,
    touched: Vec<u32>,
    fallen: Vec<Fallen>,
}

impl Worker {
    fn new(shared: Arc<Shared>, counters: WorkerBlock) -> io::Result<Self> {
        let wake = shared.events.watch(shared.waker.clone(), token::WAKE, EventFlags::IN)?;
        Ok(Self {
            shared,
            counters,
            wake,
            switch: Arc::default(),
            sources: Vec::new(),
            index: Vec::new(),
            active: Vec::new(),
            parked: Vec::new(),
            lists: Lists::default(),
            ready: Vec::new(),
        })
    }

    fn run(mut self) {
        self.take_up();
        let mut looked = Instant::now();
        while !self.shared.quit.load(Relaxed) {
            let now = Instant::now();
            let frames = self.round(now);
            let word = if frames { WorkerWord::Bursts } else { WorkerWord::EmptyRounds };
            self.counters.add(word, 1);
            if self.active.is_empty() {
                self.sleep(now);
                looked = now;
            } else if now.duration_since(looked) >= EVENT_INTERVAL {
                self.wait(Some(Duration::ZERO));
                looked = now;
            } else if !frames {
                std::hint::spin_loop();
            }
        }
    }

    /// Serves every active source once; tells whether there was a frame.
    fn round(&mut self, now: Instant) -> bool {
        let poll = Duration::from_micros(u64::from(self.shared.poll_us.load(Relaxed)));
        let mut frames = false;
        let mut at = 0;
        while let Some(&number) = self.active.get(at) {
            let source = &mut self.sources[number as usize];
            let outcome = serve::burst(&self.switch, source, now, &mut self.lists);
            if outcome.frames > 0 {
                frames = true;
                source.last_frame = now;
            }
            if !outcome.incidents.is_empty() {
                lock(&self.shared.incidents).extend(outcome.incidents);
                self.shared.alarm.wake();
            }
            let patient = now.duration_since(source.last_frame) < poll;
            let stays = match outcome.next {
                Next::More => true,
                Next::Nothing => patient || serve::arm(&self.switch, source),
                Next::Wait(_) if patient => true,
                Next::Wait(until) => {
                    self.parked.push((number, until));
                    false
                }
                Next::Absent => false,
            };
            if stays {
                at += 1;
            } else {
                source.active = false;
                self.active.swap_remove(at);
            }
        }
        frames
    }

    /// Waits for an event, or for the first parked frame's time.
    fn sleep(&mut self, now: Instant) {
        let until = self.parked.iter().map(|&(_, until)| until).min();
        self.wait(until.map(|until| until.saturating_duration_since(now)));
        self.counters.add(WorkerWord::Sleeps, 1);
        let asleep = now.elapsed();
        self.counters.add(WorkerWord::SleepNs, asleep.as_nanos() as u64);
        if until.is_some_and(|until| now + asleep >= until) {
            self.unpark();
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        let mut ready = std::mem::take(&mut self.ready);
        if let Err(error) = self.shared.events.wait(&mut ready, timeout) {
            // Nothing a guest does leads here; without events there is no worker.
            panic!("waiting for events failed: {error}");
        }
        for &(token, flags) in &ready {
            if token == token::WAKE {
                self.wake.clear();
                self.attend();
            } else {
                self.event(token, flags);
            }
        }
        self.ready = ready;
    }

    /// The control thread has changed something.
    fn attend(&mut self) {
        let changed = std::mem::take(&mut *lock(&self.shared.changed));
        if !Arc::ptr_eq(&self.switch, &lock(&self.shared.switch)) {
            self.take_up();
            return;
        }
        for port in changed {
            let Some(Some(first)) = self.index.get(usize::from(port.0)).copied() else { continue };
            let source = &self.sources[first as usize];
            let pairs = self.switch.segments[source.segment].members[source.member as usize].port.pairs();
            for number in first..first + pairs as u32 {
                self.activate(number);
            }
        }
        // Whoever waited for one of them may go on.
        self.unpark();
    }

    /// A guest kicked, or a device is ready.
    fn event(&mut self, token: u64, flags: EventFlags) {
        let (port, queue) = token::queue(token);
        let Some(Some(first)) = self.index.get(usize::from(port.0)).copied() else { return };
        let source = &self.sources[first as usize];
        let port = &self.switch.segments[source.segment].members[source.member as usize].port;
        if port.is_guest() {
            port.counters.add(PortWord::Kicks, 1);
        }
        if queue.is_multiple_of(2) {
            self.unpark();
            return;
        }
        if flags.contains(EventFlags::OUT) {
            serve::flush(port);
            self.unpark();
        }
        self.activate(first + (queue / 2) as u32);
    }

    /// Takes up the switch in force and looks at all of it.
    fn take_up(&mut self) {
        self.switch = Arc::clone(&lock(&self.shared.switch));
        let now = Instant::now();
        self.active.clear();
        self.parked.clear();
        self.sources.clear();
        self.index.clear();
        for (number, segment) in self.switch.segments.iter().enumerate() {
            for (member, place) in segment.members.iter().zip(0..) {
                let port = usize::from(member.port.id.0);
                if self.index.len() <= port {
                    self.index.resize(port + 1, None);
                }
                self.index[port] = Some(self.sources.len() as u32);
                self.sources.extend((0..member.port.pairs()).map(|pair| Source {
                    segment: number,
                    member: place,
                    pair,
                    active: false,
                    last_frame: now,
                }));
            }
        }
        for number in 0..self.sources.len() as u32 {
            self.activate(number);
        }
    }

    fn activate(&mut self, number: u32) {
        let source = &mut self.sources[number as usize];
        if !source.active {
            source.active = true;
            self.active.push(number);
            serve::disarm(&self.switch, source);
        }
    }

    fn unpark(&mut self) {
        while let Some((number, _)) = self.parked.pop() {
            self.activate(number);
        }
    }
}
