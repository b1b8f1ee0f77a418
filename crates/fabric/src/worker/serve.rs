//! One burst of one source.

use std::time::Instant;

use super::device::DeviceBurst;
use super::{Incident, Lists, Next, Source};
use crate::moderation::Look;
use crate::port::{Failure, Port, RxEnd, TxEnd, TxSlot, vnic};
use crate::shaping::gate::Gate;
use crate::switch::Switch;
use crate::switch::forward::{Forwarder, Verdict};
use crate::wake::timers::Wake;

/// What a burst did.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Frames dealt with.
    pub(super) frames: u64,
    /// What follows.
    pub(super) next: Next,
    /// Queues that stopped working.
    pub(super) incidents: Vec<Incident>,
}

/// Takes a burst of frames from a source to where they belong.
#[inline]
pub(super) fn burst(switch: &Switch, source: &Source, now: Instant, lists: &mut Lists) -> Outcome {
    let segment = &switch.segments[source.segment];
    let port = &*segment.members[source.member as usize].port;
    let mut slot = port.tx(source.pair);
    // What a polling worker finds nearly always, and what the next frame has to wait for.
    if let Some(TxEnd::Vnic(tx)) = &mut slot.end
        && let Ok(0) = tx.look()
    {
        let next = match tx.emptied(now, &port.counters) {
            Look::At(when) => Next::Later(when),
            Look::Kick => Next::Nothing,
        };
        return Outcome { frames: 0, next, incidents: Vec::new() };
    }
    let TxSlot { end, pieces_done, lro, deadline, .. } = &mut *slot;
    let Lists { scratch, flow_cache, touched, failed, timers, .. } = lists;
    flow_cache.begin(now);
    let mut forwarder = Forwarder::new(segment, source.member, now, scratch, flow_cache, touched, failed);
    let mut done = 0;
    let mut gate = Gate::new(port.to_switch(), now);
    let next = match end {
        None => Ok(Next::Absent),
        Some(TxEnd::Vnic(tx)) => {
            let burst = if gate.is_open() {
                ring_burst(tx, &mut forwarder, pieces_done)
            } else {
                shaped_ring_burst(tx, &mut forwarder, &mut gate, pieces_done)
            };
            burst.map(|(dealt, next)| {
                done = dealt;
                next
            })
        }
        Some(TxEnd::Tap(tx)) => DeviceBurst::new(&mut forwarder, &mut gate, lro).run(tx, pieces_done),
        Some(TxEnd::Stream(tx)) => DeviceBurst::new(&mut forwarder, &mut gate, lro).run(tx, pieces_done),
    };
    drop(gate);
    let frames = forwarder.finish(timers);
    if let Some(TxEnd::Vnic(tx)) = end
        && let Some(when) = tx.complete(done, now, &port.counters)
        && deadline.ask(when)
    {
        timers.at(when, Wake::Sender(port.id, source.pair));
    }
    let mut incidents: Vec<_> = failed
        .drain(..)
        .map(|failed| {
            let port = segment.members[failed.target.member as usize].port.id;
            Incident { port, queue: 2 * failed.target.pair as usize, failure: failed.failure }
        })
        .collect();
    let next = next.unwrap_or_else(|failure| {
        *slot = TxSlot::default();
        incidents.push(Incident { port: port.id, queue: 2 * source.pair + 1, failure });
        Next::Absent
    });
    Outcome { frames, next, incidents }
}

/// A burst from a guest's ring; tells how many frames have been dealt with, too.
#[inline]
fn ring_burst(
    tx: &mut vnic::Tx,
    forwarder: &mut Forwarder<'_>,
    pieces_done: &mut usize,
) -> Result<(usize, Next), Failure> {
    let waiting = tx.look()?;
    let (done, verdict) = forwarder.forward_burst(tx.queue(), waiting, pieces_done);
    let next = match verdict {
        Verdict::Wait(until) => Next::Wait(until),
        Verdict::Done => Next::More,
    };
    Ok((done, next))
}

/// The same from a ring that may send at a certain rate: the burst ends before the first frame that does not conform.
#[cold]
fn shaped_ring_burst(
    tx: &mut vnic::Tx,
    forwarder: &mut Forwarder<'_>,
    gate: &mut Gate<'_>,
    pieces_done: &mut usize,
) -> Result<(usize, Next), Failure> {
    let waiting = tx.look()?;
    let queue = tx.queue();
    let len = |index| queue.frame(index).len();
    let (conforming, later) = gate.pass((0..waiting).map(len));
    let (done, verdict) = forwarder.forward_burst(queue, conforming, pieces_done);
    (0..done).for_each(|index| gate.spend(len(index)));
    let next = match (verdict, later) {
        (Verdict::Wait(until), _) => Next::Wait(until),
        (Verdict::Done, Some(when)) => Next::At(when),
        (Verdict::Done, None) if waiting == 0 => Next::Nothing,
        (Verdict::Done, None) => Next::More,
    };
    Ok((done, next))
}

/// Lets the guest kick again; `true` if something has come in the meantime, or might have.
pub(super) fn arm(switch: &Switch, source: &Source) -> bool {
    let port = &switch.segments[source.segment].members[source.member as usize].port;
    match &mut port.tx(source.pair).end {
        Some(TxEnd::Vnic(tx)) => tx.arm(),
        // A device's readiness is told whenever it begins.
        Some(TxEnd::Tap(_) | TxEnd::Stream(_)) | None => false,
    }
}

/// Spares the guest its kicks: the source is looked at anyway.
pub(super) fn disarm(switch: &Switch, source: &Source) {
    let port = &switch.segments[source.segment].members[source.member as usize].port;
    if let Some(TxEnd::Vnic(tx)) = &mut port.tx(source.pair).end {
        tx.disarm();
    }
}

/// A device has room again: what waits in us goes first.
pub(super) fn flush(port: &Port) {
    if let Some(RxEnd::Stream(rx)) = &mut port.rx(0).end {
        // A failure shows again with the next frame, or on the reading side.
        let _ = rx.flush();
    }
}
