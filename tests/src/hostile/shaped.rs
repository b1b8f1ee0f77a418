//! A slowly shaped port that gives the fabric reasons to look at it all the time.

use std::io::{self, ErrorKind};
use std::time::Duration;

use taut_virtq::header::NetHeader;

use super::chains::Flood;
use super::frames::segment;
use super::front_end::{ENTRIES, FrontEnd, raise};
use super::rings::WRITE;
use super::{Act, Effect, Port, Tools, claim};

/// Number of kicks.
const KICKS: usize = 20_000;
/// Time between two kicks, in which the fabric notices the first.
const PAUSE: Duration = Duration::from_micros(20);
/// Rings full of frames.
const RINGS: usize = 400;

/// Returns the acts of this group.
pub(super) fn acts() -> Vec<Act> {
    vec![
        Act::new("a shaped port that is kicked without end", Effect::Served, kicks).on(Port::Shaped).slow(),
        Act::new("frames without end to a shaped port", Effect::Served, frames).on(Port::Shaped),
    ]
}

/// Kicks while frames wait for their time.
fn kicks(front: &mut FrontEnd, tools: &Tools) -> io::Result<()> {
    front.set_up()?;
    let frame = segment(Port::Shaped.mac(), tools.sink, 1400);
    let bytes = [&NetHeader::default().to_bytes()[..], &frame].concat();
    let at = front.ram.allocate(bytes.len() as u64, 64).ok_or(ErrorKind::OutOfMemory)?;
    front.write(at, &bytes);
    let desc = front.queues[1].layout.desc;
    (0..ENTRIES).for_each(|index| front.describe(desc, index, (at, bytes.len() as u32), 0, 0));
    front.offer(1, &(0..ENTRIES).collect::<Vec<_>>());
    tools.flat(KICKS, || {
        kick(front, 1);
        Ok(())
    })?;
    claim(front.used(1) < ENTRIES, "no frame had to wait")
}

/// Kicks while another port sends more than may pass.
fn frames(front: &mut FrontEnd, tools: &Tools) -> io::Result<()> {
    front.set_up()?;
    let at = front.ram.allocate(2048, 64).ok_or(ErrorKind::OutOfMemory)?;
    let desc = front.queues[0].layout.desc;
    (0..ENTRIES).for_each(|index| front.describe(desc, index, (at, 2048), WRITE, 0));
    front.offer(0, &(0..ENTRIES).collect::<Vec<_>>());
    let mut other = tools.connect(Port::Plain)?;
    other.set_up()?;
    let mut flood = Flood::new(&mut other, Port::Plain, Port::Shaped)?;
    tools.flat(RINGS, || {
        kick(front, 0);
        flood.send(&other, ENTRIES.into())
    })?;
    claim(front.used(0) < ENTRIES, "no frame had to wait")
}

/// Kicks a queue once.
fn kick(front: &FrontEnd, queue: usize) {
    raise(&front.queues[queue].kick);
    std::thread::sleep(PAUSE);
}
