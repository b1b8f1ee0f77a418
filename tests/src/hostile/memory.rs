//! Guest memory that is not what it seems, or changes.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use vhost::vhost_user::message::FrontendReq;

use super::front_end::{FrontEnd, memory_table, raise};
use super::{Act, Effect};

/// Guest address of the first region.
const BASE: u64 = 0x1_0000;
const MIB: u64 = 1 << 20;

/// Returns the acts of this group.
pub(super) fn acts() -> Vec<Act> {
    let mut acts = tables();
    acts.extend(changes());
    acts
}

/// Tables of memory that cannot be.
fn tables() -> Vec<Act> {
    let table = |name: &str, effect: Effect, size: u64, regions: Vec<[u64; 4]>| {
        Act::new(name, effect, move |front: &mut FrontEnd, _| {
            front.negotiate()?;
            send_table(front, &sealed(size)?, &regions)
        })
    };
    let many =
        |count: u64, size: u64| (0..count).map(|at| [BASE + at * size, size, BASE + at * size, 0]).collect();
    vec![
        table(
            "a file that is shorter than its region",
            Effect::Ended("needs a file of"),
            MIB,
            vec![[BASE, 2 * MIB, BASE, 0]],
        ),
        table(
            "a region behind the end of its file",
            Effect::Ended("needs a file of"),
            MIB,
            vec![[BASE, MIB, BASE, 1 << 40]],
        ),
        table(
            "a region that wraps in the guest",
            Effect::Ended("out of range"),
            MIB,
            vec![[u64::MAX - 4095, MIB, BASE, 0]],
        ),
        table(
            "a region that wraps in its file",
            Effect::Ended("out of range"),
            MIB,
            vec![[BASE, MIB, BASE, u64::MAX - 4095]],
        ),
        table("a region without bytes", Effect::Ended("out of range"), MIB, vec![[BASE, 0, BASE, 0]]),
        table("a region at an odd offset of its file", Effect::Any, MIB, vec![[BASE, 4096, BASE, 1]]),
        table(
            "regions that overlap",
            Effect::Ended("overlap"),
            MIB,
            vec![[BASE, MIB, BASE, 0], [BASE + 4096, MIB, BASE + MIB, 0]],
        ),
        table("no region", Effect::Ended("out of range"), MIB, Vec::new()),
        table("33 regions", Effect::Ended("descriptors in one message"), MIB, many(33, MIB)),
        table("32 regions", Effect::Served, MIB, many(32, MIB)),
        table(
            "a region of 64 TiB",
            Effect::Ended("of guest memory; its guest has"),
            1 << 46,
            vec![[BASE, 1 << 46, BASE, 0]],
        ),
        table(
            "32 regions of 1 TiB",
            Effect::Ended("of guest memory; its guest has"),
            1 << 40,
            many(32, 1 << 40),
        ),
        Act::new("more regions than descriptors", Effect::Ended("descriptors instead of"), |front, _| {
            front.negotiate()?;
            let table = memory_table(&[[BASE, MIB, BASE, 0], [BASE + MIB, MIB, BASE + MIB, 0]]);
            front.send(FrontendReq::SET_MEM_TABLE, &table, &[sealed(MIB)?.as_fd()])
        }),
        Act::new("more descriptors than regions", Effect::Ended("descriptors instead of"), |front, _| {
            front.negotiate()?;
            let file = sealed(MIB)?;
            front.send(FrontendReq::SET_MEM_TABLE, &memory_table(&[[BASE, MIB, BASE, 0]]), &[file.as_fd(); 3])
        }),
        Act::new(
            "memory that is truncated as soon as it is sent",
            Effect::Ended("is not sealed"),
            |front, _| {
                front.negotiate()?;
                let file = file(MIB, SealFlags::GROW)?;
                send_table(front, &file, &[[BASE, MIB, BASE, 0]])?;
                Ok(ftruncate(&file, 0)?)
            },
        ),
    ]
}

/// Memory that changes while rings run in it.
fn changes() -> Vec<Act> {
    vec![
        Act::new("other memory below running rings", Effect::Broken("cannot be used"), |front, _| {
            front.set_up()?;
            send_table(front, &sealed(MIB)?, &[[1 << 40, MIB, 1 << 40, 0]])
        }),
        Act::new("the same memory again and again", Effect::Served, |front, _| {
            front.set_up()?;
            (0..50).try_for_each(|_| front.share_memory())
        }),
        Act::new("memory of running rings that is punched out", Effect::Any, |front, _| {
            front.set_up()?;
            let all = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(front.ram.file(), all, 0, front.ram.spec().size)?;
            front.queues.iter().for_each(|queue| raise(&queue.kick));
            Ok(())
        }),
        Act::new(
            "a region that is removed and was never added",
            Effect::Ended("cannot be added or removed"),
            |front, _| {
                front.set_up()?;
                front.send(FrontendReq::REM_MEM_REG, &single(1 << 40), &[])
            },
        ),
        Act::new("running rings whose memory is removed", Effect::Served, |front, _| {
            front.set_up()?;
            let spec = front.ram.spec();
            let body = region([spec.guest_addr, spec.size, spec.user_addr, 0]);
            front.ask(FrontendReq::REM_MEM_REG, &body, &[]).map(drop)
        }),
        Act::new(
            "one region more than there may be",
            Effect::Ended("cannot be added or removed"),
            |front, _| {
                front.negotiate()?;
                let file = sealed(MIB)?;
                for at in 0..32 {
                    front.ask(FrontendReq::ADD_MEM_REG, &single(BASE + at * MIB), &[file.as_fd()])?;
                }
                front.send(FrontendReq::ADD_MEM_REG, &single(BASE + 32 * MIB), &[file.as_fd()])
            },
        ),
        Act::new("the same region twice", Effect::Ended("overlap"), |front, _| {
            front.negotiate()?;
            let file = sealed(MIB)?;
            front.ask(FrontendReq::ADD_MEM_REG, &single(BASE), &[file.as_fd()])?;
            front.send(FrontendReq::ADD_MEM_REG, &single(BASE), &[file.as_fd()])
        }),
    ]
}

/// Sends a table whose regions are all of one file.
fn send_table(front: &FrontEnd, file: &OwnedFd, regions: &[[u64; 4]]) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = regions.iter().map(|_| file.as_fd()).collect();
    front.send(FrontendReq::SET_MEM_TABLE, &memory_table(regions), &fds)
}

/// The body of a request about one region of 1 MiB.
fn single(address: u64) -> Vec<u8> {
    region([address, MIB, address, 0])
}

fn region(region: [u64; 4]) -> Vec<u8> {
    [&[0; 8][..], &region.map(u64::to_ne_bytes).concat()].concat()
}

/// Memory as QEMU makes it.
pub(super) fn sealed(size: u64) -> io::Result<OwnedFd> {
    file(size, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}

fn file(size: u64, seals: SealFlags) -> io::Result<OwnedFd> {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, size)?;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}
