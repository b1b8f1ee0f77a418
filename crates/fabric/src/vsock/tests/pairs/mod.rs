//! Queue pairs: ends of connections whose payload goes through rings.

mod counters;
mod ends;
mod flows;
mod handover;
mod hostile;
mod leaving;
mod left_ends;
mod pace;
mod patrol;
mod peers;
mod program;
mod restart;
mod service;
mod signals;

use std::time::Duration;

use taut_api::fabric::config::{SocketConfig, WorkerMode};

pub(super) use self::program::Program;
use super::rig::*;

/// Length of the regions of the tests: 31 channels with rings of 64 KiB.
pub(super) const REGION: u64 = 4 << 20;
/// Length of a ring of such a region.
pub(super) const RING: usize = 64 << 10;

/// Creates a rig of guests in one domain. Those in `with_region` have a region.
pub(super) fn rig_with(guests: usize, with_region: &[usize]) -> Rig {
    let devices = (3..3 + guests as u32).map(|cid| device(cid, &["d"])).collect();
    let mut rig = rig_that_sleeps(devices);
    for &guest in with_region {
        rig.give_region(guest, REGION);
    }
    rig
}

/// Creates a rig of guests at these devices, whose switch waits for kicks.
pub(super) fn rig_that_sleeps(devices: Vec<SocketConfig>) -> Rig {
    let rings = Rings { entries: 64, buffer: 4096, payload: 64 << 10, ram: 16 << 20 };
    Rig::new(devices, rings, WorkerMode::Interrupt)
}

/// Lets time pass until nothing is looked at any more.
pub(super) fn rest(rig: &mut Rig) {
    for _ in 0..30 {
        rig.now += Duration::from_micros(100);
        rig.settle();
    }
    rig.check();
}
