//! Reasons to wake a worker: events, messages and timers.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use taut_api::fabric::PortId;
use taut_api::fabric::counters::PortWord;

use super::burst;
use super::thread::Worker;
use crate::net::queue::{Direction, PairIdx};
use crate::sys::epoll::EventFlags;
use crate::wake::mailbox::{Message, WorkerIdx};
use crate::wake::timers::{SourceIdx, Wake};
use crate::wake::token;

impl Worker {
    /// Waits for events for at most `timeout` (`None`: without limit), and handles them. A sleeping
    /// worker is marked as awake before it handles the first.
    pub(super) fn handle_events(&mut self, timeout: Option<Duration>) {
        let mut ready = std::mem::take(&mut self.ready);
        if let Err(error) = self.mailbox().events().wait(&mut ready, timeout) {
            // No guest can cause this, and a worker without events is useless.
            panic!("waiting for events failed: {error}");
        }
        self.mailbox().wake_up();
        for &(token, flags) in &ready {
            if token == token::WAKE {
                self.mailbox().clear_wake_ups();
            } else {
                self.handle_queue_event(token, flags);
            }
        }
        self.ready = ready;
    }

    /// Handles a guest's kick or a device's readiness.
    fn handle_queue_event(&mut self, token: u64, flags: EventFlags) {
        let (id, queue) = token::queue(token);
        let Some(port) = self.plan.find(id) else { return };
        if port.is_guest() {
            port.counters.add_shared(PortWord::Kicks, 1);
        }
        let pair = queue.pair();
        if queue.direction() == Direction::Receive {
            if port.has(pair) {
                let now = Instant::now();
                port.rx_due(pair, now, now, &mut self.timers);
            }
            return self.announce_room();
        }
        let room = flags.contains(EventFlags::OUT);
        if room {
            burst::flush(port);
        }
        self.serve(id, pair);
        if room {
            self.announce_room();
        }
    }

    /// Activates a source that may have frames, or passes that on to its owner.
    fn serve(&mut self, id: PortId, pair: PairIdx) {
        if let Some(source) = self.own_or_pass_on(id, pair, Message::Serve(id, pair)) {
            self.activate(source);
        }
    }

    /// Activates a source whose turn at an uplink has begun, or passes that on to its owner.
    fn begin_turn(&mut self, id: PortId, pair: PairIdx) {
        if let Some(source) = self.own_or_pass_on(id, pair, Message::Turn(id, pair)) {
            self.activate(source);
            self.sources.begin_turn(source);
        }
    }

    /// Returns the source of a pair if this worker owns it; sends the message to another owner.
    fn own_or_pass_on(&self, id: PortId, pair: PairIdx, message: Message) -> Option<SourceIdx> {
        let (first, port) = (self.plan.first(id)?, self.plan.find_pair(id, pair)?);
        let owner = port.owner(pair);
        if owner == self.number {
            return Some(first.of_pair(pair));
        }
        // The source moved while the event was under way, or the turn began at this worker.
        self.crew.mailboxes.get(owner).post(message);
        None
    }

    /// Resumes all sources that wait for room, here and at other workers.
    fn announce_room(&mut self) {
        for worker in WorkerIdx::all(self.plan.workers).filter(|&worker| worker != self.number) {
            let mailbox = self.crew.mailboxes.get(worker);
            if mailbox.waiting.load(SeqCst) > 0 {
                mailbox.post(Message::RoomAvailable);
            }
        }
        self.unpark();
    }

    /// Reads and handles all messages.
    pub(super) fn read_messages(&mut self, now: Instant) {
        let mut messages = std::mem::take(&mut self.messages);
        self.mailbox().read(&mut messages);
        for &message in &messages {
            match message {
                Message::NewPlan => self.take_up_plan(),
                Message::Recheck(id) => self.recheck(id, now),
                Message::Serve(id, pair) => self.serve(id, pair),
                Message::Turn(id, pair) => self.begin_turn(id, pair),
                Message::RoomAvailable => self.unpark(),
                Message::AdoptTimers(id, pair) => {
                    if let Some(port) = self.plan.find_pair(id, pair)
                        && port.adopt(pair, now, &mut self.timers)
                    {
                        self.announce_room();
                    }
                }
                Message::Quit => self.quit = true,
            }
        }
        self.messages = messages;
    }

    /// Looks at a port whose attachment has changed.
    fn recheck(&mut self, id: PortId, now: Instant) {
        let plan = Arc::clone(&self.plan);
        let mut has_room = false;
        if let (Some(port), Some(first)) = (plan.find(id), plan.first(id)) {
            let own = self.number;
            for pair in PairIdx::all(port.pairs()).filter(|&pair| port.owner(pair) == own) {
                has_room |= port.rx_due(pair, now, now, &mut self.timers);
                port.tx_due(pair, now, now, &mut self.timers);
                self.activate(first.of_pair(pair));
            }
        }
        // Frames that wait for this port's room may pass now.
        if has_room {
            // An end tells it once, and other workers have not seen it.
            self.announce_room();
        } else {
            self.unpark();
        }
    }

    /// Activates all sources that wait for room.
    fn unpark(&mut self) {
        for at in 0..self.sources.waiting.len() {
            self.activate(self.sources.waiting[at]);
        }
    }

    /// Handles an expired timer.
    pub(super) fn timer_expired(&mut self, when: Instant, wake: Wake, now: Instant) {
        match wake {
            Wake::Source(source) => {
                let state = self.sources.state(source);
                state.timer_expired(when);
                let Some(due) = state.wake else { return };
                if due <= now {
                    self.activate(source);
                } else if state.sleep_until(due) {
                    self.timers.set(due, wake);
                }
            }
            Wake::Receiver(id, pair) => {
                if let Some(port) = self.plan.find_pair(id, pair)
                    && port.rx_due(pair, when, now, &mut self.timers)
                {
                    self.announce_room();
                }
            }
            Wake::Sender(id, pair) => {
                if let Some(port) = self.plan.find_pair(id, pair) {
                    port.tx_due(pair, when, now, &mut self.timers);
                }
            }
            Wake::Turn(id, pair) => self.begin_turn(id, pair),
        }
    }

    /// Ends the worker: hands its timers over to the first worker.
    pub(super) fn leave(mut self) {
        self.mailbox().waiting.store(0, SeqCst);
        self.mailbox().set_busy(Instant::now(), 0);
        if self.number == WorkerIdx::FIRST {
            return;
        }
        for (_, wake) in self.timers.drain() {
            match wake {
                Wake::Receiver(port, pair) | Wake::Sender(port, pair) => {
                    self.crew.mailboxes.get(WorkerIdx::FIRST).post(Message::AdoptTimers(port, pair));
                }
                // Whoever has to wait for an uplink asks again after a while.
                Wake::Source(_) | Wake::Turn(..) => {}
            }
        }
    }
}
