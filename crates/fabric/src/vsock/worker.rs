//! The thread that serves all devices.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{Pid, gettid};

use super::hub::{FOREVER, Hub};
use super::sharing::Sharing;
use super::{Shared, token};
use crate::sys::epoll::{EventFlags, Ready};

/// While there is work, how often new events are looked for.
const EVENT_INTERVAL: Duration = Duration::from_micros(20);

/// Starts it and tells its thread id.
pub(super) fn start(shared: Arc<Shared>) -> io::Result<(JoinHandle<()>, Pid)> {
    let (send, receive) = std::sync::mpsc::channel();
    let handle = std::thread::Builder::new().name("sockets".to_owned()).spawn(move || {
        let _abort = AbortOnPanic;
        let _ = send.send(gettid());
        run(&shared);
    })?;
    let tid = receive.recv().map_err(io::Error::other)?;
    Ok((handle, tid))
}

/// As for workers: better to end, and be started anew with all sessions.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn run(shared: &Shared) {
    let mut ready: Vec<Ready> = Vec::new();
    let events = shared.hub().events.clone();
    let mut now = Instant::now();
    let mut looked = now;
    let mut sharing = Sharing::default();
    loop {
        let mut hub = shared.hub();
        if hub.quit {
            return;
        }
        let worked = hub.round(now);
        let pause = hub.pause(now);
        let news = !hub.news.is_empty();
        let (shares_cpu, shown) = (hub.worker.cpu.is_none(), hub.shown);
        drop(hub);
        if news {
            shared.alarm.wake();
        }
        // The lock is not a fair one: whoever waits for it is let in.
        while shared.wanted.load(SeqCst) > 0 {
            std::thread::yield_now();
        }
        now = Instant::now();
        if worked {
            sharing.worked(shown);
        }
        let timeout = match pause {
            Some(timeout) if !worked => timeout,
            _ if now.duration_since(looked) >= EVENT_INTERVAL => Duration::ZERO,
            _ => {
                if shares_cpu && !worked && sharing.gives_way(now) {
                    std::thread::yield_now();
                    sharing.is_back(now.elapsed());
                }
                continue;
            }
        };
        // A timer for nothing would be set up and taken down with each sleep.
        if let Err(error) = events.wait(&mut ready, (timeout < FOREVER).then_some(timeout)) {
            tracing::error!("waiting for events failed: {error}");
        }
        now = Instant::now();
        looked = now;
        if !ready.is_empty() {
            let mut hub = shared.hub();
            for &(token, flags) in &ready {
                match token & token::KIND {
                    token::WAKER => shared.waker.clear(),
                    _ => hub.happened(token, flags, now),
                }
            }
        }
    }
}

impl Hub {
    /// Deals with an event of a device's, or of the host's.
    pub(super) fn happened(&mut self, token: u64, flags: EventFlags, now: Instant) {
        let number = (token & token::NUMBER) as u32;
        match token & token::KIND {
            token::TX_KICK => self.kicked(number as usize, now),
            token::RX_KICK => self.has_buffers(number as usize),
            token::LISTENER => self.accept_clients(number as usize, now),
            token::CLIENT => self.hear(number, flags, now),
            token::STREAM => self.stream_ready(number, flags),
            _ => {}
        }
    }
}
