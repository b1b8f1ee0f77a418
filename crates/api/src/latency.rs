//! What became of a VM's latency sensitivity (SPEC LS-1 to LS-9).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of a VM's `latency_sensitivity = "high"` or `"high-ht"`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LatencyStatus {
    /// How much of it is in force.
    pub state: LatencyState,
    /// The pCPU that each vCPU owns, in the vCPUs' order; empty when it has none for itself.
    pub cpus: Vec<u32>,
    /// Their SMT siblings that are kept idle (LS-4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<u32>,
    /// Why it is refused, or what is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Each decision with the rule behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
}

/// How much of a VM's latency sensitivity is in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LatencyState {
    /// The VM does not run, or its vCPUs have not been found yet.
    #[default]
    Waiting,
    /// All of it.
    Granted,
    /// Some of it; `missing` says what is not.
    Partly,
    /// Nothing of it; `missing` says why.
    Refused,
}

/// A decision of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// What was decided.
    pub decision: String,
    /// The rule behind it.
    pub rule: String,
    /// It takes effect with the VM's next start only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
}
