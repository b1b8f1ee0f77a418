//! KVM's counters of a VM's vCPUs: exits, and how vCPUs halt.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Names of the counters that are queried; a kernel may lack some. Times are in nanoseconds.
///
/// | name | what it counts |
/// |---|---|
/// | `exits` | times that the guest's code was left for the host |
/// | `halt_exits` | of these, because the guest had nothing to do |
/// | `halt_attempted_poll` | halts that KVM polled for before it gave the pCPU away |
/// | `halt_successful_poll` | of these, with something to do before the polling ended |
/// | `halt_poll_invalid` | of these, where what came did not wake the guest |
/// | `halt_wakeup` | halts that went through the host's scheduler, and were woken up |
/// | `halt_poll_success_ns`, `halt_poll_fail_ns` | polled, with success and in vain |
/// | `halt_wait_ns` | halted, with the pCPU given away |
pub const COUNTERS: [&str; 9] = [
    "exits",
    "halt_exits",
    "halt_attempted_poll",
    "halt_successful_poll",
    "halt_poll_invalid",
    "halt_wakeup",
    "halt_poll_success_ns",
    "halt_poll_fail_ns",
    "halt_wait_ns",
];

/// `GET /v1/vms/{name}/kvm`: KVM's counters of a running VM's vCPUs since they were created.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KvmCounters {
    /// Counters by vCPU, ascending; empty if KVM counts nothing.
    pub vcpus: Vec<KvmVcpu>,
    /// Reason for missing counters, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub none_because: Option<String>,
}

/// KVM's counters of one vCPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KvmVcpu {
    /// Index of the vCPU.
    pub vcpu: u32,
    /// Values by KVM's names: exits, halt_exits, halt_attempted_poll, halt_successful_poll,
    /// halt_poll_invalid, halt_wakeup, and in nanoseconds halt_poll_success_ns, halt_poll_fail_ns,
    /// halt_wait_ns. A kernel may lack some.
    pub counters: BTreeMap<String, u64>,
}

impl KvmCounters {
    /// Returns empty counters with the reason.
    pub fn none(because: impl Into<String>) -> Self {
        Self { vcpus: Vec::new(), none_because: Some(because.into()) }
    }

    /// Returns the difference to `earlier`. Omits counters that only one side has, and counters
    /// that decreased because the process was restarted.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let moved = |now: &KvmVcpu| {
            let before = earlier.vcpus.iter().find(|before| before.vcpu == now.vcpu)?;
            let counters = now.counters.iter().filter_map(|(name, count)| {
                Some((name.clone(), count.checked_sub(*before.counters.get(name)?)?))
            });
            Some(KvmVcpu { vcpu: now.vcpu, counters: counters.collect() })
        };
        Self {
            vcpus: self.vcpus.iter().filter_map(moved).collect(),
            none_because: self.none_because.clone().or_else(|| earlier.none_because.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vcpu(vcpu: u32, counters: &[(&str, u64)]) -> KvmVcpu {
        KvmVcpu {
            vcpu,
            counters: counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        }
    }

    #[test]
    fn differences_omit_missing_and_decreasing_counters() {
        let before = KvmCounters {
            vcpus: vec![vcpu(0, &[("exits", 10), ("halt_exits", 4), ("gone", 1)]), vcpu(2, &[("exits", 1)])],
            none_because: None,
        };
        let after = KvmCounters {
            vcpus: vec![vcpu(0, &[("exits", 15), ("halt_exits", 3), ("new", 1)]), vcpu(1, &[("exits", 9)])],
            none_because: None,
        };
        let moved = after.since(&before);
        assert_eq!(moved.vcpus, [vcpu(0, &[("exits", 5)])]);
        assert_eq!(moved.none_because, None);
        let none = KvmCounters::none("of a reason");
        assert_eq!(none.since(&after), none);
        assert_eq!(after.since(&none).none_because, none.none_because);
    }
}
