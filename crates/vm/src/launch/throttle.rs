//! Limits of a disk (VN-14) by QEMU's throttling, at the start and on a running VM.

use std::fmt::Write as _;

use serde_json::json;
use taut_api::machine::DiskLimits;

use super::qemu::DISK;
use crate::qmp::{Qmp, QmpError};

/// The limits as options of a drive; empty without limits.
pub(super) fn options(limits: DiskLimits) -> String {
    let mut text = String::new();
    for (option, value) in
        [("bps-total", limits.bandwidth.map(|bandwidth| bandwidth.0)), ("iops-total", limits.iops)]
    {
        if let Some(value) = value {
            let _ = write!(text, ",throttling.{option}={value}");
        }
    }
    text
}

/// Sets the limits of a running VM's disk.
///
/// # Errors
/// When QEMU does not answer or refuses the command.
pub fn set(qmp: &mut Qmp, limits: DiskLimits) -> Result<(), QmpError> {
    let arguments = json!({
        "device": DISK,
        "bps": limits.bandwidth.map_or(0, |bandwidth| bandwidth.0), "bps_rd": 0, "bps_wr": 0,
        "iops": limits.iops.unwrap_or(0), "iops_rd": 0, "iops_wr": 0,
    });
    qmp.execute("block_set_io_throttle", &arguments).map(drop)
}
