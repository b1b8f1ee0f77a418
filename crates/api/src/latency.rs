//! State of a VM's latency sensitivity.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of a VM's `latency_sensitivity = "high"` or `"high-ht"`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LatencyStatus {
    /// How much of the latency sensitivity is in force.
    pub state: LatencyState,
    /// pCPU that each vCPU owns, in vCPU order; empty without exclusive pCPUs.
    pub cpus: Vec<u32>,
    /// SMT siblings of those pCPUs, which are kept idle (LS-4 idle SMT siblings).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<u32>,
    /// Parts that are missing, with reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Decisions, each with its rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
}

/// How much of a VM's latency sensitivity is in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LatencyState {
    /// The VM has no process, or its vCPUs are not bound yet to the pCPUs that they own.
    #[default]
    Waiting,
    /// Everything is in force.
    Granted,
    /// A part is in force at most, and no exclusive pCPUs perhaps: `missing` names the rest, or a
    /// decision needs a restart.
    Partly,
}

/// A decision of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// The decision, as a sentence.
    pub decision: String,
    /// The rule behind it.
    pub rule: String,
    /// True if the decision takes effect only at the VM's next start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
}
