//! Waits of VMs that their users notice.

use super::VmStatistics;

/// Values above which users of esxtop look for a cause. `taut top` and the page highlight them.
pub mod limits {
    /// Ready time of a single vCPU, not of the VM, in percent (`%RDY`).
    pub const READY_PERCENT: f64 = 10.0;
    /// Time that a vCPU was stopped for co-scheduling, in percent (`%CSTP`). Linux has no such
    /// time.
    pub const COSTOP_PERCENT: f64 = 3.0;
    /// Time in which a limit kept a VM from running, in percent (`%MLMTD`).
    pub const THROTTLED_PERCENT: f64 = 0.0;
    /// Time that all vCPUs of a VM waited for pages from disk, in percent of one pCPU (`%SWPWT`).
    pub const PAGED_PERCENT: f64 = 5.0;
    /// Part of a port's frames that were dropped, in percent (`%DRPTX`, `%DRPRX`).
    pub const DROPS_PERCENT: f64 = 1.0;
}

/// Kind of wait of a VM's vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// A vCPU is ready to run and waits for a pCPU.
    Ready,
    /// The CPU limit of the VM keeps it from running.
    Throttled,
    /// vCPUs wait for pages of their memory from disk.
    Paged,
}

impl Wait {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Ready, Self::Throttled, Self::Paged];

    /// Returns the code of the kind, as the guide has it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Throttled => "throttled",
            Self::Paged => "paged",
        }
    }

    /// Returns the place of the guide's section about the kind.
    pub fn guide(self) -> String {
        crate::guide::section("wait", self.code())
    }
}

impl VmStatistics {
    /// Returns each wait above its limit, in percent of one pCPU, the longest first. Ready time is
    /// that of the vCPU that waited longest; other waits are those of all vCPUs.
    pub fn waits(&self) -> Vec<(Wait, f64)> {
        let ready = self.vcpus.iter().map(|vcpu| vcpu.ready_percent).max_by(f64::total_cmp);
        let all = [
            (Wait::Ready, ready, limits::READY_PERCENT),
            (Wait::Throttled, self.throttled_percent, limits::THROTTLED_PERCENT),
            (Wait::Paged, self.paged_percent, limits::PAGED_PERCENT),
        ];
        let above = |(wait, percent, limit): (Wait, Option<f64>, f64)| {
            percent.filter(|percent| *percent > limit).map(|percent| (wait, percent))
        };
        let mut waits: Vec<_> = all.into_iter().filter_map(above).collect();
        waits.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_above_their_limits_are_told_the_longest_first() {
        let of = |ready: [f64; 2], rest: &str| {
            let json = format!(
                r#"{{"name": "a", "foreign": true, "covered_ms": 1, "to_ms": 1, "run_percent": 0,
                    "ready_percent": 0, "others_percent": 0, {rest} "vcpus": [
                    {{"vcpu": 0, "run_percent": 0, "ready_percent": {}}},
                    {{"vcpu": 1, "run_percent": 0, "ready_percent": {}}}]}}"#,
                ready[0], ready[1]
            );
            serde_json::from_str::<VmStatistics>(&json).unwrap().waits()
        };
        assert_eq!(of([9.0, 9.5], ""), [], "no vCPU is above the limit, although their sum is");
        assert_eq!(of([0.0, 10.5], ""), [(Wait::Ready, 10.5)]);
        assert_eq!(of([10.0, 0.0], r#""throttled_percent": 0.0, "paged_percent": 5.0,"#), []);
        assert_eq!(
            of([11.0, 12.0], r#""throttled_percent": 0.1, "paged_percent": 60.0,"#),
            [(Wait::Paged, 60.0), (Wait::Ready, 12.0), (Wait::Throttled, 0.1)]
        );
        assert_eq!(Wait::Ready.guide(), "docs/guide/reasons.md#wait-ready");
    }
}
