//! Network interfaces of this machine or network namespace, as the agent reports them.

use std::fs;
use std::io;
use std::path::Path;

use ipnet::Ipv4Net;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};

use crate::agent::protocol::Interface;

const FOLDER: &str = "/sys/class/net";
/// The kernel's number of the loopback interface in every network namespace.
const LOOPBACK: &str = "1";

/// Lists every interface except the loopback, sorted by name.
pub(super) fn list() -> io::Result<Vec<Interface>> {
    let addresses: Vec<_> = getifaddrs()?.filter_map(|address| address_of(&address)).collect();
    let mut interfaces = Vec::new();
    for entry in fs::read_dir(FOLDER)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Some drivers put files beside the interfaces.
        if !entry.path().is_dir() || read(&entry.path(), "ifindex") == LOOPBACK {
            continue;
        }
        let ips = addresses.iter().filter(|(of, _)| *of == name).map(|(_, ip)| *ip).collect();
        interfaces.push(Interface {
            ips,
            mac: read(&entry.path(), "address"),
            // Reading fails while the interface is down.
            carrier: read(&entry.path(), "carrier") == "1",
            carrier_changes: read(&entry.path(), "carrier_changes").parse().unwrap_or(0),
            name,
        });
    }
    interfaces.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(interfaces)
}

fn address_of(address: &InterfaceAddress) -> Option<(String, Ipv4Net)> {
    let addr = address.address?.as_sockaddr_in()?.ip();
    let mask = address.netmask?.as_sockaddr_in()?.ip();
    Some((address.interface_name.clone(), Ipv4Net::with_netmask(addr, mask).ok()?))
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_default().trim().to_owned()
}
