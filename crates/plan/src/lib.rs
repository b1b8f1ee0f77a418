//! The rules: a pure function from desired and observed state to actions.
//!
//! [`plan()`] reads no file, no clock, and starts nothing: what it needs to know is in [`Observed`], what has to be done
//! comes back as [`Action`]s. Undo is not an action of its own: when the cause of something goes away, the plan finds
//! it observed but not desired.
//!
//! One rule a file:
//!
//! * [`admission`]: may this document be written at all (references, addresses, users);
//! * [`numbering`]: port and segment numbers that stay;
//! * [`cid`]: context IDs that stay;
//! * [`memory`]: guests that cannot fit into the host;
//! * [`vms`]: processes to start, stop, connect;
//! * [`vmci`]: VMCI devices and the sockets that lead to them;
//! * [`attachments`]: namespaces and external ports to attach and detach;
//! * [`coalescing`]: the moderation that each port has;
//! * [`dense`]: whether the host is so loaded that guests are interrupted less often;
//! * [`latency`]: reservations, and who may be latency-sensitive;
//! * [`affinity`]: where vCPUs may run that own no pCPU;
//! * [`numa`]: the nodes and pages of memory;
//! * [`migration`]: memory that follows to other nodes while its VM runs;
//! * [`shares`]: who gets how much CPU and memory, and at most;
//! * [`passthrough`]: devices of the host that VMs may have;
//! * [`placement`]: the pCPU that each of their vCPUs owns;
//! * [`machine`]: what a running VM's monitor is told, and how long KVM polls for halted vCPUs;
//! * [`lro`]: the ports for which segments are merged;
//! * [`workers`]: where the fabric's threads run;
//! * [`fabric_config`]: the fabric's whole wanted state;
//! * [`checklist`]: what `taut check` says of a host, a VM, a guest.
//!
//! What the rules decide for all VMs together is in [`Decided`]: made once, acted on by the plan, read by the explanations.

pub mod admission;
pub mod affinity;
pub mod attachments;
pub mod checklist;
pub mod cid;
pub mod coalescing;
mod decided;
pub mod dense;
mod desired;
pub mod fabric_config;
pub mod latency;
pub mod lro;
pub mod machine;
pub mod memory;
pub mod migration;
pub mod numa;
pub mod numbering;
mod observed;
mod outcome;
pub mod passthrough;
pub mod placement;
pub mod shares;
pub mod vmci;
pub mod vms;
pub mod workers;

pub use decided::Decided;
pub use desired::{Desired, Owner};
pub use numbering::Numbers;
pub use observed::{
    Controllers, ExternalSeen, Hierarchy, MachineSeen, MemoryMove, NetnsSeen, Observed, PortSeen, Process,
    VmSeen,
};
pub use outcome::{Action, Plan, Refusal};

/// What has to be done so that what is observed becomes what is desired.
pub fn plan(desired: &Desired, observed: &Observed) -> Plan {
    let decided = Decided::new(desired, observed);
    let mut plan = Plan { fabric: fabric_config::rule(desired, observed, &decided), ..Plan::default() };
    let refused = memory::rule(desired, observed);
    vms::rule(desired, observed, &refused, &mut plan);
    vmci::rule(desired, observed, &mut plan);
    machine::rule(desired, observed, &mut plan);
    attachments::rule(desired, observed, &mut plan);
    plan.refusals = refused;
    plan.memory = migration::rule(desired, observed, &decided.placement);
    plan.exclusive = decided.placement.granted;
    plan.bound = decided.bound;
    plan.entitled = decided.entitled;
    plan
}

#[cfg(test)]
mod tests;
