//! What a user is told about one VM: the explanations of single decisions, put together.
//!
//! Each explanation stands beside the rule that decides; nothing is decided here.

mod latency;
mod resources;

pub use latency::explain_latency;
pub use resources::{explain_machine, explain_resources};
