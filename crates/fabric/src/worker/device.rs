//! A burst from a TAP device, an emulated card or a card of the host.
//!
//! Frames are read one by one, and TCP segments are merged for guests that accept merged frames.

use taut_virtq::header::NetHeader;

use super::next::Next;
use crate::lro::{Lro, Offer};
use crate::net::ethernet::HEADER;
use crate::port::{Body, Failure, packet, stream, tap, xdp};
use crate::shaping::gate::Gate;
use crate::switch::forward::{Forwarder, Verdict};

/// Largest number of frames in a burst, the same as for rings.
///
/// Large enough to make the cost per burst negligible, and small enough to keep other sources from
/// waiting long.
const BURST: usize = taut_virtq::device::BURST;

/// A device from which frames are read.
pub(super) trait Device {
    /// The next frame: the same one until [`Self::taken`] is called.
    fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure>;

    /// Releases the current frame.
    fn taken(&mut self);
}

impl Device for tap::Tx {
    fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure> {
        self.first()
    }

    fn taken(&mut self) {
        self.taken();
    }
}

impl Device for packet::Tx {
    fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure> {
        self.first()
    }

    fn taken(&mut self) {
        self.taken();
    }
}

impl Device for xdp::Tx {
    fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure> {
        self.first()
    }

    fn taken(&mut self) {
        self.taken();
    }
}

impl Device for stream::Tx {
    fn first(&mut self) -> Result<Option<(NetHeader, &[u8])>, Failure> {
        self.first()
    }

    fn taken(&mut self) {
        self.taken();
    }
}

/// The state of one burst.
pub(super) struct DeviceBurst<'b, 's, 'g> {
    forwarder: &'b mut Forwarder<'s>,
    gate: &'b mut Gate<'g>,
    lro: &'b mut Lro,
    /// Addresses and type of the last frame, and whether its receiver accepts such frames merged.
    last: Option<([u8; HEADER], bool)>,
}

impl<'b, 's, 'g> DeviceBurst<'b, 's, 'g> {
    /// Prepares a burst.
    pub(super) fn new(forwarder: &'b mut Forwarder<'s>, gate: &'b mut Gate<'g>, lro: &'b mut Lro) -> Self {
        Self { forwarder, gate, lro, last: None }
    }

    /// Forwards frames from the device. It is not inlined, which keeps bursts of rings short.
    #[inline(never)]
    pub(super) fn run(mut self, device: &mut impl Device, pieces_done: &mut usize) -> Result<Next, Failure> {
        // First send what an earlier burst could not.
        if let Err(wait) = self.send_ready() {
            return Ok(wait);
        }
        let mut next = Ok(Next::More);
        for _ in 0..BURST {
            next = self.one(device, pieces_done);
            if !matches!(next, Ok(Next::More)) || self.forwarder.is_long() {
                break;
            }
        }
        self.lro.close();
        match self.send_ready() {
            Ok(()) => next,
            Err(wait) => next.map(|_| wait),
        }
    }

    /// Merges or forwards the device's next frame.
    fn one(&mut self, device: &mut impl Device, pieces_done: &mut usize) -> Result<Next, Failure> {
        loop {
            let Some((header, bytes)) = device.first()? else { return Ok(Next::Nothing) };
            let merges = self.merges(bytes);
            match self.lro.offer(&header, bytes, merges) {
                Offer::Taken => {
                    device.taken();
                    return Ok(Next::More);
                }
                Offer::Pass => {
                    return Ok(match send(self.forwarder, self.gate, &header, bytes, pieces_done) {
                        Ok(()) => {
                            device.taken();
                            Next::More
                        }
                        Err(wait) => wait,
                    });
                }
                Offer::Later => {
                    if let Err(wait) = self.send_ready() {
                        return Ok(wait);
                    }
                }
            }
        }
    }

    /// Tells whether the frame's receiver accepts it merged. Consecutive frames mostly have the
    /// same receiver.
    fn merges(&mut self, frame: &[u8]) -> bool {
        let Some(&head) = frame.first_chunk::<HEADER>() else { return false };
        match self.last {
            Some((last, merges)) if last == head => merges,
            _ => {
                let merges = self.forwarder.merges(frame);
                self.last = Some((head, merges));
                merges
            }
        }
    }

    /// Forwards merged frames. `Err` says what the rest has to wait for.
    fn send_ready(&mut self) -> Result<(), Next> {
        while let Some(merged) = self.lro.ready() {
            send(self.forwarder, self.gate, &merged.header, merged.bytes, merged.pieces_done)?;
            if merged.segments > 1 {
                self.forwarder.count_merged(&merged);
            }
            self.lro.sent();
        }
        Ok(())
    }
}

/// Forwards one frame. `Err` says what it has to wait for.
fn send(
    forwarder: &mut Forwarder<'_>,
    gate: &mut Gate<'_>,
    header: &NetHeader,
    bytes: &[u8],
    pieces_done: &mut usize,
) -> Result<(), Next> {
    if let Some(when) = gate.closed_until(bytes.len()) {
        return Err(Next::At(when));
    }
    match forwarder.forward(bytes, bytes.len(), header, Body::Host(bytes), pieces_done) {
        Verdict::Wait(until) => Err(Next::Wait(until)),
        Verdict::Turn(until) => Err(Next::At(until)),
        Verdict::Done => {
            gate.spend(bytes.len());
            Ok(())
        }
    }
}
