//! Devices of the host: what a VM file may say of them (SPEC LS-8).

use std::collections::BTreeSet;

use taut_api::ApiError;
use taut_api::passthrough::PassthroughSpec;
use taut_api::vm::{VmKind, VmSpec};

use crate::error::invalid;

/// Root ports that there is room for.
const MOST: usize = 8;

/// Checks the tables in themselves; what the host has is another matter.
pub(super) fn check(spec: &VmSpec) -> Result<(), ApiError> {
    if spec.kind == VmKind::Micro && !spec.passthrough.is_empty() {
        return Err(invalid(
            format!(
                "a micro VM drives virtio cards only, and {} devices are to be handed to it",
                spec.passthrough.len()
            ),
            "remove [[passthrough]], or use kind = \"qemu\"",
        ));
    }
    if spec.passthrough.len() > MOST {
        return Err(invalid(
            format!("the VM has {} [[passthrough]] devices, more than {MOST}", spec.passthrough.len()),
            "remove some",
        ));
    }
    let mut seen = BTreeSet::new();
    for device in &spec.passthrough {
        if !seen.insert(device.address) {
            return Err(invalid(
                format!("passthrough: {} is there twice", device.address),
                "a device can be handed over once; virtual functions have addresses of their own",
            ));
        }
        bypasses(device)?;
    }
    memory(spec)
}

/// Frames of such a device go by every vSwitch.
fn bypasses(device: &PassthroughSpec) -> Result<(), ApiError> {
    let address = device.address;
    if let Some(shaping) = &device.shaping {
        let shapes = [("to_switch", shaping.to_switch), ("to_guest", shaping.to_guest)];
        let rates: Vec<_> =
            shapes.into_iter().filter_map(|(way, shape)| Some(format!("{way} {}", shape?.average))).collect();
        return Err(invalid(
            format!(
                "passthrough: {address} cannot be shaped ({}): its frames go from the card into the guest, and neither shaping nor \
                 network I/O control sees them",
                rates.join(", ")
            ),
            "limit the virtual function in the card (ip link set PF vf N max_tx_rate MBIT), or give the VM a [[nic]] on a port group",
        ));
    }
    if let Some(portgroup) = &device.portgroup {
        return Err(invalid(
            format!(
                "passthrough: {address} cannot be on the port group `{portgroup}`: no vSwitch is between the card and the guest, so VLAN, \
                 security policy, shaping and network I/O control of a port group do not hold for it"
            ),
            "set the VLAN in the card (ip link set PF vf N vlan ID), or give the VM a [[nic]] on the port group",
        ));
    }
    Ok(())
}

/// The device writes into the guest's memory by itself: every page has to stay where it is.
pub(super) fn memory(spec: &VmSpec) -> Result<(), ApiError> {
    let reserved = spec.memory_reservation.of(spec.memory);
    match spec.passthrough.first() {
        Some(device) if reserved < spec.memory => Err(invalid(
            format!(
                "passthrough: {} writes into the VM's memory by itself, which takes all of it reserved: {reserved} of {} are, {} are missing",
                device.address,
                spec.memory,
                taut_api::Bytes(spec.memory.0 - reserved.0)
            ),
            "memory_reservation = \"full\"",
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
    fn refusals() {
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
