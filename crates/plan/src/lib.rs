//! The rules: a pure function from desired and observed state to a plan.
//!
//! [`plan()`] reads no file and no clock, and starts nothing. Everything that it needs to know is
//! in [`Desired`], [`Observed`] and the last
//! [`HostReport`](taut_api::enforcement::HostReport); everything that has to be done comes back in
//! the [`Plan`]. There is no undo path: the next plan simply omits an action or a share of the
//! host, and enforcement puts back what the omitted share had changed.
//!
//! Each file has one rule: a function that returns its decision, and beside it the function that
//! explains this decision to the user. The folders are layers; no folder imports from one below it
//! in this list:
//!
//! * [`facts`]: desired and observed state, numbers of ports, and the words of the answers;
//! * [`placement`]: pCPUs of vCPUs, nodes of memory, pCPUs of the fabric's threads;
//! * [`network`]: the fabric's configuration, attachments, VMCI devices, dense mode;
//! * [`resources`]: shares, limits, memory, halting, devices, and which VMs run;
//! * [`admission`]: whether a document may be written;
//! * [`explain`]: what a user is told about a VM;
//! * [`checklist`]: what `taut check` says of a host, a VM or a guest.

pub mod admission;
pub mod checklist;
pub mod explain;
pub mod facts;
pub mod network;
pub mod placement;
mod plan;
pub mod resources;

pub use facts::{Desired, Observed, Owner};
pub use plan::{Plan, plan};
