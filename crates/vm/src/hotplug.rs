//! Adds memory for queue pairs to a running QEMU that was started with room for it.
//!
//! QEMU gets the memory file by its monitor and opens it again, as it does with an inherited one at
//! its start. It keeps a descriptor of its own from then on, so the handed one is closed. Programs
//! in the guest may have the memory mapped at any time, so it is never removed.

use std::os::fd::BorrowedFd;

use serde_json::{Value, json};
use taut_api::Bytes;

use crate::launch::queue_pairs::{DEVICE, MEMORY};
use crate::launch::{MemoryTuning, Tuning};
use crate::qmp::{Qmp, QmpError};

/// State of the device in QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugged {
    /// It is there.
    There,
    /// It is not there, and nothing is left of an earlier attempt.
    Absent,
}

/// Adds a device with this memory file of `size` bytes. `tuning` is that of the VM's start.
///
/// # Errors
/// When the monitor does not answer, or QEMU refuses a step. After a refusal QEMU is as before;
/// after any other error, [`settle`] finds out what was done.
pub fn queue_pairs(
    qmp: &mut Qmp,
    file: BorrowedFd<'_>,
    size: Bytes,
    tuning: &Tuning,
) -> Result<(), QmpError> {
    let handed = qmp.add_descriptor(MEMORY, file)?;
    let added = qmp.execute("object-add", &memory(handed, size, tuning)).and_then(|_| {
        let device = json!({ "driver": "nvdimm", "id": DEVICE, "memdev": MEMORY });
        qmp.execute("device_add", &device).or_else(|error| {
            if matches!(error, QmpError::Refused { .. }) {
                qmp.execute("object-del", &json!({ "id": MEMORY }))?;
            }
            Err(error)
        })
    });
    // QEMU has its own descriptor now, or needs none. If it keeps this one as well, that is no
    // reason to take the device for absent.
    let _ = close_handed(qmp);
    added.map(drop)
}

/// Finds out whether an earlier call of [`queue_pairs`] has added the device, and removes what it
/// has left otherwise.
///
/// # Errors
/// When the monitor does not answer, or QEMU refuses a step.
pub fn settle(qmp: &mut Qmp) -> Result<Plugged, QmpError> {
    close_handed(qmp)?;
    if has(qmp, "/machine/peripheral", DEVICE)? {
        return Ok(Plugged::There);
    }
    if has(qmp, "/objects", MEMORY)? {
        qmp.execute("object-del", &json!({ "id": MEMORY }))?;
    }
    Ok(Plugged::Absent)
}

/// The memory in QEMU's terms, as [`crate::launch`] describes it at a start.
fn memory(handed: i64, size: Bytes, tuning: &Tuning) -> Value {
    let mut memory = json!({
        "qom-type": "memory-backend-file", "id": MEMORY, "mem-path": format!("/proc/self/fd/{handed}"),
        "size": size.0, "share": true, "dump": false,
    });
    if tuning.locked {
        memory["prealloc"] = json!(true);
    }
    let MemoryTuning { host_nodes: [nodes, ..], .. } = tuning.memory;
    if nodes != 0 {
        memory["host-nodes"] = (0..64).filter(|node| nodes >> node & 1 == 1).collect();
        memory["policy"] = json!("bind");
    }
    memory
}

/// Closes the descriptors in QEMU that were handed for the memory.
fn close_handed(qmp: &mut Qmp) -> Result<(), QmpError> {
    let sets = qmp.execute("query-fdsets", &Value::Null)?;
    for set in sets.as_array().into_iter().flatten() {
        let fds = set["fds"].as_array().into_iter().flatten();
        for fd in fds.filter(|fd| fd["opaque"] == MEMORY) {
            qmp.execute("remove-fd", &json!({ "fdset-id": set["fdset-id"], "fd": fd["fd"] }))?;
        }
    }
    Ok(())
}

/// Returns whether QEMU has this object in that folder.
fn has(qmp: &mut Qmp, folder: &str, name: &str) -> Result<bool, QmpError> {
    let objects = qmp.execute("qom-list", &json!({ "path": folder }))?;
    Ok(objects.as_array().into_iter().flatten().any(|object| object["name"] == name))
}

#[cfg(test)]
mod tests;
