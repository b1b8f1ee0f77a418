//! Tests moving a running process's memory to another NUMA node on a real kernel.
//!
//! Runs as `init` of a guest with two nodes (QEMU: `-numa node,cpus=0,memdev=…
//! -numa node,cpus=1,memdev=…`), prints every step and powers off. Build it with
//! `RUSTFLAGS="-C target-feature=+crt-static" cargo build -p taut-host --example migrate
//! --target x86_64-unknown-linux-gnu`, and pack it into an initial RAM file system as `/init`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mount::{MountFlags, mount};
use rustix::pipe::{SpliceFlags, pipe, splice};
use rustix::system::{RebootCommand, reboot};
use rustix::thread::{CpuSet, sched_setaffinity};
use taut_api::enforcement::{HostPlan, VmShare};
use taut_api::{Bytes, Name};
use taut_host::enforce::Enforcer;
use taut_host::ledger::Ledger;
use taut_host::observe::evidence::memory;

/// Memory of the process.
const MEMORY: Bytes = Bytes::mib(192);
/// Number of pages that are held at first.
const HELD: usize = 8;

fn main() {
    if let Some(held) = std::env::args().nth(1) {
        return vm(&held);
    }
    for (what, to) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        fs::create_dir_all(to).expect("a folder");
        if let Err(error) = mount(what, to, what, MountFlags::empty(), None) {
            println!("{to}: {error}");
        }
    }
    println!("kernel {}", fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim());
    let nodes = fs::read_to_string("/sys/devices/system/node/has_memory");
    println!("nodes with memory: {}", nodes.unwrap_or_else(|error| error.to_string()).trim());
    // Automatic balancing would move pages, too.
    let _ = fs::write("/proc/sys/kernel/numa_balancing", "0");
    for held in ["nothing", "for a while", "for ever"] {
        println!("--- held: {held}");
        run(held);
    }
    println!("done");
    let _ = reboot(RebootCommand::PowerOff);
}

/// Runs as a process like QEMU: its memory is in a file, touched on node 0, and used while it is
/// moved.
fn vm(held: &str) {
    let mut cpu = CpuSet::new();
    cpu.set(0);
    sched_setaffinity(None, &cpu).expect("CPU 0");
    let file = memfd_create("memory-backend-memfd", MemfdFlags::CLOEXEC).expect("a file");
    ftruncate(&file, MEMORY.0).expect("its size");
    let words = mapped::shared(&file, MEMORY.0 as usize);
    // Stands in for the fabric's mapping.
    let other = mapped::shared(&file, MEMORY.0 as usize);
    for (index, word) in words.iter().enumerate() {
        word.store(index as u64, Ordering::Relaxed);
    }
    let (out, into) = pipe().expect("a pipe");
    if held != "nothing" {
        // The pipe holds the pages themselves.
        let spliced = splice(&file, None, &into, None, HELD * 4096, SpliceFlags::empty());
        println!("bytes in a pipe: {spliced:?}");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                for word in words.iter().step_by(64) {
                    word.fetch_add(1, Ordering::Relaxed);
                }
                rounds += 1;
            }
            let right = |(index, word): (usize, &AtomicU64)| {
                let added = if index % 64 == 0 { rounds } else { 0 };
                word.load(Ordering::Relaxed) == index as u64 + added
            };
            println!(
                "written {rounds} times meanwhile; all as it should be: {}",
                other.iter().enumerate().all(right)
            );
        });
        fs::write("/ready", "").expect("a file");
        if held == "for a while" {
            std::thread::sleep(Duration::from_millis(2500));
            drop(out);
            drop(into);
            fs::write("/released", "").expect("a file");
        }
        while !Path::new("/stop").exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn run(held: &str) {
    for file in ["/ready", "/stop", "/released"] {
        let _ = fs::remove_file(file);
    }
    let vm: Name = "db1".parse().expect("a name");
    let mut child = Command::new("/proc/self/exe").arg(held).spawn().expect("a process");
    let pid = child.id();
    while !Path::new("/ready").exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let root = Path::new("/");
    println!("before: {:?}", memory(root, pid));
    let ledger = Ledger::new(root, Path::new("/ledger"));
    let mut enforcer = Enforcer::new(root, None, &ledger).expect("a ledger");
    for node in [1, 0] {
        let share = VmShare { pid, memory: [node].into(), ..VmShare::default() };
        follow(&mut enforcer, &HostPlan { vms: [(vm.clone(), share)].into(), ..HostPlan::default() });
        println!("after: {:?}", memory(root, pid));
    }
    let _ = fs::write("/stop", "");
    println!("process: {:?}", child.wait());
}

/// Settles until the move is done.
fn follow(enforcer: &mut Enforcer, plan: &HostPlan) {
    loop {
        let begin = Instant::now();
        let moved = enforcer.settle(plan).vms.into_values().find_map(|vm| vm.memory);
        println!("{:?} {moved:?}", begin.elapsed());
        if moved.is_some_and(|moved| moved.done) {
            return;
        }
        while !enforcer.is_due(Instant::now()) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

mod mapped {
    //! Mapping a file's memory.
    #![allow(unsafe_code, reason = "mapping memory")]

    use std::os::fd::OwnedFd;
    use std::sync::atomic::AtomicU64;

    use rustix::mm::{MapFlags, ProtFlags, mmap};

    /// Maps `bytes` of a file for the life of the process.
    pub(super) fn shared(file: &OwnedFd, bytes: usize) -> &'static [AtomicU64] {
        // SAFETY: the kernel chooses the address of the new mapping, so it overlaps no other
        // memory; it is never unmapped.
        let at = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
        };
        let at = at.expect("a mapping").cast::<AtomicU64>();
        // SAFETY: the mapping is that long, page-aligned, within its file, never unmapped, and only
        // ever used by atomic operations.
        unsafe { std::slice::from_raw_parts(at, bytes / 8) }
    }
}
