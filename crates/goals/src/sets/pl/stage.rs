//! The neighbour experiment for a machine of any size: rt1 has one vCPU and can be
//! latency-sensitive; four VMs of one vCPU each compute. A namespace stands for another machine and
//! sends the requests. Two pCPUs are enough: one for rt1 when it is high, one for the host and
//! everything else.

use crate::lab::{DaemonOptions, Lab, NEWEST};
use crate::reason::Measured;

/// VMs that compute.
pub(super) const NEIGHBOURS: &str = "n1 n2 n3 n4";
/// Namespace of the client.
pub(super) const CLIENT: &str = "taut-goal-client";
/// Words of benches: the client, the VM that answers, and the VMs that compute.
pub(super) const PARTIES: &str = "netns/taut-goal-client rt1 --address 10.85.0.1";

/// Lines of a VM that reserves all memory and CPU. Only the VM that becomes high does.
const RESERVED: &str = "memory_reservation = \"full\"\n[cpu]\nreservation = \"full\"";

/// Kind of the VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// QEMU guests with Debian's newest kernel.
    Vm,
    /// Microguests, which run at native speed.
    Micro,
}

/// Sets the stage, in a cpuset of its own.
pub(super) fn set(lab: &mut Lab, kind: Kind) -> Measured<()> {
    lab.enter_scope()?;
    lab.start_lan(DaemonOptions::default())?;
    start(lab, kind, "rt1", "10.85.0.1", RESERVED)?;
    for (number, name) in (11..).zip(NEIGHBOURS.split(' ')) {
        start(lab, kind, name, &format!("10.85.0.{number}"), "")?;
    }
    client(lab)
}

/// Attaches the client's namespace.
pub(super) fn client(lab: &mut Lab) -> Measured<()> {
    lab.netns(CLIENT, "lan", "10.85.0.100")
}

fn start(lab: &mut Lab, kind: Kind, name: &str, ip: &str, more: &str) -> Measured<()> {
    match kind {
        Kind::Vm => lab.vm(name, NEWEST, ip, more),
        Kind::Micro => lab.micro(name, ip, more),
    }
}

/// Waits until rt1 owns a pCPU.
pub(super) fn until_exclusive(lab: &mut Lab) -> Measured<()> {
    lab.until("rt1 owns a pCPU", 30, |lab| Ok(exclusive(lab)? == 1))
}

/// Number of pCPUs that rt1 owns. A VM that is not latency-sensitive has no such list.
pub(super) fn exclusive(lab: &mut Lab) -> Measured<usize> {
    let rt1 = lab.vm_show("rt1")?;
    if rt1.has("status.latency") { Ok(rt1.list("status.latency.cpus")?.len()) } else { Ok(0) }
}
