//! The command line of a microguest.

use std::fmt::Write as _;
use std::process::Command;

use super::Launch;

pub(super) fn command(launch: &Launch<'_>) -> Command {
    let Launch { name, spec, paths, libexec, .. } = *launch;
    let mut command = Command::new(libexec.join("taut-micro"));
    command.arg("--name").arg(name.as_str());
    command.arg("--agent-socket").arg(paths.agent());
    command.arg("--memory").arg(spec.memory.0.to_string());
    for (index, nic) in spec.nics.iter().enumerate() {
        let mut value = format!("socket={}", paths.nic(index).display());
        if let Some(mac) = nic.mac {
            let _ = write!(value, ",mac={mac}");
        }
        if let Some(ip) = nic.ip {
            let _ = write!(value, ",ip={ip}");
        }
        if let Some(gateway) = nic.gateway {
            let _ = write!(value, ",gateway={gateway}");
        }
        let offloads = if nic.offloads { "on" } else { "off" };
        let _ = write!(value, ",rx={},tx={},offloads={offloads}", nic.rings.rx, nic.rings.tx);
        if nic.rings.packed {
            value.push_str(",packed=on");
        }
        command.arg("--nic").arg(value);
    }
    if spec.vmci.is_some() {
        command.arg("--vmci").arg(format!("socket={}", paths.vmci_front().display()));
    }
    command
}
