//! Memory without seals, of a port that admits it, which is shortened while the fabric uses it.

use std::io::{self, ErrorKind};

use rustix::fs::{FallocateFlags, fallocate, ftruncate};

use super::chains::Flood;
use super::front_end::{ENTRIES, FrontEnd, raise};
use super::rings::WRITE;
use super::{Act, Effect, Port, Tools, claim};

/// The end of a session whose memory has gone.
const LOST: Effect = Effect::Quarantined("pages of the guest's memory have vanished");
/// Length of a page.
const PAGE: u64 = 4096;

/// Returns the acts of this group.
///
/// None of them may read or write memory that it has cut off: this process would get SIGBUS.
pub(super) fn acts() -> Vec<Act> {
    let act = |name: &str, effect: Effect, run: fn(&mut FrontEnd, &Tools) -> io::Result<()>| {
        Act::new(name, effect, run).on(Port::Trusted)
    };
    vec![
        act("memory that is cut off below running rings", LOST, |front, _| {
            front.set_up()?;
            cut(front)?;
            kick(front);
            Ok(())
        }),
        act("memory that is cut off before rings are set up in it", LOST, |front, _| {
            front.negotiate()?;
            front.share_memory()?;
            cut(front)?;
            // The fabric may end the session before the last request.
            let _ = front.start_rings(ENTRIES);
            kick(front);
            Ok(())
        }),
        act("a frame in memory that is cut off", LOST, |front, _| {
            front.set_up()?;
            let at = front.ram.allocate(PAGE, PAGE).ok_or(ErrorKind::OutOfMemory)?;
            front.describe(front.queues[1].layout.desc, 0, (at, 72), 0, 0);
            cut_from(front, at)?;
            front.offer(1, &[0]);
            Ok(())
        }),
        act("buffers in memory that is cut off, for another's frames", LOST, |front, tools| {
            front.set_up()?;
            let at = front.ram.allocate(PAGE, PAGE).ok_or(ErrorKind::OutOfMemory)?;
            let desc = front.queues[0].layout.desc;
            (0..ENTRIES).for_each(|index| front.describe(desc, index, (at, 2048), WRITE, 0));
            cut_from(front, at)?;
            front.offer(0, &(0..ENTRIES).collect::<Vec<_>>());
            let mut other = tools.connect(Port::Plain)?;
            other.set_up()?;
            let mut flood = Flood::new(&mut other, Port::Plain, Port::Trusted)?;
            flood.send(&other, ENTRIES.into())?;
            claim(front.is_ended(), "the session goes on")?;
            flood.send(&other, ENTRIES.into())?;
            claim(other.is_served(), "the session of the sender was ended")
        }),
        act("memory that is cut off and grown again all the time", LOST, |front, _| {
            front.set_up()?;
            for _ in 0..200 {
                cut(front)?;
                kick(front);
                ftruncate(front.ram.file(), front.ram.spec().size)?;
                kick(front);
            }
            cut(front)?;
            kick(front);
            Ok(())
        }),
        act("unsealed memory that is punched out all the time", Effect::Any, |front, _| {
            front.set_up()?;
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            for _ in 0..200 {
                fallocate(front.ram.file(), hole, 0, front.ram.spec().size)?;
                kick(front);
            }
            Ok(())
        }),
        act("unsealed memory that grows below running rings", Effect::Served, |front, _| {
            front.set_up()?;
            ftruncate(front.ram.file(), 2 * front.ram.spec().size)?;
            let desc = front.queues[1].layout.desc;
            front.describe(desc, 0, (desc, 72), 0, 0);
            front.offer(1, &[0]);
            front.await_used(1, 1)
        }),
    ]
}

/// Cuts off all memory.
fn cut(front: &FrontEnd) -> io::Result<()> {
    Ok(ftruncate(front.ram.file(), 0)?)
}

/// Cuts off the memory from this guest address on.
fn cut_from(front: &FrontEnd, address: u64) -> io::Result<()> {
    Ok(ftruncate(front.ram.file(), address - front.ram.spec().guest_addr)?)
}

fn kick(front: &FrontEnd) {
    front.queues.iter().for_each(|queue| raise(&queue.kick));
}
