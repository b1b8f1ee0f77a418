//! The input of the rules and the words of their answers.
//!
//! [`Desired`] is what users asked for and [`Observed`] is what exists on this host. A rule answers
//! with a value of its own, with [`Action`]s, and with an [`Explanation`] for the user.

mod action;
mod desired;
mod explanation;
mod fabric;
mod host;
mod numbers;
mod observed;
mod owner;
pub mod reservation;
mod vm;

pub use action::{Action, Refusal};
pub use desired::Desired;
pub use explanation::{Explanation, Row};
pub use fabric::{FabricSeen, PortSeen};
pub use host::HostSeen;
pub use numbers::Numbers;
pub use observed::{ExternalSeen, InterfaceSeen, NetnsSeen, Observed, RaisedMtu};
pub use owner::Owner;
pub use vm::{MachineSeen, MachineSize, MemoryPlace, Process, SetAddress, VmSeen};
