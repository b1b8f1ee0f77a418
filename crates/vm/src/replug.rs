//! Replaces the VMCI device of a running QEMU that lost its back end. QEMU's vhost-user-vsock never
//! connects again, but another device can be plugged into its slot. The guest's listening sockets
//! survive that; its connections do not.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::launch::MSIX_WORKS_FROM;
use crate::launch::vmci::{BUS, DRIVER, ID};
use crate::qmp::{Qmp, QmpError, connect_to};

/// Time limit of the connection to the device's back end, which listens on this host.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);

/// Result of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replug {
    /// The device is connected. Nothing was done.
    Connected,
    /// The guest has not released the device. The next call asks again.
    Held,
    /// Another device is plugged in and connected.
    Done,
}

/// Replaces the device unless it is connected. A server must listen at `socket` and answer, because
/// QEMU waits for it. The guest has `patience` to release the device.
///
/// # Errors
/// When the monitor does not answer or QEMU refuses a step. The next call continues with that step.
pub fn vmci(qmp: &mut Qmp, socket: &Path, patience: Duration) -> Result<Replug, QmpError> {
    if is_connected(qmp)? {
        return Ok(Replug::Connected);
    }
    if plugged(qmp)? && !unplug(qmp, patience)? {
        return Ok(Replug::Held);
    }
    if chardev(qmp)?.is_some() {
        qmp.execute("chardev-remove", &json!({ "id": ID }))?;
    }
    // QEMU cannot reach the socket's path.
    let connection = connect_to(socket, CONNECTED_WITHIN)?;
    qmp.hand(ID, connection.as_fd())?;
    let address = json!({ "type": "fd", "data": { "str": ID } });
    let backend = json!({ "type": "socket", "data": { "addr": address, "server": false } });
    qmp.execute("chardev-add", &json!({ "id": ID, "backend": backend }))?;
    let mut device = json!({ "driver": DRIVER, "id": ID, "chardev": ID, "bus": BUS });
    if lacks_msix(qmp)? {
        device["vectors"] = json!(0);
    }
    qmp.execute("device_add", &device)?;
    Ok(Replug::Done)
}

/// Tells whether the device is plugged in and its character device connected.
fn is_connected(qmp: &mut Qmp) -> Result<bool, QmpError> {
    let connected = chardev(qmp)?.is_some_and(|filename| !filename.starts_with("disconnected:"));
    Ok(connected && plugged(qmp)?)
}

/// QEMU's description of the character device; `None` when there is none.
fn chardev(qmp: &mut Qmp) -> Result<Option<String>, QmpError> {
    let all = qmp.execute("query-chardev", &Value::Null)?;
    let ours = all.as_array().into_iter().flatten().find(|chardev| chardev["label"] == ID);
    Ok(ours.map(|chardev| chardev["filename"].as_str().unwrap_or_default().to_owned()))
}

fn plugged(qmp: &mut Qmp) -> Result<bool, QmpError> {
    let devices = qmp.execute("qom-list", &json!({ "path": "/machine/peripheral" }))?;
    Ok(devices.as_array().into_iter().flatten().any(|device| device["name"] == ID))
}

/// Tells whether the device of this QEMU was started without MSI-X, as [`crate::launch`] does for
/// older versions.
fn lacks_msix(qmp: &mut Qmp) -> Result<bool, QmpError> {
    let version = qmp.execute("query-version", &Value::Null)?;
    let emulated = qmp.execute("query-kvm", &Value::Null)?["enabled"] == false;
    Ok(emulated && version["qemu"]["major"].as_u64().is_some_and(|major| major < MSIX_WORKS_FROM))
}

/// Unplugs the device. Returns whether the guest has released it.
fn unplug(qmp: &mut Qmp, patience: Duration) -> Result<bool, QmpError> {
    match qmp.execute("device_del", &json!({ "id": ID })) {
        // Refused when an earlier request is still pending.
        Ok(_) | Err(QmpError::Refused { .. }) => {}
        Err(error) => return Err(error),
    }
    qmp.wait_for(|event| event.name == "DEVICE_DELETED" && event.data["device"] == ID, patience)
}

#[cfg(test)]
mod tests;
