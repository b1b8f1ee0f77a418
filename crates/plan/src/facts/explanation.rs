//! How a rule tells a user what it decided, why, and what it could not do.

use taut_api::latency::Decision;
use taut_api::shares::ResourceStatus;

/// A row of the specification that a decision follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// LS-2: reserved memory is always available to its VM.
    MemoryReservation,
    /// LS-3: each vCPU has a pCPU of its own.
    ExclusivePcpus,
    /// LS-4: SMT siblings of exclusive pCPUs run nothing else.
    IdleSiblings,
    /// LS-5: memory and helper threads are near the VM's pCPUs.
    LocalMemory,
    /// LS-6: an idle vCPU halts in the guest, and its pCPU wakes up at once.
    FastWakeUp,
    /// LS-7: coalescing and LRO are off.
    NoBatching,
    /// LS-8: a device of the host belongs to the VM.
    PassThrough,
    /// VN-14: shares and limits of CPU, memory and disk.
    SharesAndLimits,
    /// VN-17: each vSwitch has an MTU.
    Mtu,
}

impl Row {
    /// Number and name, as `docs/spec.md` has them.
    pub const fn title(self) -> &'static str {
        match self {
            Self::MemoryReservation => "LS-2 memory reservation",
            Self::ExclusivePcpus => "LS-3 exclusive pCPUs",
            Self::IdleSiblings => "LS-4 idle SMT siblings",
            Self::LocalMemory => "LS-5 local memory",
            Self::FastWakeUp => "LS-6 fast wake-up",
            Self::NoBatching => "LS-7 no coalescing",
            Self::PassThrough => "LS-8 pass-through",
            Self::SharesAndLimits => "VN-14 shares and limits",
            Self::Mtu => "VN-17 MTU",
        }
    }

    /// Number, name and reason: `LS-3 exclusive pCPUs: CPU and memory are fully reserved`.
    pub fn because(self, reason: impl AsRef<str>) -> String {
        format!("{}: {}", self.title(), reason.as_ref())
    }
}

/// Decisions about one VM with their reasons, and everything that this host cannot do for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Each decision with the rule behind it.
    pub decisions: Vec<Decision>,
    /// Everything that is wanted and not in force, with the reason.
    pub missing: Vec<String>,
}

impl Explanation {
    /// Adds a decision that is in force, or will be without a restart of the VM.
    pub fn decide(&mut self, decision: impl Into<String>, rule: impl Into<String>) {
        self.decide_from(false, decision, rule);
    }

    /// Adds a decision that takes effect `at_next_start` of the VM, or now.
    pub fn decide_from(&mut self, at_next_start: bool, decision: impl Into<String>, rule: impl Into<String>) {
        self.decisions.push(Decision {
            decision: decision.into(),
            rule: rule.into(),
            restart: at_next_start,
        });
    }

    /// Adds something that is wanted and not in force.
    pub fn lack(&mut self, what: impl Into<String>) {
        self.missing.push(what.into());
    }

    /// Appends another explanation of the same VM.
    pub fn append(&mut self, other: Self) {
        self.decisions.extend(other.decisions);
        self.missing.extend(other.missing);
    }

    /// The explanation as a VM's status carries it; `None` when it says nothing.
    pub fn into_status(self) -> Option<ResourceStatus> {
        let Self { decisions, missing } = self;
        let empty = decisions.is_empty() && missing.is_empty();
        (!empty).then_some(ResourceStatus { missing, decisions })
    }
}
