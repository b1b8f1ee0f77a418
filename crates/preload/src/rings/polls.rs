//! The descriptors of a `poll` with those of channels in place of their connections.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use libc::pollfd;
use taut_queue_pair::Direction;

use super::attach::is_attached;
use super::events::directions;
use super::plain::{events_of, may_skip};
use super::record::{Pair, Stop};
use super::wait::{AFTER_HANGUP, Armed, Waiter};
use crate::few::Few;
use crate::state::TABLE;
use crate::table::Way;

/// Number of descriptors for which nothing is allocated.
const FEW: usize = 64;
/// Number of connections with channels for which nothing is allocated. Each call fills this many.
const FEW_RINGS: usize = 16;
const NONE: pollfd = pollfd { fd: -1, events: 0, revents: 0 };
/// Pause while another thread has to take bytes first.
const BUSY: Duration = Duration::from_millis(1);
/// Longest round of a thread that waits for neither ring: others may take the signal of the end.
const BYSTANDER: Duration = Duration::from_secs(1);

/// One connection of a `poll` that has a channel.
#[derive(Debug, Clone, Copy)]
struct Ring {
    /// Place among the program's descriptors.
    place: usize,
    /// Place of the control connection among the kernel's entries; `usize::MAX` if it is not
    /// polled.
    control: usize,
    index: u32,
    /// Cookie of the connection's socket.
    cookie: u64,
    number: RawFd,
    counted: bool,
    /// The events at the beginning of the round.
    events: i16,
}

const NO_RING: Ring =
    Ring { place: 0, control: usize::MAX, index: 0, cookie: 0, number: -1, counted: false, events: 0 };

/// One round of a `poll`.
#[derive(Debug)]
pub(crate) struct Polling {
    all: Few<pollfd, FEW>,
    rings: Few<Ring, FEW_RINGS>,
    is_ready: bool,
    /// Longest time that the round may take.
    longest: Option<Duration>,
    /// Place from which on the program's entries have not been looked through for unused ones.
    unused: usize,
}

impl Polling {
    /// Tells whether descriptors are among these that concern this module.
    pub(crate) fn concerns(program: &[pollfd]) -> bool {
        super::is_on() && program.iter().any(|one| super::concerns(one.fd))
    }

    /// Looks at the rings for a short time, if the user wants that and there is one connection.
    pub(crate) fn spin(program: &[pollfd], until: Option<Instant>) {
        let mut rings = program.iter().filter(|one| super::concerns(one.fd));
        if let (Some(one), None) = (rings.next(), rings.next())
            && one.events & super::events::WRITABLE == 0
            && is_attached(one.fd)
        {
            super::calls::spin(one.fd, Direction::In, until);
        }
    }

    /// Begins a round. With `waits`, the thread sleeps if nothing is ready.
    pub(crate) fn new(program: &[pollfd], waits: bool) -> Self {
        let mut this = Self {
            all: Few::of(program, NONE),
            rings: Few::new(NO_RING),
            is_ready: false,
            longest: None,
            unused: 0,
        };
        for (place, one) in program.iter().enumerate() {
            if super::concerns(one.fd) && is_attached(one.fd) {
                this.add(place, *one);
            }
        }
        if waits && !this.is_ready {
            this.arm(program);
        }
        this
    }

    /// Answers a call that finds something if nothing but bytes has come and gone on its
    /// connections. Most such calls do not ask the kernel about other descriptors.
    pub(crate) fn plainly(program: &mut [pollfd]) -> Option<i32> {
        let (mut count, mut others) = (0, None);
        for one in program {
            one.revents = if one.fd < 0 { 0 } else { events_of(one.fd, one.events, &mut others)? };
            count += i32::from(one.revents != 0);
        }
        (count > 0 && may_skip(others)).then_some(count)
    }

    /// Answers a call without the kernel, if there are connections with channels only and one of
    /// them is ready or the thread does not wait.
    pub(crate) fn at_once(program: &mut [pollfd], waits: bool) -> Option<i32> {
        let mut count = 0;
        for one in program.iter_mut() {
            one.revents = 0;
            if one.fd < 0 {
                continue;
            }
            if !super::concerns(one.fd) || !is_attached(one.fd) {
                return None;
            }
            let pair = Pair::now(one.fd)?;
            one.revents = pair.events(one.events).ok()?;
            if one.revents != 0 && pair.has_gone() && Pair::of(one.fd).is_none() {
                return None;
            }
            if one.revents == 0 && !waits {
                pair.found_nothing();
            }
            count += i32::from(one.revents != 0);
        }
        (count > 0 || !waits).then_some(count)
    }

    /// Adds a connection with a channel.
    fn add(&mut self, place: usize, one: pollfd) {
        // Closed, or another file by now: the kernel says what it is.
        let Some(pair) = Pair::now(one.fd) else { return };
        let events = match pair.events(one.events) {
            Ok(events) => events,
            Err(Stop::Left) => return super::leave::follow(one.fd),
            Err(Stop::Failed(_)) => return,
        };
        if events != 0 && pair.has_gone() && Pair::of(one.fd).is_none() {
            return super::leave::forget(one.fd);
        }
        self.is_ready |= events != 0;
        let (index, cookie, number) = (pair.channel.index(), pair.cookie(), pair.control);
        self.rings.push(Ring { place, control: usize::MAX, index, cookie, number, counted: false, events });
        if let Some(entry) = self.all.items_mut().get_mut(place) {
            *entry = NONE;
        }
    }

    /// Has the fabric signal for all connections, and adds what is polled for them.
    fn arm(&mut self, program: &[pollfd]) {
        for at in 0..self.rings.items().len() {
            let Some(ring) = self.rings.items().get(at).copied() else { return };
            let Some(one) = program.get(ring.place) else { continue };
            let Some(pair) = Pair::by_index(one.fd, ring.index, ring.cookie, ring.number) else { continue };
            directions(one.events).for_each(|direction| pair.start_waiting(direction));
            if let Some(ring) = self.rings.items_mut().get_mut(at) {
                ring.counted = true;
            }
            let mut settle = |armed| match armed {
                Ok(Armed::Asleep) => {}
                Ok(Armed::Busy) => self.longest = Some(BUSY),
                Ok(Armed::Ready) | Err(_) => self.is_ready = true,
            };
            directions(one.events).for_each(|direction| settle(pair.arm(direction, Waiter::Thread)));
            if directions(one.events).next().is_none() {
                settle(pair.stand_by());
                self.limit(BYSTANDER);
            }
            // Bytes of packets would end the wait of a program that does not want to read.
            let reads = directions(one.events).any(|direction| direction == Direction::In);
            let polled = pair.polled(if reads { Direction::In } else { Direction::Out });
            if !reads {
                // The signal of the peer's end may have been taken meanwhile.
                self.is_ready |= pair.events(one.events) != Ok(0);
            }
            if polled.is_short {
                self.limit(Duration::from_millis(AFTER_HANGUP));
            }
            if let Some(entry) = self.all.items_mut().get_mut(ring.place) {
                *entry = pollfd { fd: polled.stream, events: polled.events, revents: 0 };
            }
            // A signal that nobody may take yet would end the wait at once.
            let is_busy = self.longest == Some(BUSY);
            if !is_busy {
                let control = self.add_control(program, polled.control);
                if let Some(ring) = self.rings.items_mut().get_mut(at) {
                    ring.control = control;
                }
            }
            if self.is_ready {
                return;
            }
        }
    }

    /// Limits the time that the round may take.
    fn limit(&mut self, time: Duration) {
        self.longest = Some(self.longest.map_or(time, |longest| longest.min(time)));
    }

    /// Adds a control connection and returns its place. Takes an entry that the program does not
    /// use if there is one: the kernel refuses more entries than the process may open files.
    fn add_control(&mut self, program: &[pollfd], control: RawFd) -> usize {
        let entry = pollfd { fd: control, events: libc::POLLIN, revents: 0 };
        let rest = program.iter().skip(self.unused);
        let unused = rest.take_while(|one| one.fd >= 0).count() + self.unused;
        self.unused = unused + 1;
        if let Some(place) = self.all.items_mut().get_mut(unused).filter(|_| unused < program.len()) {
            *place = entry;
            return unused;
        }
        self.all.push(entry);
        self.all.items().len() - 1
    }

    /// All descriptors for the kernel.
    pub(crate) fn all(&mut self) -> &mut [pollfd] {
        self.all.items_mut()
    }

    /// The time that the kernel may wait, of the time that the program allows.
    pub(crate) fn time(&self, until: Option<Instant>) -> Option<Duration> {
        if self.is_ready {
            return Some(Duration::ZERO);
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        [left, self.longest].into_iter().flatten().min()
    }

    /// Ends the round and stores the events for the program. Returns the number of its descriptors
    /// that have some.
    pub(crate) fn give_back(&self, program: &mut [pollfd]) -> i32 {
        for (to, from) in program.iter_mut().zip(self.all.items()) {
            to.revents = if to.fd < 0 { 0 } else { from.revents };
        }
        for ring in self.rings.items() {
            let Some(one) = program.get_mut(ring.place) else { continue };
            let Some(pair) = Pair::by_index(one.fd, ring.index, ring.cookie, ring.number) else {
                one.revents = 0;
                continue;
            };
            let control = self.all.items().get(ring.control).map_or(0, |control| control.revents);
            Self::settle(*ring, &pair, one.events, [control, one.revents]);
            one.revents = match TABLE.way(one.fd) {
                Way::Channel(index) if index == ring.index && !ring.counted => ring.events,
                Way::Channel(index) if index == ring.index => pair.events(one.events).unwrap_or(0),
                // It has left the rings, or was closed: the next round asks the kernel.
                _ => 0,
            };
        }
        i32::try_from(program.iter().filter(|one| one.revents != 0).count()).unwrap_or(i32::MAX)
    }

    /// Ends the round after an error.
    pub(crate) fn give_up(&self, program: &[pollfd]) {
        for ring in self.rings.items() {
            let Some(one) = program.get(ring.place) else { continue };
            if let Some(pair) = Pair::by_index(one.fd, ring.index, ring.cookie, ring.number) {
                Self::settle(*ring, &pair, one.events, [0, 0]);
            }
        }
    }

    fn settle(ring: Ring, pair: &Pair, events: i16, [control, stream]: [i16; 2]) {
        if ring.counted {
            directions(events).for_each(|direction| pair.stop_waiting(direction));
            pair.saw(control, stream);
        } else if ring.events == 0 {
            pair.found_nothing();
        }
    }
}
