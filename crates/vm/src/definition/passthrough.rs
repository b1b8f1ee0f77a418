//! Checks of a VM file's pass-through devices (LS-8).

use std::collections::BTreeSet;

use taut_api::ApiError;
use taut_api::passthrough::PassthroughSpec;
use taut_api::vm::{VmKind, VmSpec};

use crate::error::invalid;

/// Most devices: there is room for this many root ports.
const MOST: usize = 8;

/// Checks the tables. Whether the host has the devices is not checked here.
pub(super) fn check(spec: &VmSpec) -> Result<(), ApiError> {
    if spec.kind == VmKind::Micro && !spec.passthrough.is_empty() {
        return Err(invalid(
            format!(
                "a micro VM supports only virtio cards, but has {} [[passthrough]] devices",
                spec.passthrough.len()
            ),
            "remove [[passthrough]], or use kind = \"qemu\"",
        ));
    }
    if spec.passthrough.len() > MOST {
        return Err(invalid(
            format!("the VM has {} [[passthrough]] devices, more than {MOST}", spec.passthrough.len()),
            "remove some of them",
        ));
    }
    let mut seen = BTreeSet::new();
    for device in &spec.passthrough {
        if !seen.insert(device.address) {
            return Err(invalid(
                format!("passthrough: {} is listed twice", device.address),
                "remove one of the two tables; each virtual function has its own address",
            ));
        }
        bypasses(device)?;
    }
    memory(spec)
}

/// Refuses settings that need a vSwitch: frames of such a device bypass every vSwitch.
fn bypasses(device: &PassthroughSpec) -> Result<(), ApiError> {
    let address = device.address;
    if let Some(shaping) = &device.shaping {
        let shapes = [("to_switch", shaping.to_switch), ("to_guest", shaping.to_guest)];
        let rates: Vec<_> =
            shapes.into_iter().filter_map(|(way, shape)| Some(format!("{way} {}", shape?.average))).collect();
        return Err(invalid(
            format!(
                "passthrough: {address} cannot be shaped ({}): its frames bypass the vSwitch, and with it shaping and \
                 network I/O control",
                rates.join(", ")
            ),
            "limit the virtual function in the card (ip link set PF vf N max_tx_rate MBIT), or use a [[nic]] on a port group",
        ));
    }
    if let Some(portgroup) = &device.portgroup {
        return Err(invalid(
            format!(
                "passthrough: {address} cannot be on the port group `{portgroup}`: its frames bypass the vSwitch, and with \
                 it the VLAN, security policy, shaping and network I/O control of a port group"
            ),
            "set the VLAN in the card (ip link set PF vf N vlan ID), or use a [[nic]] on the port group",
        ));
    }
    Ok(())
}

/// Requires a full memory reservation. The device accesses guest memory directly, so pages must not
/// move.
pub(super) fn memory(spec: &VmSpec) -> Result<(), ApiError> {
    let reserved = spec.memory_reservation.of(spec.memory);
    match spec.passthrough.first() {
        Some(device) if reserved < spec.memory => Err(invalid(
            format!(
                "passthrough: {} accesses the VM's memory directly, so all of it must be reserved; {reserved} of {} are reserved, {} are missing",
                device.address,
                spec.memory,
                taut_api::Bytes(spec.memory.0 - reserved.0)
            ),
            "set memory_reservation = \"full\"",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(more: &str, table: &str) -> String {
        let text = format!("{more}[[passthrough]]\naddress = \"3b:00.1\"\n{table}");
        let spec = match super::super::file::read(&text) {
            Ok(parsed) => parsed.spec,
            Err(error) => return error.to_string(),
        };
        check(&spec).map_or_else(|error| error.to_string(), |()| "possible".to_owned())
    }

    #[test]
    fn impossible_devices_are_refused() {
        let full = "memory = \"512MiB\"\nmemory_reservation = \"full\"\n";
        let all = [
            said("memory = \"512MiB\"\nmemory_reservation = \"128MiB\"\n", ""),
            said(full, "shaping = { to_guest = { average = \"100 Mbps\" } }\n"),
            said(full, "portgroup = \"lan\"\n"),
            said(full, "[[passthrough]]\naddress = \"0000:3b:00.1\"\n"),
            said("kind = \"micro\"\n", ""),
            said(full, "vlan = 7\n"),
            said(full, "[[passthrough]]\naddress = \"3b\"\n"),
            said(full, ""),
        ];
        insta::assert_snapshot!(all.join("\n"));
    }
}
