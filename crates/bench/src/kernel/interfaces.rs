//! Network interfaces of this machine or namespace.

use std::fs;
use std::io;
use std::path::Path;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};

use super::netlink::Netlink;
use crate::agent::protocol::{Configure, Interface, IpNet};

const FOLDER: &str = "/sys/class/net";
/// The kernel's number of the loopback in every namespace.
const LOOPBACK: u32 = 1;

/// Every interface but the loopback, by name.
pub fn list() -> io::Result<Vec<Interface>> {
    let addresses: Vec<_> = getifaddrs()?.filter_map(|address| address_of(&address)).collect();
    let mut interfaces = Vec::new();
    for entry in fs::read_dir(FOLDER)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Some drivers put files beside the interfaces.
        if !entry.path().is_dir() || number(&entry.path()) == Some(LOOPBACK) {
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

/// Gives the interface with this Ethernet address its IP address and sets it up; none if there is no such interface.
pub fn configure(wanted: &Configure) -> io::Result<Option<()>> {
    for entry in fs::read_dir(FOLDER)? {
        let folder = entry?.path();
        if !read(&folder, "address").eq_ignore_ascii_case(&wanted.mac) {
            continue;
        }
        if let Some(index) = number(&folder) {
            let mut netlink = Netlink::open()?;
            netlink.add_address(index, wanted.ip.addr, wanted.ip.prefix)?;
            return netlink.set_up(index).map(Some);
        }
    }
    Ok(None)
}

/// Sets the loopback up.
pub fn set_loopback_up() -> io::Result<()> {
    Netlink::open()?.set_up(LOOPBACK)
}

fn address_of(address: &InterfaceAddress) -> Option<(String, IpNet)> {
    let addr = address.address?.as_sockaddr_in()?.ip();
    let mask = address.netmask?.as_sockaddr_in()?.ip();
    let prefix = mask.to_bits().leading_ones() as u8;
    Some((address.interface_name.clone(), IpNet { addr, prefix }))
}

fn number(folder: &Path) -> Option<u32> {
    read(folder, "ifindex").parse().ok()
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_default().trim().to_owned()
}
