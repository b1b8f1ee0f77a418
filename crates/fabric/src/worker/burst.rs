//! One burst of one source.

use std::time::Instant;

use super::crew::Incident;
use super::device::DeviceBurst;
use super::next::Next;
use super::plan::Source;
use crate::moderation::Look;
use crate::net::queue::{PairIdx, QueueIdx};
use crate::port::{Failure, Port, RxEnd, TxEnd, TxSlot, vnic};
use crate::shaping::gate::Gate;
use crate::switch::Switch;
use crate::switch::forward::{Forwarder, Verdict, Workspace};
use crate::switch::segment::Segment;
use crate::wake::timers::{Timers, Wake};

/// Result of a burst.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Number of frames that are done.
    pub(super) frames: u64,
    /// The source's next need.
    pub(super) next: Next,
}

/// Forwards a burst of frames from a source, and adds queues that stopped working to `incidents`.
///
/// The function is inlined where it is called: with short frames, even the call would show.
#[inline(always)]
pub(super) fn serve(
    switch: &Switch,
    source: &Source,
    now: Instant,
    work: &mut Workspace,
    timers: &mut Timers,
    incidents: &mut Vec<Incident>,
) -> Outcome {
    let segment = source.segment(switch);
    let port = &*segment.member(source.member).port;
    let mut slot = port.tx(source.pair);
    // A polling worker nearly always finds an empty ring, and the next frame waits for this check.
    if let Some(TxEnd::Vnic(tx)) = &mut slot.end
        && let Ok(0) = tx.look()
    {
        let next = match tx.emptied(now, &port.counters) {
            Look::At(when) => Next::Later(when),
            Look::Kick => Next::Nothing,
        };
        return Outcome { frames: 0, next };
    }
    let TxSlot { end, pieces_done, lro, deadline, waits, .. } = &mut *slot;
    work.flow_cache.begin(now);
    let mut forwarder = Forwarder::new(segment, source.member, source.pair, now, work);
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
            burst.map(|(frames, next)| {
                done = frames;
                next
            })
        }
        Some(TxEnd::Tap(tx)) => DeviceBurst::new(&mut forwarder, &mut gate, lro).run(tx, pieces_done),
        Some(TxEnd::Stream(tx)) => DeviceBurst::new(&mut forwarder, &mut gate, lro).run(tx, pieces_done),
        Some(end @ (TxEnd::Packet(_) | TxEnd::Xdp(_))) => {
            waits.end(now);
            forwarder.limit_waits(waits.left(now));
            let burst = DeviceBurst::new(&mut forwarder, &mut gate, lro);
            let next = match end {
                TxEnd::Packet(tx) => burst.run(tx, pieces_done),
                TxEnd::Xdp(tx) => burst.run(tx, pieces_done),
                _ => Ok(Next::Absent),
            };
            if matches!(next, Ok(Next::Wait(_))) {
                waits.begin(now);
            }
            next
        }
    };
    drop(gate);
    let frames = forwarder.finish(timers);
    drop(forwarder);
    match end {
        Some(TxEnd::Vnic(tx)) => {
            if let Some(when) = tx.complete(done, now, &port.counters)
                && deadline.request(when)
            {
                timers.set(when, Wake::Sender(port.id, source.pair));
            }
        }
        // Receivers have all frames now, or their shapers. A process that dies before this line
        // repeats them instead of losing them.
        Some(TxEnd::Packet(tx)) if lro.is_empty() => tx.release(),
        Some(TxEnd::Xdp(tx)) if lro.is_empty() => tx.release(),
        _ => {}
    }
    if !work.failed.is_empty() {
        report_receivers(segment, work, incidents);
    }
    let next = next.unwrap_or_else(|failure| {
        *slot = TxSlot::default();
        incidents.push(Incident { port: port.id, queue: QueueIdx::transmit(source.pair), failure });
        Next::Absent
    });
    Outcome { frames, next }
}

/// Adds the receive queues that failed during a burst to `incidents`.
#[cold]
fn report_receivers(segment: &Segment, work: &mut Workspace, incidents: &mut Vec<Incident>) {
    incidents.extend(work.failed.drain(..).map(|failed| {
        let port = segment.member(failed.target.member).port.id;
        Incident { port, queue: QueueIdx::receive(failed.target.pair), failure: failed.failure }
    }));
}

/// Forwards a burst from a guest's ring. Also returns the number of frames that are done.
///
/// [`serve`] has looked at the ring already. While the frames of that look are not completed, this
/// look and that of [`shaped_ring_burst`] return the same frames and read nothing from the guest.
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
        Verdict::Turn(until) => Next::At(until),
        Verdict::Done => Next::More,
    };
    Ok((done, next))
}

/// Forwards a burst from a shaped guest's ring. It ends before the first frame that does not
/// conform.
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
        (Verdict::Turn(until), _) => Next::At(until),
        // The burst has become long; the rest conforms already.
        (Verdict::Done, _) if done < conforming => Next::More,
        (Verdict::Done, Some(when)) => Next::At(when),
        (Verdict::Done, None) if waiting == 0 => Next::Nothing,
        (Verdict::Done, None) => Next::More,
    };
    Ok((done, next))
}

/// Enables the guest's kicks. Returns `true` if frames have arrived in the meantime.
pub(super) fn enable_kicks(switch: &Switch, source: &Source) -> bool {
    match &mut source.port(switch).tx(source.pair).end {
        Some(TxEnd::Vnic(tx)) => tx.arm(),
        // The event of a device is edge-triggered and always enabled. Cards that are not watched
        // are looked at until they are watched again.
        Some(TxEnd::Tap(_) | TxEnd::Stream(_) | TxEnd::Packet(_) | TxEnd::Xdp(_)) | None => false,
    }
}

/// Disables the guest's kicks: the source is polled.
pub(super) fn disable_kicks(switch: &Switch, source: Source) {
    if let Some(TxEnd::Vnic(tx)) = &mut source.port(switch).tx(source.pair).end {
        tx.disarm();
    }
}

/// Sends the rest of a frame to a device that has room again.
pub(super) fn flush(port: &Port) {
    if let Some(RxEnd::Stream(rx)) = &mut port.rx(PairIdx::FIRST).end {
        // A failure shows again with the next frame, or on the reading side.
        let _ = rx.flush();
    }
}
