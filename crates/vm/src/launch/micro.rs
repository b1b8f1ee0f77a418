//! The microguest's command line.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use taut_api::Name;
use taut_api::vm::VmSpec;

use super::RunPaths;

pub(super) fn command(name: &Name, spec: &VmSpec, paths: &RunPaths, libexec: &Path) -> Command {
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
