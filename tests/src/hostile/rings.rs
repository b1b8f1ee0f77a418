//! Rings that are broken, and rings that are started and stopped all the time.

use std::io;
use std::os::fd::AsFd as _;

use vhost::vhost_user::message::FrontendReq;

use super::front_end::{ENTRIES, FrontEnd, addresses, event, raise, state};
use super::{Act, Effect, claim};

/// Words about a ring that breaks while it runs.
pub(super) const RUNNING: &str = "broke a ring";
/// Words about a ring that cannot be set up.
const SET_UP: &str = "set up a ring that cannot be used";

/// Flags of a descriptor (virtio 1.2, 2.7.5).
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;

/// Returns the acts of this group.
pub(super) fn acts() -> Vec<Act> {
    let mut acts = descriptors();
    acts.extend(places());
    acts.extend(races());
    acts
}

/// Descriptors that cannot be, in the transmit ring.
fn descriptors() -> Vec<Act> {
    // Of each: name, address and length of descriptor 0, its flags and its successor.
    let one = |name: &str, entry: fn(u64) -> (u64, u32), flags: u16, next: u16| {
        Act::new(name, Effect::Broken(RUNNING), move |front: &mut FrontEnd, _| {
            front.set_up()?;
            let desc = front.queues[1].layout.desc;
            front.describe(desc, 0, entry(desc), flags, next);
            front.offer(1, &[0]);
            Ok(())
        })
    };
    vec![
        one("a descriptor outside memory", |_| (1 << 60, 64), 0, 0),
        one("a descriptor that ends outside memory", |desc| (desc, u32::MAX), 0, 0),
        one("a descriptor that wraps", |_| (u64::MAX - 8, 64), 0, 0),
        one("a descriptor without bytes", |desc| (desc, 0), 0, 0),
        one("a chain that is a loop", |desc| (desc, 64), NEXT, 0),
        one("a chain that leaves the ring", |desc| (desc, 64), NEXT, 9999),
        one("a frame to be written to", |desc| (desc, 64), WRITE, 0),
        one("an indirect table of odd length", |desc| (desc, 17), INDIRECT, 0),
        one("an indirect table without entries", |desc| (desc, 0), INDIRECT, 0),
        one("an indirect table of 2 GiB", |desc| (desc, 1 << 31), INDIRECT, 0),
        one("an indirect table outside memory", |_| (1 << 60, 64), INDIRECT, 0),
        one("an indirect table with a successor", |desc| (desc + 64, 16), INDIRECT | NEXT, 1),
        Act::new("an indirect table that is a loop", Effect::Broken(RUNNING), |front, _| {
            indirect(front, NEXT, 0)
        }),
        Act::new("an indirect table in an indirect table", Effect::Broken(RUNNING), |front, _| {
            indirect(front, INDIRECT, 0)
        }),
        Act::new("an indirect table that leaves itself", Effect::Broken(RUNNING), |front, _| {
            indirect(front, NEXT, 9999)
        }),
        Act::new("a head that is no descriptor", Effect::Broken(RUNNING), |front, _| {
            front.set_up()?;
            front.offer(1, &[ENTRIES]);
            Ok(())
        }),
        Act::new("an index that jumps", Effect::Broken(RUNNING), |front, _| jump(front, 40_000)),
        Act::new("an index that goes back", Effect::Broken(RUNNING), |front, _| jump(front, u16::MAX)),
        Act::new("an index one beyond the ring", Effect::Broken(RUNNING), |front, _| {
            jump(front, ENTRIES + 1)
        }),
        Act::new("the receive ring's index jumps", Effect::Any, |front, _| {
            front.set_up()?;
            let avail = front.queues[0].layout.avail;
            front.write(avail + 2, &40_000_u16.to_le_bytes());
            raise(&front.queues[0].kick);
            Ok(())
        }),
        Act::new("a ring that is broken again and again", Effect::Broken(RUNNING), |front, _| {
            front.set_up()?;
            for _ in 0..20 {
                front.offer(1, &[ENTRIES]);
                claim(front.is_broken(), "the ring was not broken")?;
                let _ = rustix::io::read(&front.queues[1].err, &mut [0; 8]);
                front.ask(FrontendReq::GET_VRING_BASE, &state(1, 0), &[])?;
                front.write(front.queues[1].layout.avail + 2, &[0, 0]);
                front.start(1, &front.queues[1])?;
            }
            front.offer(1, &[ENTRIES]);
            Ok(())
        }),
    ]
}

/// Ring addresses that cannot be, or overlap.
fn places() -> Vec<Act> {
    let moved = |name: &str, effect: Effect, change: fn(&mut taut_virtq::driver::QueueLayout)| {
        Act::new(name, effect, move |front: &mut FrontEnd, _| {
            front.set_up()?;
            let mut layout = front.queues[1].layout;
            change(&mut layout);
            front.send(FrontendReq::SET_VRING_ADDR, &addresses(1, layout), &[])
        })
    };
    let broken = Effect::Broken(SET_UP);
    vec![
        moved("a descriptor table outside memory", broken, |layout| layout.desc = 1 << 50),
        moved("an available ring outside memory", broken, |layout| layout.avail = 1 << 50),
        moved("a used ring outside memory", broken, |layout| layout.used = 1 << 50),
        moved("a used ring that wraps", broken, |layout| layout.used = u64::MAX - 3),
        moved("a descriptor table at an odd address", broken, |layout| layout.desc += 1),
        moved("an available ring at an odd address", broken, |layout| layout.avail += 1),
        moved("a used ring at an odd address", broken, |layout| layout.used += 2),
        moved("all parts of a ring in one place", Effect::Any, |layout| {
            (layout.avail, layout.used) = (layout.desc, layout.desc);
        }),
        moved("a used ring in the descriptor table", Effect::Any, |layout| layout.used = layout.desc),
        Act::new("two rings in one place", Effect::Any, |front, _| {
            front.set_up()?;
            let layout = front.queues[0].layout;
            front.ask(FrontendReq::SET_VRING_ADDR, &addresses(1, layout), &[])?;
            front.queues.iter().for_each(|queue| raise(&queue.kick));
            Ok(())
        }),
    ]
}

/// Starts, stops and resets in the middle of traffic.
fn races() -> Vec<Act> {
    let often = |name: &str, times: u32, once: fn(&FrontEnd) -> io::Result<()>| {
        Act::new(name, Effect::Served, move |front: &mut FrontEnd, _| {
            front.set_up()?;
            let desc = front.queues[1].layout.desc;
            (0..ENTRIES).for_each(|index| front.describe(desc, index, (desc, 72), 0, 0));
            front.offer(1, &(0..ENTRIES).collect::<Vec<_>>());
            for _ in 0..times {
                raise(&front.queues[1].kick);
                once(front)?;
            }
            Ok(())
        })
    };
    vec![
        often("20,000 kicks", 20_000, |_| Ok(())),
        often("a ring that is enabled and disabled", 100, |front| {
            front.send(FrontendReq::SET_VRING_ENABLE, &state(0, 0), &[])?;
            front.send(FrontendReq::SET_VRING_ENABLE, &state(0, 1), &[])?;
            front.ask(FrontendReq::GET_STATUS, &[], &[]).map(drop)
        }),
        often("a ring that is stopped and started", 50, |front| {
            front.ask(FrontendReq::GET_VRING_BASE, &state(1, 0), &[])?;
            front.start(1, &front.queues[1])
        }),
        often("a call eventfd that is replaced all the time", 100, |front| {
            let word = 1_u64.to_ne_bytes();
            front.ask(FrontendReq::SET_VRING_CALL, &word, &[event()?.as_fd()]).map(drop)
        }),
        often("a kick eventfd that is replaced all the time", 100, |front| {
            let word = 1_u64.to_ne_bytes();
            front.ask(FrontendReq::SET_VRING_KICK, &word, &[event()?.as_fd()]).map(drop)
        }),
        often("a ring whose size changes all the time", 50, |front| {
            front.ask(FrontendReq::SET_VRING_NUM, &state(1, 64), &[])?;
            front.ask(FrontendReq::SET_VRING_NUM, &state(1, ENTRIES.into()), &[]).map(drop)
        }),
        often("resets in the middle of traffic", 20, |front| {
            front.ask(FrontendReq::SET_STATUS, &0_u64.to_ne_bytes(), &[])?;
            front.start(1, &front.queues[1])
        }),
        Act::new("a front end that leaves in the middle of traffic", Effect::Left, |front, _| {
            front.set_up()?;
            let desc = front.queues[1].layout.desc;
            (0..ENTRIES).for_each(|index| front.describe(desc, index, (desc, 72), 0, 0));
            front.offer(1, &(0..ENTRIES).collect::<Vec<_>>());
            Ok(())
        }),
    ]
}

/// Offers an indirect table of one entry, which is at the end of the descriptor table.
fn indirect(front: &mut FrontEnd, flags: u16, next: u16) -> io::Result<()> {
    front.set_up()?;
    let desc = front.queues[1].layout.desc;
    let table = desc + 16 * u64::from(ENTRIES - 1);
    front.describe(desc, 0, (table, 16), INDIRECT, 0);
    front.describe(table, 0, (desc, 64), flags, next);
    front.offer(1, &[0]);
    Ok(())
}

/// Moves the index of the transmit ring.
fn jump(front: &mut FrontEnd, index: u16) -> io::Result<()> {
    front.set_up()?;
    front.write(front.queues[1].layout.avail + 2, &index.to_le_bytes());
    raise(&front.queues[1].kick);
    Ok(())
}
