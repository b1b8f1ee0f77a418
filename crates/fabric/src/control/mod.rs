//! The control thread: it serves `tautd` and the front ends.
//!
//! Only this thread changes what is attached to ports; workers only move frames. Without a `tautd`
//! it continues to serve front ends. It sends a changed session to `tautd` before it answers the
//! front end, and before it waits again. A front end therefore never relies on a state that only
//! this process knows.

mod attach;
mod captures;
mod configure;
mod entry;
mod front_ends;
mod groups;
mod heartbeat;
mod log_limit;
mod messages;
mod network_io;
mod own_frames;
mod peer;
mod queue_pair_memory;
#[cfg(feature = "rig")]
pub mod rig;
mod standby;
mod teams;
mod token;
mod uplinks;
mod validate;
mod vsock;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use taut_api::fabric::{FabricConfig, FromFabric, PortId};
use taut_virtq::counters::SharedWords;
use taut_virtq::memory::survive_lost_pages;
use tracing::info;

use crate::sys::epoll::{Epoll, EventFlags, Ready, Waker, Watched, set_nonblocking};
use crate::sys::watch;
use crate::worker::Workers;
use entry::Entry;
use groups::GroupWatch;
use heartbeat::Heartbeat;
use peer::Tautd;
use teams::Teams;
use vsock::VsockDevices;

/// Longest wait of a new process for the `tautd` that started it.
///
/// A `tautd` that was killed before it recorded the process number leaves a process that nobody
/// knows of.
const FIRST_CONTACT: Duration = Duration::from_secs(60);

/// The control thread's state.
#[derive(Debug)]
pub struct Control {
    events: Epoll,
    /// The socket to which `tautd` connects.
    listener: Watched<OwnedFd>,
    _alarm: Watched<Waker>,
    /// Readable after a front end has blocked a thread.
    blocked: Watched<Waker>,
    /// Readable after pages of guest memory have vanished.
    lost: Watched<Waker>,
    /// `tautd` has connected at least once. From then on, traffic continues without a connection.
    known: bool,
    tautd: Tautd,
    words: Arc<SharedWords>,
    workers: Workers,
    vsock: VsockDevices,
    heartbeat: Heartbeat,
    /// Ports and vsock devices.
    entries: BTreeMap<PortId, Entry>,
    config: FabricConfig,
    /// Captures of ports.
    captures: captures::Running,
    /// Teams of uplinks.
    teams: Teams,
    /// Time of the next look at the links of uplinks.
    next_look: Instant,
    /// Multicast groups of segments with snooping, and questions about them.
    groups: GroupWatch,
    /// Another process serves the ports; this one only prepares.
    standby: bool,
}

impl Control {
    /// Creates a data plane without ports. `listener` is the socket to which `tautd` connects, and
    /// `words` the mapped counters file.
    pub fn new(listener: OwnedFd, words: SharedWords) -> io::Result<Self> {
        let words = Arc::new(words);
        // The watch starts before any other thread: one that has signalled earlier is not watched.
        let blocked = watch::start()?;
        let lost = Waker::new()?;
        survive_lost_pages(lost.as_fd().try_clone_to_owned()?)?;
        let workers = Workers::start(&words)?;
        let events = Epoll::new()?;
        let vsock = VsockDevices::start(&words, &events)?;
        set_nonblocking(&listener)?;
        Ok(Self {
            listener: events.watch(listener, token::CONTROL, EventFlags::IN)?,
            blocked: events.watch(blocked, token::HARM, EventFlags::IN)?,
            lost: events.watch(lost, token::HARM, EventFlags::IN)?,
            _alarm: events.watch(workers.alarm().clone(), token::ALARM, EventFlags::IN)?,
            events,
            known: false,
            tautd: Tautd::default(),
            words,
            workers,
            vsock,
            heartbeat: Heartbeat::default(),
            entries: BTreeMap::new(),
            config: FabricConfig::default(),
            captures: captures::Running::default(),
            teams: Teams::default(),
            next_look: Instant::now(),
            groups: GroupWatch::default(),
            standby: false,
        })
    }

    /// Serves until `tautd` sends [`ToFabric::Quit`](taut_api::fabric::ToFabric::Quit).
    pub fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::<Ready>::new();
        let begun = Instant::now();
        loop {
            let now = Instant::now();
            let looks = [self.look_at_uplinks(now), self.look_at_groups(now)];
            let look = looks.into_iter().flatten().min().map(|at| at.saturating_duration_since(now));
            self.events.wait(&mut ready, look.or((!self.known).then_some(FIRST_CONTACT)))?;
            if !self.known && begun.elapsed() >= FIRST_CONTACT {
                info!(
                    "no tautd has connected for {FIRST_CONTACT:?}; the one that started this process is gone"
                );
                return Ok(());
            }
            for &(token, _) in &ready {
                let port = PortId(token as u16);
                match token & token::KIND {
                    token::CONTROL => self.accept_tautd(),
                    token::TAUTD if self.serve_tautd() => {
                        self.quit();
                        return Ok(());
                    }
                    token::ALARM => self.handle_incidents(),
                    token::VSOCK => self.handle_vsock_events(),
                    token::HARM => self.handle_harm(),
                    token::FRONT_END => self.serve_front_end(port),
                    token::LISTENER => self.accept_front_end(port),
                    token::CAPTURE => self.end_capture(port.0),
                    _ => {}
                }
                if self.standby && !self.tautd.is_connected() {
                    // No tautd is left to let this process take over.
                    return Ok(());
                }
                self.report_changes();
            }
        }
    }

    /// Reports to `tautd` what has changed at the ports.
    fn report_changes(&mut self) {
        if !self.tautd.is_greeted() {
            self.vsock.refuse_questions();
            return;
        }
        if self.standby {
            return;
        }
        for (&port, entry) in &mut self.entries {
            if let Some(status) = entry.changed_status() {
                let entry::Status { link, reason, attached, unused_queue_pairs } = status;
                let state = FromFabric::PortState { port, link, reason, attached, unused_queue_pairs };
                self.tautd.send(&state, &[]);
            }
        }
    }

    /// Ends in good order, as the first half of an upgrade: publishes all frames and records all
    /// sessions.
    ///
    /// The sockets close with the process; duplicates held by `tautd` keep the connections open.
    fn quit(mut self) {
        self.workers.stop();
        let streams = self.vsock.stop();
        for entry in self.entries.values_mut() {
            entry.device.stop();
            if let Some(session) = &mut entry.session {
                self.tautd.record_changes(session);
            }
        }
        self.hand_over_streams(&streams);
        self.tautd.send(&FromFabric::Stopped, &[]);
        info!("ended on tautd's request");
    }
}

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
