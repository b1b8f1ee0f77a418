//! The status of one VM, put together from the explanations of single decisions.
//!
//! Each explanation stands beside the rule that decides. This folder decides nothing.

mod latency;
mod resources;

pub use latency::explain_latency;
pub use resources::{explain_machine, explain_resources};
