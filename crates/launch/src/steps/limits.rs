//! Resource limits.

use std::fs::OpenOptions;
use std::io::{self, Write as _};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::CapabilitySet;
use taut_launch::{Limit, Limits, Step, Wall};

use crate::failure::{Failed, Within as _};
use crate::reporter::Reporter;

/// Sets the resource limits of the program. Guests' memory must not be dumped, and message queues
/// would take memory of the kernel.
///
/// Returns the capabilities that the program has to keep because a limit cannot be raised.
pub(crate) fn set(limits: &Limits, reporter: &mut Reporter) -> Result<CapabilitySet, Failed> {
    let mut kept = CapabilitySet::empty();
    let none = Some(Limit::At(0));
    for (name, resource, limit) in [
        ("core", Resource::Core, none),
        ("msgqueue", Resource::Msgqueue, none),
        ("nofile", Resource::Nofile, limits.nofile),
        ("nproc", Resource::Nproc, limits.nproc),
        ("memlock", Resource::Memlock, limits.memlock),
        ("address space", Resource::As, limits.address_space),
        ("CPU time", Resource::Cpu, limits.cpu_seconds),
    ] {
        let value = match limit {
            None => continue,
            Some(Limit::Unlimited) => None,
            Some(Limit::At(amount)) => Some(amount),
        };
        let set = setrlimit(resource, Rlimit { current: value, maximum: value });
        if set == Err(Errno::PERM) && resource == Resource::Memlock && value.is_none() {
            let reason = "it keeps CAP_IPC_LOCK: the limit of locked memory cannot be raised here";
            reporter.lack(Step::Limits, Wall::Capabilities, reason)?;
            kept = CapabilitySet::IPC_LOCK;
            continue;
        }
        set.within(Step::Limits, || {
            let value = value.map_or("unlimited".to_owned(), |amount| amount.to_string());
            format!("setting the limit of {name} to {value}")
        })?;
    }
    Ok(kept)
}

/// Sets the place among the kernel's victims when memory runs out.
pub(crate) fn set_oom_score(score: i16, reporter: &mut Reporter) -> Result<(), Failed> {
    let file = OpenOptions::new().write(true).open("/proc/self/oom_score_adj");
    match file.and_then(|mut file| file.write_all(score.to_string().as_bytes())) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let reason = format!("setting oom_score_adj to {score}: {error}");
            reporter.lack(Step::OomScore, Wall::OomScore, reason)
        }
        done => done.within(Step::OomScore, || format!("setting oom_score_adj to {score}")),
    }
}
