//! Threads that close descriptors of strangers.
//!
//! Closing a descriptor can wait for as long as its sender likes: a file system in user space
//! answers the close, or does not; a Unix socket that is closed closes the descriptors in its
//! queue. No signal ends such a wait. Therefore a descriptor that came from a stranger is put into
//! the [`ClosingQueue`] of its source, and a thread of its own closes it.
//!
//! One queue occupies at most one thread, whatever comes. Threads are started when all others are
//! busy, so that a source that blocks its thread delays no other one until there are
//! [`MOST_THREADS`].

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use super::PortId;

/// Descriptors of one source that may wait behind a close that lasts [`LONG`].
pub const MOST_WAITING: usize = 256;
/// Descriptors of one source that may wait until a thread has time for them.
const MOST_AT_ONCE: usize = 4096;
/// Duration of a close that is reported.
pub const LONG: Duration = Duration::from_secs(1);
/// Threads that stay when there is nothing to close. A process would reach a greater number little
/// by little, one more whenever several closes meet.
const IDLE: usize = 1;
/// Most threads of the process, blocked ones included.
const MOST_THREADS: usize = 512;

/// The descriptors of one source that wait to be closed. Clones are the same queue.
#[derive(Debug, Clone)]
pub struct ClosingQueue(Arc<Queue>);

#[derive(Debug)]
struct Queue {
    port: PortId,
    /// A close that lasted long was reported. Queues of one port may share it.
    reported: Arc<AtomicBool>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<OwnedFd>,
    /// A thread closes the queue's descriptors, or the queue waits for one.
    scheduled: bool,
    /// Beginning of the close that is under way.
    since: Option<Instant>,
    /// The source was reported to have sent too much. Reset when the queue is empty.
    full_reported: bool,
}

impl State {
    fn lasts_long(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > LONG)
    }
}

/// The threads and the queues that wait for one.
#[derive(Debug)]
struct Pool {
    state: Mutex<Work>,
    added: Condvar,
}

#[derive(Debug)]
struct Work {
    ready: VecDeque<Arc<Queue>>,
    /// Queues that a thread works on.
    busy: Vec<Arc<Queue>>,
    threads: usize,
    idle: usize,
}

static POOL: Pool = Pool {
    state: Mutex::new(Work { ready: VecDeque::new(), busy: Vec::new(), threads: 0, idle: 0 }),
    added: Condvar::new(),
};

impl ClosingQueue {
    /// Makes an empty queue for the strangers at a port. A later port with the same number has
    /// another one.
    pub fn new(port: PortId) -> Self {
        Self::with(port, Arc::default())
    }

    /// Makes an empty queue for another source at the same port, with a thread and a limit of its
    /// own. A long close is reported once for both.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::with(self.0.port, Arc::clone(&self.0.reported))
    }

    /// Makes an empty queue for descriptors that belong to no port. A long close is not reported.
    pub fn unreported() -> Self {
        Self::with(PortId(0), Arc::new(AtomicBool::new(true)))
    }

    fn with(port: PortId, reported: Arc<AtomicBool>) -> Self {
        Self(Arc::new(Queue { port, reported, state: Mutex::default() }))
    }

    /// Tells whether both are the same queue.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Tells whether there is a descriptor of this source, or one that waits for its close.
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Has the descriptor closed by a thread.
    pub(super) fn close(&self, fd: OwnedFd) {
        // Fuzz targets send only descriptors whose close does not wait. Waking a thread for each of
        // them would take a third of their time.
        if cfg!(fuzzing) {
            return;
        }
        let mut state = locked(&self.0.state);
        state.waiting.push_back(fd);
        if !std::mem::replace(&mut state.scheduled, true) {
            drop(state);
            POOL.add(Arc::clone(&self.0));
        }
    }

    /// Tells whether so many descriptors wait that the source must not send more.
    pub fn is_clogged(&self) -> bool {
        let state = locked(&self.0.state);
        let waiting = state.waiting.len();
        waiting >= MOST_AT_ONCE || waiting >= MOST_WAITING && state.lasts_long()
    }

    /// Tells whether the queue is full even for accepted sockets, which would have to wait behind
    /// its descriptors.
    pub fn is_exhausted(&self) -> bool {
        locked(&self.0.state).waiting.len() >= MOST_AT_ONCE
    }

    /// Tells whether everything was closed.
    pub fn is_empty(&self) -> bool {
        !locked(&self.0.state).scheduled
    }

    /// Returns `true` once while a close that lasts longer than [`LONG`] keeps so many descriptors
    /// waiting that the source must not send more. Returns it again after the queue was empty.
    pub fn report_full(&self) -> bool {
        let mut state = locked(&self.0.state);
        let is_full = state.waiting.len() >= MOST_WAITING && state.lasts_long();
        is_full && !std::mem::replace(&mut state.full_reported, true)
    }
}

/// Tells whether no thread closes descriptors and no queue waits for a thread. Then no queue is
/// clogged. A queue whose first descriptor has just come may not be counted yet.
pub fn is_idle() -> bool {
    let work = locked(&POOL.state);
    work.ready.is_empty() && work.busy.is_empty()
}

/// Returns the ports at which a close has lasted for longer than [`LONG`], each once in the life of
/// its queues.
pub fn overdue() -> Vec<PortId> {
    let is_new = |queue: &&Arc<Queue>| {
        locked(&queue.state).lasts_long() && !queue.reported.swap(true, Ordering::Relaxed)
    };
    locked(&POOL.state).busy.iter().filter(is_new).map(|queue| queue.port).collect()
}

impl Pool {
    /// Gives a queue to a thread that is idle, or to a new one.
    fn add(&'static self, queue: Arc<Queue>) {
        let mut work = locked(&self.state);
        work.ready.push_back(queue);
        if work.idle >= work.ready.len() {
            self.added.notify_one();
        } else if work.threads < MOST_THREADS {
            work.threads += 1;
            drop(work);
            let started = std::thread::Builder::new().name("closing".to_owned()).spawn(|| self.run());
            if started.is_err() {
                // The next thread that is free takes the queue.
                locked(&self.state).threads -= 1;
            }
        }
    }

    fn run(&self) {
        run_anywhere();
        while let Some(queue) = self.next() {
            queue.close_all();
            let mut work = locked(&self.state);
            // Another thread may work on the queue by now, for which there is another entry.
            if let Some(at) = work.busy.iter().position(|busy| Arc::ptr_eq(busy, &queue)) {
                work.busy.swap_remove(at);
            }
        }
    }

    /// Waits for a queue. Returns `None` if enough other threads wait.
    fn next(&self) -> Option<Arc<Queue>> {
        let mut work = locked(&self.state);
        loop {
            if let Some(queue) = work.ready.pop_front() {
                work.busy.push(Arc::clone(&queue));
                return Some(queue);
            }
            if work.idle >= IDLE {
                work.threads -= 1;
                return None;
            }
            work.idle += 1;
            work = self.added.wait(work).unwrap_or_else(PoisonError::into_inner);
            work.idle -= 1;
        }
    }
}

impl Queue {
    fn close_all(&self) {
        loop {
            let fd = {
                let mut state = locked(&self.state);
                let Some(fd) = state.waiting.pop_front() else {
                    (state.since, state.scheduled, state.full_reported) = (None, false, false);
                    return;
                };
                state.since = Some(Instant::now());
                fd
            };
            drop(fd);
        }
    }
}

/// Lifts the binding to pCPUs that the thread has from the thread that started it, which may own
/// one.
fn run_anywhere() {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // A thread that stays bound closes descriptors all the same.
    let _ = sched_setaffinity(None, &all);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
