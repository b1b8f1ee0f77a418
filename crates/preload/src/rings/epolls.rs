//! `epoll_wait` with connections that have channels.

use std::os::fd::RawFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use libc::epoll_event;

use super::events::directions;
use super::leave;
use super::plain::may_skip;
use super::record::{Pair, Stop};
use super::reports::{due, due_plainly, has_packet, take};
use super::wait::{AFTER_HANGUP, Armed, Waiter};
use super::watch::{Marked, look_again};
use crate::state::TABLE;
use crate::table::{Watch, Way};

/// Number of the connection at which the next report begins, so that all have their turn.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Longest sleep while another process has the same connection.
const LONGEST_SHARED: Duration = Duration::from_millis(100);

/// One round of an `epoll_wait`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watching {
    instance: RawFd,
    /// Number of connections that have events.
    ready: usize,
    /// Longest time that the round may take.
    longest: Option<Duration>,
}

/// The watch on a connection with a channel, if it is the same connection still.
fn watched(fd: RawFd) -> Option<(Watch, Pair)> {
    let watch = TABLE.watch(fd).ok()??;
    Some((watch, Pair::known(fd)?))
}

impl Watching {
    /// Stores the events of connections without asking the kernel for those of other descriptors,
    /// if nothing but bytes has come and gone on all connections that the instance watches, and
    /// there are events. Of the calls of an instance, some ask the kernel all the same.
    pub(crate) fn plainly(instance: RawFd, room: &mut [epoll_event]) -> Option<usize> {
        let (mut ready, mut count) = (0, 0);
        for fd in TABLE.rings_watched(instance) {
            let (watch, pair) = (TABLE.watch(fd).ok()??, Pair::now(fd)?);
            ready += usize::from(due_plainly(fd, watch, &pair)? != 0);
        }
        // If there is no room for all, they have their turns.
        let has_room = ready > 0 && ready <= room.len();
        if !has_room || !may_skip(Some(TABLE.root(instance))) {
            return None;
        }
        for (to, event) in room.iter_mut().zip(TABLE.rings_watched(instance).filter_map(plain_event)) {
            *to = event;
            count += 1;
        }
        (count > 0).then_some(count)
    }

    /// Begins a round. The thread may sleep if nothing is ready.
    pub(crate) fn new(instance: RawFd) -> Self {
        let mut this = Self { instance, ready: 0, longest: None };
        for fd in TABLE.rings_watched(instance) {
            let Some((watch, pair)) = watched(fd) else {
                if matches!(TABLE.way(fd), Way::Channel(_)) {
                    // The channel is another connection's by now.
                    leave::follow(fd);
                }
                continue;
            };
            if pair.is_shared() {
                // The other process may take a signal before this one sleeps.
                this.longest = Some(LONGEST_SHARED);
            }
            if pair.is_quiet(watch.events as i16) {
                continue;
            }
            this.ready += usize::from(arm(fd, watch, &pair));
            if pair.hung_up().is_some() {
                this.longest = Some(Duration::from_millis(AFTER_HANGUP));
            }
        }
        this
    }

    /// Number of events for which the kernel has room, of `most`. 0: it is not asked.
    pub(crate) fn room(&self, most: usize) -> usize {
        match self.ready {
            0 => most,
            // The rings and the kernel have their turns.
            _ if most == 1 => (TABLE.turn(TABLE.root(self.instance)) % 2) as usize,
            ready => most - ready.min(most / 2),
        }
    }

    /// The time that the kernel may wait, of the time that the program allows.
    pub(crate) fn time(&self, until: Option<Instant>) -> Option<Duration> {
        if self.ready > 0 {
            return Some(Duration::ZERO);
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        [left, self.longest].into_iter().flatten().min()
    }

    /// Ends the round. `count` of the events are the kernel's. Removes those of the library, and
    /// adds those of connections. Returns the number of all.
    pub(crate) fn finish(&self, events: &mut [epoll_event], count: usize) -> usize {
        let mut kept = 0;
        for place in 0..count {
            let Some(event) = events.get(place).copied() else { break };
            if let Some(marked) = Marked::of(event.u64) {
                look(marked, event.events);
            } else {
                if let Some(to) = events.get_mut(kept) {
                    *to = event;
                }
                kept += 1;
            }
        }
        let room = events.get_mut(kept..).unwrap_or_default();
        kept + self.report(room)
    }

    /// Stores the events of connections. Returns their number.
    fn report(&self, room: &mut [epoll_event]) -> usize {
        let first = NEXT.load(Relaxed).cast_signed();
        let later = TABLE.rings_watched(self.instance).filter(|fd| *fd >= first);
        let all = later.chain(TABLE.rings_watched(self.instance).filter(|fd| *fd < first));
        let mut count = 0;
        for fd in all {
            let Some((watch, known)) = watched(fd) else { continue };
            let events = due(fd, watch, &known);
            if events == 0 {
                continue;
            }
            let Some(to) = room.get_mut(count) else {
                NEXT.store(fd as u32, Relaxed);
                if TABLE.waiting_for(self.instance) > 1 {
                    // As the kernel wakes another thread for what one has no room for.
                    let _ = look_again(fd, watch);
                }
                break;
            };
            if known.has_gone() && Pair::of(fd).is_none() {
                // The number is another file by now.
                TABLE.end_edge(fd);
                continue;
            }
            let Some(event) = take(fd, watch, events, &known) else { continue };
            *to = event;
            count += 1;
        }
        count
    }
}

/// Reports the event of a connection on which nothing but bytes has come and gone.
fn plain_event(fd: RawFd) -> Option<epoll_event> {
    let (watch, pair) = (TABLE.watch(fd).ok()??, Pair::now(fd)?);
    let events = due_plainly(fd, watch, &pair).filter(|events| *events != 0)?;
    take(fd, watch, events, &pair)
}

/// Has the fabric signal for a connection. Returns whether there are events to report.
fn arm(fd: RawFd, watch: Watch, pair: &Pair) -> bool {
    let mut is_ready = false;
    for direction in directions(watch.events as i16) {
        match pair.arm(direction, Waiter::Epoll) {
            // The next signal is another edge, whoever takes this one.
            Ok(Armed::Asleep | Armed::Busy) => {}
            Ok(Armed::Ready) | Err(Stop::Failed(_)) => is_ready = true,
            Err(Stop::Left) => {
                leave::follow(fd);
                return false;
            }
        }
    }
    (is_ready || pair.has_ended() || pair.hung_up().is_some()) && due(fd, watch, pair) != 0
}

/// Looks at a connection one of whose sockets has an event.
fn look(marked: Marked, events: u32) {
    let events = events as i16;
    match TABLE.way(marked.fd) {
        Way::Channel(_) => {}
        // It has just left.
        _ => return,
    }
    let Some((watch, pair)) = watched(marked.fd) else { return };
    if marked.is_control {
        pair.saw(events, 0);
    } else {
        pair.saw(0, events & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR));
        if pair.by_packets() > 0 {
            has_packet(marked.fd);
        }
    }
    arm(marked.fd, watch, &pair);
}
