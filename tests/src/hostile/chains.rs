//! Chains of as many parts as there may be, and of more.
//!
//! Every frame and buffer of a ring may have that many. The fabric's list of parts of a ring must
//! not grow from chain to chain.

use std::io::{self, ErrorKind};

use taut_virtq::device::MAX_PARTS;
use taut_virtq::header::NetHeader;

use super::frames::{LONGEST, segment, tso};
use super::front_end::{ENTRIES, FrontEnd};
use super::rings::{INDIRECT, NEXT, RUNNING, WRITE};
use super::{Act, Effect, Port, Tools};

/// Parts of the longest chain.
const PARTS: u16 = MAX_PARTS as u16;
/// Chains of each act, at least.
const CHAINS: usize = 1000;
/// Length of a buffer for a frame, with its header.
const BUFFER: u32 = 2048;

/// Returns the acts of this group.
pub(super) fn acts() -> Vec<Act> {
    vec![
        Act::new("frames that have as many parts as their ring", Effect::Served, |front, tools| {
            send(front, tools, PARTS, Place::Ring)
        }),
        Act::new("rings full of frames in tables of 1024 parts", Effect::Served, |front, tools| {
            send(front, tools, ENTRIES, Place::Table)
        }),
        Act::new("buffers that have as many parts as their ring", Effect::Served, |front, tools| {
            receive(front, tools, PARTS, Place::Ring)
        }),
        Act::new("rings full of buffers in tables of 1024 parts", Effect::Served, |front, tools| {
            receive(front, tools, ENTRIES, Place::Table)
        }),
        Act::new("a frame of more parts than there may be", Effect::Broken(RUNNING), |front, _| {
            start(front, 2 * PARTS)?;
            let desc = front.queues[1].layout.desc;
            describe(front, desc, PARTS + 1, (desc, u32::from(PARTS) + 1), 0);
            front.offer(1, &[0]);
            Ok(())
        }),
        Act::new("a table of more parts than there may be", Effect::Broken(RUNNING), |front, _| {
            start(front, ENTRIES)?;
            let desc = front.queues[1].layout.desc;
            front.describe(desc, 0, (desc, 16 * (u32::from(PARTS) + 1)), INDIRECT, 0);
            front.offer(1, &[0]);
            Ok(())
        }),
    ]
}

/// Place of a chain's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The ring, which has room for one chain.
    Ring,
    /// A table outside. All descriptors of the ring are that table.
    Table,
}

/// Fills the transmit ring again and again with the longest frame in as many parts as there may be.
fn send(front: &mut FrontEnd, tools: &Tools, entries: u16, place: Place) -> io::Result<()> {
    start(front, entries)?;
    let frame = segment(Port::Plain.mac(), tools.sink, LONGEST);
    let bytes = [&tso(1448).to_bytes()[..], &frame].concat();
    let at = front.ram.allocate(bytes.len() as u64, 64).ok_or(ErrorKind::OutOfMemory)?;
    front.write(at, &bytes);
    let heads = chains(front, 1, (at, bytes.len() as u32), 0, place)?;
    let mut sent = 0_u16;
    tools.flat(rounds(&heads), || {
        front.offer_from(1, sent, &heads);
        sent = sent.wrapping_add(heads.len() as u16);
        front.await_used(1, sent)
    })
}

/// Fills the receive ring again and again with buffers in as many parts as there may be, while
/// another port sends.
fn receive(front: &mut FrontEnd, tools: &Tools, entries: u16, place: Place) -> io::Result<()> {
    start(front, entries)?;
    let at = front.ram.allocate(BUFFER.into(), 64).ok_or(ErrorKind::OutOfMemory)?;
    let heads = chains(front, 0, (at, BUFFER), WRITE, place)?;
    let mut other = tools.connect(Port::Trusted)?;
    other.set_up()?;
    let mut flood = Flood::new(&mut other, Port::Trusted, Port::Plain)?;
    let mut taken = 0_u16;
    tools.flat(rounds(&heads), || {
        front.offer_from(0, taken, &heads);
        taken = taken.wrapping_add(heads.len() as u16);
        flood.send(&other, heads.len())?;
        front.await_used(0, taken)
    })
}

/// Frames of 1500 bytes that one port sends to another.
#[derive(Debug)]
pub(super) struct Flood {
    /// Descriptors, each of the whole frame.
    heads: Vec<u16>,
    /// Number of frames that were sent, modulo 2^16.
    sent: u16,
}

impl Flood {
    /// Places the frame in the sender's memory. Its rings run.
    ///
    /// # Errors
    /// Its memory is used up.
    pub(super) fn new(sender: &mut FrontEnd, from: Port, to: Port) -> io::Result<Self> {
        let frame = segment(from.mac(), to.mac(), 1500);
        let bytes = [&NetHeader::default().to_bytes()[..], &frame].concat();
        let at = sender.ram.allocate(bytes.len() as u64, 64).ok_or(ErrorKind::OutOfMemory)?;
        sender.write(at, &bytes);
        let desc = sender.queues[1].layout.desc;
        (0..ENTRIES).for_each(|index| sender.describe(desc, index, (at, bytes.len() as u32), 0, 0));
        Ok(Self { heads: (0..ENTRIES).collect(), sent: 0 })
    }

    /// Sends it so many times, at most as often as fits the ring, and waits until the fabric has
    /// taken all.
    ///
    /// # Errors
    /// The fabric has not taken all for a long time.
    pub(super) fn send(&mut self, sender: &FrontEnd, times: usize) -> io::Result<()> {
        sender.offer_from(1, self.sent, &self.heads[..times]);
        self.sent = self.sent.wrapping_add(times as u16);
        sender.await_used(1, self.sent)
    }
}

/// Number of rounds that offer at least [`CHAINS`] chains.
fn rounds(heads: &[u16]) -> usize {
    CHAINS.div_ceil(heads.len())
}

/// Negotiates, shares the memory and starts rings of this size.
fn start(front: &mut FrontEnd, entries: u16) -> io::Result<()> {
    front.negotiate()?;
    front.share_memory()?;
    front.start_rings(entries)
}

/// Describes these bytes in as many parts as there may be. Returns the heads of the ring's chains.
fn chains(
    front: &mut FrontEnd,
    queue: usize,
    bytes: (u64, u32),
    flags: u16,
    place: Place,
) -> io::Result<Vec<u16>> {
    let desc = front.queues[queue].layout.desc;
    if place == Place::Ring {
        describe(front, desc, PARTS, bytes, flags);
        return Ok(vec![0]);
    }
    let len = 16 * u32::from(PARTS);
    let table = front.ram.allocate(len.into(), 16).ok_or(ErrorKind::OutOfMemory)?;
    describe(front, table, PARTS, bytes, flags);
    (0..ENTRIES).for_each(|index| front.describe(desc, index, (table, len), INDIRECT, 0));
    Ok((0..ENTRIES).collect())
}

/// Writes a chain of `count` descriptors, all of one length but the last, for these bytes.
fn describe(front: &FrontEnd, table: u64, count: u16, (at, len): (u64, u32), flags: u16) {
    let part = len / u32::from(count);
    for index in 0..count {
        let done = part * u32::from(index);
        let is_last = index + 1 == count;
        let len = if is_last { len - done } else { part };
        let flags = if is_last { flags } else { flags | NEXT };
        front.describe(table, index, (at + u64::from(done), len), flags, index + 1);
    }
}
