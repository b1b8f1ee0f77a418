//! A worker's load: its measurement, the source that a busy worker gives away, and pauses of
//! polling.

use std::sync::Arc;
use std::time::{Duration, Instant};

use taut_api::fabric::config::WorkerMode;
use taut_api::fabric::counters::WorkerWord;

use super::balance::{self, PAUSE};
use super::thread::Worker;
use crate::sys::thread::cpu_time;
use crate::wake::mailbox::{Message, WorkerIdx};
use crate::wake::timers::SourceIdx;

impl Worker {
    /// Publishes the load of the window that ends now, and gives a source away if that helps.
    #[cold]
    pub(super) fn measure_load(&mut self, now: Instant) {
        let window = now.duration_since(self.measured).as_nanos() as u64;
        let share = |busy: u64| (busy.saturating_mul(1000) / window).min(1000) as u32;
        let own = share(self.busy);
        self.mailbox().set_busy(now, own);
        let awake = now.duration_since(self.measured).saturating_sub(std::mem::take(&mut self.slept));
        (self.measured, self.busy) = (now, 0);
        self.watch_contention(awake, now);
        let workers: Vec<_> = WorkerIdx::all(self.plan.workers)
            .map(|worker| self.crew.mailboxes.get(worker).busy(now))
            .collect();
        let loads = (0..).map(SourceIdx).zip(&mut self.sources.states).filter_map(|(source, state)| {
            let busy = std::mem::take(&mut state.busy);
            (busy > 0).then(|| (source, share(busy)))
        });
        let loads: Vec<_> = loads.collect();
        if let Some((source, to)) = balance::choose(self.number, &workers, &loads) {
            self.give(source, to, now);
        }
    }

    /// Begins or ends a pause of polling, after a window in which the worker was `awake` for so
    /// long.
    fn watch_contention(&mut self, awake: Duration, now: Instant) {
        let before = std::mem::replace(&mut self.ran, cpu_time());
        let waited = awake.saturating_sub(self.ran.saturating_sub(before));
        let is_adaptive = matches!(self.plan.mode, WorkerMode::Adaptive { .. });
        if is_adaptive && self.contention.measured(awake, waited, now) {
            let plan = Arc::clone(&self.plan);
            for (source, state) in plan.sources.iter().zip(&mut self.sources.states) {
                state.set_patience(now, self.contention.limit(plan.patience(plan.port(*source))));
            }
        }
    }

    /// Gives a source to another worker, unless the last move was too recent.
    fn give(&mut self, index: SourceIdx, to: WorkerIdx, now: Instant) {
        let plan = Arc::clone(&self.plan);
        let source = plan.source(index);
        let port = plan.port(source);
        let Ok(mut moving) = self.crew.moving.try_lock() else { return };
        let soon = moving.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE);
        if soon || to.index() >= moving.workers || port.owner(source.pair) != self.number {
            return;
        }
        if port.give(source.pair, to, &self.crew.mailboxes).is_err() {
            // The kernel has no memory for another watch: the source and its events stay here.
            return;
        }
        moving.last = Some(now);
        drop(moving);
        self.counters.add(WorkerWord::Given, 1);
        if self.sources.state(index).waits {
            self.toggle_waits(index);
        }
        self.sources.give_away(index);
        self.crew.mailboxes.get(to).post(Message::Serve(port.id, source.pair));
    }
}
