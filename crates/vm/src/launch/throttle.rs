//! Limits of a disk (VN-14) by QEMU's throttling, at the start and on a running VM.

use serde_json::{Value, json};
use taut_api::machine::DiskLimits;

use super::disk::DISK;
use crate::qmp::{Qmp, QmpError};

/// ID of the group of limits that the disk belongs to.
pub(super) const GROUP: &str = "disk0-limits";

/// Returns the names and values of QEMU's limits. 0 means no limit.
fn values(limits: DiskLimits) -> [(&'static str, u64); 2] {
    let bandwidth = limits.bandwidth.map_or(0, |bandwidth| bandwidth.0);
    [("bps-total", bandwidth), ("iops-total", limits.iops.unwrap_or(0))]
}

/// Returns the option that makes the group. A disk without limits has one, too, so that it can get
/// limits while it runs.
pub(super) fn group(limits: DiskLimits) -> String {
    json!({ "qom-type": "throttle-group", "id": GROUP, "limits": object(limits) }).to_string()
}

/// Returns the limits as QEMU's group takes them.
fn object(limits: DiskLimits) -> Value {
    values(limits).into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

/// Sets the limits of a running VM's disk. A VM that version 0.1 started has no group: there the
/// limits are those of its drive.
///
/// # Errors
/// When QEMU does not answer or refuses the command.
pub fn set(qmp: &mut Qmp, limits: DiskLimits) -> Result<(), QmpError> {
    let path = format!("/objects/{GROUP}");
    let arguments = json!({ "path": path, "property": "limits", "value": object(limits) });
    match qmp.execute("qom-set", &arguments) {
        Err(error) if error.is_not_found() => set_of_drive(qmp, limits),
        done => done.map(drop),
    }
}

/// Sets the limits of a drive, as version 0.1 made it.
fn set_of_drive(qmp: &mut Qmp, limits: DiskLimits) -> Result<(), QmpError> {
    let [(_, bandwidth), (_, iops)] = values(limits);
    let arguments = json!({
        "device": DISK, "bps": bandwidth, "bps_rd": 0, "bps_wr": 0, "iops": iops, "iops_rd": 0, "iops_wr": 0,
    });
    qmp.execute("block_set_io_throttle", &arguments).map(drop)
}
