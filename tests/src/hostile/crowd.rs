//! Many front ends, each with as much of the fabric's address space as it can get.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use vhost::vhost_user::message::FrontendReq;

use super::front_end::{ENTRIES, FrontEnd, memory_table};
use super::memory::sealed;
use super::port::{attach, socket};
use super::{Act, Effect, Tools, claim};

/// Ports of the act.
const PORTS: u8 = 64;
/// Regions of each, all of which are files of their own.
const REGIONS: usize = 32;
/// Size of a region, except of the one with the rings.
const SIZE: u64 = 64 << 10;
/// Guest address of the second region.
const BASE: u64 = 1 << 40;
/// Mappings that may come meanwhile: stacks of the threads that close, of which eight stay, and
/// their heaps, two mappings each. The regions of four ports are as many.
const SPARE: usize = 128;
/// Longest wait until the fabric has given back what it had mapped.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the acts of this group.
pub(super) fn acts() -> Vec<Act> {
    let act = Act::new("64 ports with 32 regions each", Effect::Served, |front, tools| {
        (0..PORTS).for_each(|port| attach(&tools.taut, &name(port), "lan", [2, 0x66, 0, 0, 2, port], None));
        let done = crowd(front, tools);
        (0..PORTS).for_each(|port| _ = tools.taut.ok(["port", "detach", &name(port)]));
        done
    });
    vec![act.slow()]
}

fn name(port: u8) -> String {
    format!("crowd-{port}")
}

/// Has all ports serve a session with many regions, and then none.
fn crowd(front: &mut FrontEnd, tools: &Tools) -> io::Result<()> {
    let before = tools.mappings()?;
    let mut others = Vec::new();
    for port in 0..PORTS {
        let mut other = FrontEnd::connect(&socket(tools.taut.dir(), &name(port)), true)?;
        other.negotiate()?;
        share_many(&other)?;
        other.start_rings(ENTRIES)?;
        others.push(other);
    }
    let most = before + others.len() * REGIONS;
    claim(tools.mappings()? + SPARE >= most, "the regions are not all mapped")?;
    // A session that begins now has room like any other.
    front.set_up()?;
    for other in &others {
        claim(other.is_served(), "one of the sessions was ended")?;
    }
    drop(others);
    let end = Instant::now() + PATIENCE;
    let mut left = tools.mappings()?;
    while left > before + SPARE && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
        left = tools.mappings()?;
    }
    claim(left <= before + SPARE, &format!("the fabric has {left} mappings instead of {before}"))
}

/// Shares the memory in as many regions as there may be.
fn share_many(front: &FrontEnd) -> io::Result<()> {
    let spec = front.ram.spec();
    let mut table = vec![[spec.guest_addr, spec.size, spec.user_addr, 0]];
    table.extend((1..REGIONS as u64).map(|at| BASE + at * SIZE).map(|address| [address, SIZE, address, 0]));
    let files = (1..REGIONS).map(|_| sealed(SIZE)).collect::<io::Result<Vec<OwnedFd>>>()?;
    let mut fds: Vec<BorrowedFd<'_>> = vec![front.ram.file()];
    fds.extend(files.iter().map(OwnedFd::as_fd));
    front.ask(FrontendReq::SET_MEM_TABLE, &memory_table(&table), &fds).map(drop)
}
