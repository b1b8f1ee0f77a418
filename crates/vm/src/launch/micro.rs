//! The command line of a microguest.

use std::fmt::Write as _;

use super::inherit::{Inherited, Source};
use super::{Launch, Start};

pub(super) fn start(launch: &Launch<'_>) -> Start {
    let Launch { name, spec, paths, libexec, .. } = *launch;
    let mut inherited = Inherited::default();
    let mut args = vec!["--name".to_owned(), name.to_string()];
    let agent = inherited.add(Source::Listener(paths.agent()));
    args.extend(["--agent-socket".to_owned(), format!("fd:{agent}")]);
    args.extend(["--memory".to_owned(), spec.memory.0.to_string()]);
    for (index, nic) in spec.nics.iter().enumerate() {
        let mut value = format!("socket=fd:{}", inherited.add(Source::Listener(paths.nic(index))));
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
        if let Some(mtu) = launch.mtus.get(&index) {
            let _ = write!(value, ",mtu={mtu}");
        }
        if nic.rings.packed {
            value.push_str(",packed=on");
        }
        args.extend(["--nic".to_owned(), value]);
    }
    if spec.vmci.is_some() {
        let number = inherited.add(Source::Listener(paths.vmci_front()));
        args.extend(["--vmci".to_owned(), format!("socket=fd:{number}")]);
    }
    Start { program: libexec.join("taut-micro"), args, sources: inherited.into_sources() }
}
