//! Adds memory for queue pairs to a running QEMU that was started with room for it.
//!
//! QEMU gets the memory file by its monitor and opens it again, as it does with an inherited one at
//! its start. It keeps a descriptor of its own from then on, so the handed one is closed. Programs
//! in the guest may have the memory mapped at any time, so it is never removed.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use serde_json::{Value, json};
use taut_api::Bytes;

use crate::launch::queue_pairs::{DEVICE, MEMORY};
use crate::launch::{MemoryTuning, Tuning};
use crate::qmp::{Qmp, QmpError};

/// Maximum time that QEMU may take to accept the memory. It allocates 1 GiB at once if the VM's
/// memory is locked.
const ALLOCATION: Duration = Duration::from_secs(20);

/// State of the device in QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugged {
    /// QEMU has the device.
    There,
    /// QEMU does not have the device, and nothing is left of an earlier attempt.
    Absent,
}

/// Reason why memory was not added.
#[derive(Debug, thiserror::Error)]
pub enum PlugError {
    /// QEMU refused the memory, and is as before. It may accept it later.
    #[error(transparent)]
    NoMemory(QmpError),
    /// QEMU refused the device, and is as before. It refuses every later one.
    #[error(transparent)]
    NoDevice(QmpError),
    /// The result is not known: [`settle`] finds out.
    #[error(transparent)]
    Unclear(QmpError),
}

/// Adds a device with this memory file of `size` bytes. `tuning` is that of the VM's start.
///
/// # Errors
/// When the monitor does not answer, or QEMU refuses a step.
pub fn queue_pairs(
    qmp: &mut Qmp,
    file: BorrowedFd<'_>,
    size: Bytes,
    tuning: &Tuning,
) -> Result<(), PlugError> {
    let handed = qmp.add_descriptor(MEMORY, file).map_err(refused_as(PlugError::NoMemory))?;
    let added = add(qmp, &memory(handed, size, tuning));
    if !matches!(added, Err(PlugError::Unclear(_))) {
        // QEMU has its own descriptor now, or needs none. As long as it keeps this one as well,
        // nobody can tell them apart.
        close_handed(qmp).map_err(PlugError::Unclear)?;
    }
    added
}

/// Adds this memory and the device. A refusal leaves nothing of them.
fn add(qmp: &mut Qmp, memory: &Value) -> Result<(), PlugError> {
    qmp.execute_within(ALLOCATION, "object-add", memory).map_err(refused_as(PlugError::NoMemory))?;
    let device = json!({ "driver": "nvdimm", "id": DEVICE, "memdev": MEMORY });
    let Err(error) = qmp.execute("device_add", &device).map_err(refused_as(PlugError::NoDevice)) else {
        return Ok(());
    };
    if matches!(error, PlugError::NoDevice(_)) {
        qmp.execute("object-del", &json!({ "id": MEMORY })).map_err(PlugError::Unclear)?;
    }
    Err(error)
}

/// Returns what an error of a step means if `refused` is what QEMU's refusal means.
fn refused_as(refused: fn(QmpError) -> PlugError) -> impl Fn(QmpError) -> PlugError {
    move |error| match error {
        QmpError::Refused { .. } => refused(error),
        QmpError::Io(_) | QmpError::Protocol(_) => PlugError::Unclear(error),
    }
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
        memory["policy"] = json!("preferred");
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
