//! Process 1 of a directly booted guest: devices, drivers, addresses, the agent, the power button.
//!
//! The initial RAM file system has this program as `/init` and drivers with their load order in
//! `/modules/order` and `/modules/order-nvdimm` (`taut-image` builds it). There is no shell and no
//! disk.

mod modules;
mod ports;
mod power;

use std::convert::Infallible;
use std::io;
use std::process::{Command, id};
use std::thread::{self, sleep};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use rustix::process::{WaitOptions, wait};

use crate::addresses;

/// Returns whether this process is the guest's first.
pub(crate) fn is_wanted() -> bool {
    id() == 1
}

/// Starts the guest and supervises it until it is powered off.
///
/// Failures are reported on the console, and the guest continues with what works: a guest that
/// answers can be asked for the reason.
pub(crate) fn run() -> ! {
    mount_all();
    report("modules", modules::load());
    thread::spawn(|| report("power button", power::watch_button()));
    report("interfaces", addresses::configure());
    report("agent port", ports::link());
    println!("taut guest ready");
    loop {
        let error = keep_agent().unwrap_err();
        println!("taut guest: agent: {error}");
        sleep(Duration::from_secs(1));
    }
}

fn mount_all() {
    for (kind, target) in
        [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/run"), ("tmpfs", "/tmp")]
    {
        match mount(Some(kind), target, Some(kind), MsFlags::empty(), None::<&str>) {
            // Some kernels mount devtmpfs themselves.
            Ok(()) | Err(nix::errno::Errno::EBUSY) => {}
            Err(error) => println!("taut guest: {target}: {error}"),
        }
    }
}

/// Runs the agent as a process of its own, restarts it whenever it ends, and reaps orphans.
fn keep_agent() -> io::Result<Infallible> {
    loop {
        let agent = Command::new("/proc/self/exe").args(["agent", "--device", ports::AGENT]).spawn()?;
        while let Some((ended, status)) = wait(WaitOptions::empty())? {
            if u32::try_from(ended.as_raw_nonzero().get()) == Ok(agent.id()) {
                println!("taut guest: the agent ended ({status:?})");
                break;
            }
        }
        sleep(Duration::from_millis(200));
    }
}

fn report(what: &str, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        println!("taut guest: {what}: {error}");
    }
}
