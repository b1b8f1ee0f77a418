//! The thread that serves all devices.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::engine::VsockSwitch;
use super::guest::EventSource;
use super::sched::{FOREVER, Sharing};
use crate::sys::affinity::CpuAffinity;
use crate::sys::epoll::{Ready, Waker, Watched};
use crate::sys::lock::lock;
use crate::sys::thread::Thread;
use crate::sys::timer::Timer;

/// Interval at which the thread looks for new events while there is work.
const EVENT_INTERVAL: Duration = Duration::from_micros(20);

/// State that the control thread and this thread share.
#[derive(Debug)]
pub(super) struct Shared {
    switch: Mutex<VsockSwitch>,
    /// Number of callers that wait for the lock besides the thread.
    waiting: AtomicUsize,
    /// Number of passes that the thread has made.
    passes: AtomicU64,
    /// The thread sleeps.
    asleep: AtomicBool,
    /// Wakes the thread.
    pub(super) waker: Waker,
    /// Wakes the control thread.
    pub(super) alarm: Waker,
}

impl Shared {
    pub(super) fn new(switch: VsockSwitch, waker: Waker) -> io::Result<Self> {
        Ok(Self {
            switch: Mutex::new(switch),
            waiting: AtomicUsize::new(0),
            passes: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            waker,
            alarm: Waker::new()?,
        })
    }

    /// The number of passes that the thread has made; `None` while it sleeps.
    pub(super) fn progress(&self) -> Option<u64> {
        (!self.asleep.load(Relaxed)).then(|| self.passes.load(Relaxed))
    }

    /// Locks the switch for any caller but the thread.
    pub(super) fn enter(&self) -> MutexGuard<'_, VsockSwitch> {
        self.waiting.fetch_add(1, SeqCst);
        let switch = lock(&self.switch);
        self.waiting.fetch_sub(1, SeqCst);
        switch
    }
}

/// Starts the thread. `timer` is a member of its epoll set.
pub(super) fn start(shared: Arc<Shared>, timer: Watched<Timer>) -> io::Result<Thread> {
    Thread::start("sockets".to_owned(), move || run(&shared, timer))
}

/// Runs rounds until the thread is to end. While a guest streams, it sleeps between two looks.
/// Events that [`Epoll::wait`] returns at the end of a pass are carried out there; the next pass
/// begins with the round that they have caused.
///
/// [`Epoll::wait`]: crate::sys::epoll::Epoll::wait
fn run(shared: &Shared, mut timer: Watched<Timer>) {
    let mut ready: Vec<Ready> = Vec::new();
    let epoll = lock(&shared.switch).epoll.clone();
    let mut now = Instant::now();
    let mut looked = now;
    // Nothing but an empty round has taken time since the clock was read.
    let mut now_is_fresh = false;
    let mut sharing = Sharing::default();
    let mut affinity = CpuAffinity::default();
    loop {
        shared.passes.store(shared.passes.load(Relaxed).wrapping_add(1), Relaxed);
        let mut switch = lock(&shared.switch);
        if switch.quit {
            return;
        }
        let worked = switch.round(now);
        let pause = switch.pause(now);
        let between_looks = if worked { None } else { switch.sleep_between_looks(now) };
        let has_events = !switch.events.is_empty();
        let bind_to = switch.bind_to.take();
        let next_patrol = switch.sched.patrols.next();
        let (shares_cpu, last_shown) = (switch.shares_cpu, switch.sched.unpublished.last_shown);
        drop(switch);
        if has_events {
            shared.alarm.wake();
        }
        if let Some(cpus) = bind_to
            && let Err(error) = affinity.bind(&cpus)
        {
            tracing::warn!(?cpus, %error, "the vsock thread cannot be bound to these pCPUs");
        }
        if let Err(error) = timer.set(next_patrol, now) {
            tracing::error!("the timer of the vsock thread cannot be set: {error}");
        }
        // The lock is not fair: callers that wait for it are let in here.
        while shared.waiting.load(SeqCst) > 0 {
            std::thread::yield_now();
        }
        if worked || !now_is_fresh {
            now = Instant::now();
        }
        now_is_fresh = false;
        if worked {
            sharing.worked(last_shown);
        }
        let timeout = match pause.or(between_looks) {
            Some(timeout) if !worked => timeout,
            _ if now.duration_since(looked) >= EVENT_INTERVAL => Duration::ZERO,
            _ => {
                if shares_cpu && !worked && sharing.should_yield(now) {
                    std::thread::yield_now();
                    let after = Instant::now();
                    sharing.yielded(after.saturating_duration_since(now));
                    now = after;
                    now_is_fresh = true;
                }
                continue;
            }
        };
        // A long time-out would set up and take down a timer with each sleep, for nothing. Patrols
        // have `timer` instead.
        shared.asleep.store(true, Relaxed);
        if let Err(error) = epoll.wait(&mut ready, (timeout < FOREVER).then_some(timeout)) {
            tracing::error!("waiting for vsock events failed: {error}");
        }
        shared.asleep.store(false, Relaxed);
        now = Instant::now();
        now_is_fresh = ready.is_empty();
        looked = now;
        if !ready.is_empty() {
            let mut switch = lock(&shared.switch);
            for &(token, flags) in &ready {
                match EventSource::from_token(token) {
                    Some(EventSource::Waker) => shared.waker.clear(),
                    Some(EventSource::Timer) => timer.clear(),
                    Some(source) => switch.on_event(source, flags, now),
                    None => {}
                }
            }
        }
    }
}
