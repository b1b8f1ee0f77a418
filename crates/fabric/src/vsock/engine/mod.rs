//! The switch of all vsock devices: owns the parts, and runs rounds over what has something to do.
//!
//! A round follows the path of a byte ([`path`]): packets are taken from the guests, go through the
//! protocol, are queued as flows, are delivered to guests and to programs on the host
//! ([`to_host`]), and are published.
//!
//! * [`path`], [`to_host`], [`from_host`]: forwarding.
//! * [`into_ring`], [`from_ring`]: forwarding to and from ends that are attached to channels.
//!   [`looks`]: what a look at their rings finds. [`patrol`]: looks for which no bell has come.
//!   [`service`], [`attached`], [`leaving`]: how ends are attached, how they end, and how they
//!   return to packets.
//! * [`spill`]: relief of rings that are crowded by packets for receivers that take nothing.
//! * [`connections`]: connections begin and end.
//! * [`devices`], [`rings`]: devices and their rings come and go.
//! * [`host_side`]: listening sockets, clients, and answers of `tautd`.
//! * [`takeover`], [`takeover_pairs`]: another fabric stops, and this one goes on.

mod attached;
mod connections;
mod devices;
mod event;
mod from_host;
mod from_ring;
mod host_side;
mod into_ring;
mod leaving;
mod looks;
mod path;
mod patrol;
mod rings;
mod service;
mod spill;
mod takeover;
mod takeover_pairs;
mod to_host;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use taut_api::fabric::config::SocketWorker;
use taut_api::fabric::counters::SocketWord;
use taut_virtq::counters::SharedWords;

pub use self::event::VsockEvent;
use super::guest::{EventSource, Guests, Starvation};
use super::handover::ConnectionRecord;
use super::host::HostSockets;
use super::proto::{ConnectionTable, FlowId, GuestIdx};
use super::queue_pair::QueuePairs;
use super::sched::{LONG, Schedule};
use crate::sys::epoll::{Epoll, EventFlags};

/// All devices and connections. One lock protects it.
#[derive(Debug)]
pub(crate) struct VsockSwitch {
    /// The protocol's state.
    pub(crate) table: ConnectionTable,
    /// Devices and their rings.
    pub(crate) guests: Guests,
    /// Unix sockets on the host.
    pub(crate) host: HostSockets,
    /// Regions of guests, and control connections.
    pub(crate) pairs: QueuePairs,
    /// Turns, merging, deferred news, polling.
    pub(crate) sched: Schedule,
    /// Records for the next fabric.
    record: ConnectionRecord,
    /// Kicks of guests, and the host's sockets.
    pub(crate) epoll: Epoll,
    /// Reports to the control thread.
    pub(crate) events: Vec<VsockEvent>,
    /// The thread has no CPU of its own.
    pub(crate) shares_cpu: bool,
    /// The pCPUs that the thread is to bind itself to; `None` after it has.
    pub(crate) bind_to: Option<Vec<u32>>,
    /// Time of the present round or event.
    now: Instant,
    /// This fabric serves, and no other does.
    begun: bool,
    /// The thread is to end.
    pub(crate) quit: bool,
}

impl VsockSwitch {
    /// A switch without devices.
    pub(crate) fn new(words: &Arc<SharedWords>) -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            table: ConnectionTable::new(),
            guests: Guests::new(words),
            host: HostSockets::default(),
            pairs: QueuePairs::default(),
            sched: Schedule::new(now),
            record: ConnectionRecord::new(words),
            epoll: Epoll::new()?,
            events: Vec::new(),
            shares_cpu: SocketWorker::default().cpu.is_none(),
            bind_to: None,
            now,
            begun: false,
            quit: false,
        })
    }

    /// Handles an event of a guest's ring, or of the host's sockets.
    pub(crate) fn on_event(&mut self, source: EventSource, flags: EventFlags, now: Instant) {
        self.now = now;
        match source {
            EventSource::Waker | EventSource::Timer => {}
            EventSource::TransmitKick(guest) => self.on_transmit_kick(guest, now),
            EventSource::ReceiveKick(guest) => self.on_receive_kick(guest),
            EventSource::Listener(guest) => self.accept_clients(guest, now),
            EventSource::Client(client) => self.read_client(client, flags, now),
            EventSource::Stream(connection) => self.on_stream_event(connection, flags),
        }
    }

    /// Runs one round over everything that has something to do. Returns `true` if there was
    /// anything.
    pub(crate) fn round(&mut self, now: Instant) -> bool {
        self.now = now;
        let mut worked = self.run_due(now);
        worked |= self.take_from_guests(now);
        worked |= self.move_into_rings(now);
        worked |= self.handle_news();
        worked |= self.deliver_to_guests(now);
        self.report_starving_guests(now);
        worked |= self.deliver_to_host();
        worked |= self.handle_news();
        self.publish(now);
        worked
    }

    /// Returns how long the thread may sleep unless an event occurs, or `None` if there is work
    /// now.
    pub(crate) fn pause(&self, now: Instant) -> Option<Duration> {
        (self.sched.is_idle() && !self.pairs.has_news()).then(|| self.until_due(now))
    }

    /// Returns how long the thread, which has found nothing to do, is to sleep although rings are
    /// polled; `None` if it goes on polling.
    pub(crate) fn sleep_between_looks(&mut self, now: Instant) -> Option<Duration> {
        let is_idle = self.sched.turns.is_idle() && !self.pairs.has_news();
        let sleep = self.sched.stream_pace.next(now).filter(|_| is_idle)?;
        Some(sleep.min(self.until_due(now)))
    }

    /// Returns the time until something is due.
    fn until_due(&self, now: Instant) -> Duration {
        let Self { host, pairs, .. } = self;
        let due = [host.listeners.next_look(), host.clients.next_deadline(), pairs.next_drain()];
        let due = due.into_iter().flatten().map(|at| at.saturating_duration_since(now));
        due.fold(self.sched.until_due(now), Duration::min)
    }

    /// Takes from each guest that is polled, and ends the polling of those that are silent.
    fn take_from_guests(&mut self, now: Instant) -> bool {
        let mut worked = false;
        let mut place = 0;
        while let Some(guest) = self.sched.polling.at(place) {
            let took = self.take_from(guest, now);
            worked |= took;
            if took || !self.try_sleep(guest, now) {
                place += 1;
            } else {
                self.sched.polling.sleep(place);
            }
        }
        worked
    }

    /// Ends the polling of a silent guest, which then kicks, unless it has just sent packets.
    /// Returns `true` if the guest need not be polled.
    fn try_sleep(&mut self, guest: GuestIdx, now: Instant) -> bool {
        if !self.sched.polling.is_silent(guest, now) {
            return false;
        }
        let ring = &mut self.guests.senders[guest].ring;
        ring.as_mut().is_none_or(|ring| !ring.queue.arm_kicks())
    }

    /// Delivers to each guest for which something waits.
    fn deliver_to_guests(&mut self, now: Instant) -> bool {
        let mut worked = false;
        for _ in 0..self.sched.turns.busy() {
            let Some(guest) = self.sched.turns.next_busy() else { break };
            worked |= self.deliver_to(guest, now);
        }
        worked
    }

    /// Carries out everything that is due. Returns `true` if there was anything.
    fn run_due(&mut self, now: Instant) -> bool {
        let Self { table, guests, sched, .. } = self;
        let mut any = false;
        while let Some(flow) = sched.deferred.due_update(now) {
            let FlowId { connection: id, from } = flow;
            if let Some(connection) = table.get_mut(id)
                && connection.flows[from].advertised.update_deferred
            {
                connection.flows[from].pending.credit_update = true;
                sched.turns.queue(flow, connection);
                any = true;
            }
        }
        while let Some(guest) = sched.deferred.due_interrupt(now) {
            if guests.senders.get_mut(guest).is_some_and(|sender| sender.owes_interrupt) {
                guests.interrupt_sender(guest);
                any = true;
            }
        }
        any |= sched.turns.release_held(table, now);
        while let Some(guest) = self.sched.deferred.due_relief(now) {
            self.relieve(guest, now);
            any = true;
        }
        self.look_at_rings(now);
        self.patrol();
        self.give_up_drains();
        self.look_at_paused_sockets(now);
        self.disconnect_late_clients(now);
        if self.sched.half_open.sweep_is_due(now) {
            self.reset_unanswered_requests(now);
        }
        any
    }

    /// Looks at the guests that had no buffers a while ago. Guests that have kicked since then got
    /// what waited for them earlier in this round.
    fn report_starving_guests(&mut self, now: Instant) {
        while let Some(guest) = self.sched.starving.due(now) {
            self.report_starving(guest, now);
        }
    }

    /// Counts and reports a guest that takes nothing, though something of its peers waits for it.
    fn report_starving(&mut self, guest: GuestIdx, now: Instant) {
        let Self { table, guests, sched, .. } = self;
        let Some(receiver) = guests.receivers.get_mut(guest) else { return };
        receiver.check_is_due = false;
        let Starvation::Since(since) = receiver.starvation else { return };
        // A guest whose ring is stopped is paused or gone.
        let has_no_buffer = receiver.full && receiver.ring.is_some();
        if !has_no_buffer || !sched.turns.has_something_for(guest, table) {
            // Its time begins when a packet finds no buffer again. So this guest costs one look a
            // second at most.
            receiver.starvation = Starvation::No;
            return;
        }
        if now.duration_since(since) < LONG {
            return sched.starving.watch(guest, receiver, since);
        }
        receiver.starvation = Starvation::Reported;
        let Some(device) = &self.guests.devices[guest] else { return };
        device.counters.add(SocketWord::Stalls, 1);
        self.events.push(VsockEvent::TakesNothing { port: device.config.id });
    }

    /// Resets the connections that nobody has accepted in time.
    fn reset_unanswered_requests(&mut self, now: Instant) {
        while let Some(id) = self.sched.half_open.take_expired(now) {
            self.end(id, None);
        }
    }
}
