//! Weights of VMs' disks: the files that a kernel has for them, and whether anything goes by them.
//!
//! A weight counts on a device that somebody schedules by weights: BFQ, or the kernel's cost model (`io.cost.qos`).

use std::fs;
use std::path::Path;

use super::Controller;
use super::controller::Version;

/// For the cost model.
pub(super) const IO: &str = "io.weight";
/// For BFQ, in cgroup v2.
pub(super) const BFQ: &str = "io.bfq.weight";
/// For BFQ, in cgroup v1.
pub(super) const BFQ_V1: &str = "blkio.bfq.weight";

/// Why weights in this group count for nothing, if so: the file that is missing, or that no device goes by it.
pub(super) fn weightless(root: &Path, controller: &Controller, dir: &Path) -> Option<String> {
    let files: &[&str] = if controller.version() == Version::V1 { &[BFQ_V1] } else { &[IO, BFQ] };
    let found: Vec<&str> = files.iter().copied().filter(|file| dir.join(file).exists()).collect();
    if found.is_empty() {
        return Some(format!(
            "its disk shares: this kernel has no {} in {}, where they would be set; hint: limit the neighbours' disks instead, `taut vm set NAME \
             --disk-bandwidth`",
            files.join(" and no "),
            dir.display()
        ));
    }
    let by_cost = found.contains(&IO) && has_cost_model(&controller.base);
    let by_bfq = found.iter().any(|file| *file != IO) && has_bfq(root);
    if by_cost || by_bfq {
        return None;
    }
    Some(format!(
        "its disk shares are set ({}) and count for nothing: no block device of this host has the scheduler bfq; hint: echo bfq > \
         /sys/block/DEVICE/queue/scheduler",
        found.join(", ")
    ))
}

/// Is there a device that the cost model was switched on for? The file is in the topmost group only.
fn has_cost_model(base: &Path) -> bool {
    base.ancestors().any(|dir| {
        let text = fs::read_to_string(dir.join("io.cost.qos")).unwrap_or_default();
        text.lines().any(|line| line.split_whitespace().any(|word| word == "enable=1"))
    })
}

/// Is there a device that BFQ schedules?
fn has_bfq(root: &Path) -> bool {
    let devices = fs::read_dir(root.join("sys/block")).into_iter().flatten().flatten();
    let mut schedulers =
        devices.filter_map(|device| fs::read_to_string(device.path().join("queue/scheduler")).ok());
    schedulers.any(|text| text.contains("[bfq]"))
}
