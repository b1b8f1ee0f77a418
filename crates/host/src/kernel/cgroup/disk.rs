//! Weights of VMs' disks: the files that hold them, and whether any block device honours them.
//!
//! A weight has an effect on a device that the scheduler BFQ or the kernel's cost model
//! (`io.cost.qos`) schedules.

use std::fs;
use std::path::Path;

use taut_api::enforcement::Hierarchy;

use super::controller::Controller;

/// Weight for the cost model.
pub(super) const IO: &str = "io.weight";
/// Weight for BFQ in cgroup v2.
pub(super) const BFQ: &str = "io.bfq.weight";
/// Weight for BFQ in cgroup v1.
pub(super) const BFQ_V1: &str = "blkio.bfq.weight";

/// Returns why the weights of this group have no effect: the kernel has no such file, or no device
/// honours it. `None` if they have one.
pub(crate) fn weightless(root: &Path, controller: &Controller, dir: &Path) -> Option<String> {
    let files: &[&str] = if controller.version() == Hierarchy::V1 { &[BFQ_V1] } else { &[IO, BFQ] };
    let found: Vec<&str> = files.iter().copied().filter(|file| dir.join(file).exists()).collect();
    if found.is_empty() {
        return Some(format!(
            "its disk shares have no effect: this kernel has no {} in {}; hint: limit the neighbours' disks \
             instead, `taut vm set NAME --disk-bandwidth`",
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
        "its disk shares are set ({}) and have no effect: no block device of this host has the scheduler \
         bfq; hint: echo bfq > /sys/block/DEVICE/queue/scheduler",
        found.join(", ")
    ))
}

/// Returns whether the cost model is enabled for a device. Only the root group has the file.
fn has_cost_model(base: &Path) -> bool {
    base.ancestors().any(|dir| {
        let text = fs::read_to_string(dir.join("io.cost.qos")).unwrap_or_default();
        text.lines().any(|line| line.split_whitespace().any(|word| word == "enable=1"))
    })
}

/// Returns whether BFQ schedules a device.
fn has_bfq(root: &Path) -> bool {
    let devices = fs::read_dir(root.join("sys/block")).into_iter().flatten().flatten();
    let mut schedulers =
        devices.filter_map(|device| fs::read_to_string(device.path().join("queue/scheduler")).ok());
    schedulers.any(|text| text.contains("[bfq]"))
}
