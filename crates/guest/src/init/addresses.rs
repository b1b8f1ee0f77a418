//! Addresses that the host gives the guest's interfaces: `taut.ip=MAC,ADDRESS/PREFIX` on the kernel command line.

use std::fs;
use std::io;
use std::net::Ipv4Addr;

use super::eventually;
use super::netlink::Netlink;

/// One `taut.ip=` argument.
#[derive(Debug, PartialEq, Eq)]
struct Assignment<'a> {
    mac: &'a str,
    address: Ipv4Addr,
    prefix: u8,
}

/// Brings up the loopback and every interface that the command line names.
pub(super) fn configure() -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    netlink.set_up(1)?;
    let cmdline = fs::read_to_string("/proc/cmdline")?;
    for argument in cmdline.split_whitespace().filter_map(|word| word.strip_prefix("taut.ip=")) {
        let Some(wanted) = parse(argument) else {
            println!("taut guest: taut.ip={argument} is not MAC,ADDRESS/PREFIX");
            continue;
        };
        let index = eventually(|| interface(wanted.mac), wanted.mac)?;
        netlink.add_address(index, wanted.address, wanted.prefix)?;
        netlink.set_up(index)?;
    }
    Ok(())
}

fn parse(argument: &str) -> Option<Assignment<'_>> {
    let (mac, rest) = argument.split_once(',')?;
    let (address, prefix) = rest.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| (1..=32).contains(prefix))?;
    Some(Assignment { mac, address: address.parse().ok()?, prefix })
}

/// The number of the interface with this address.
fn interface(mac: &str) -> io::Result<Option<u32>> {
    for interface in fs::read_dir("/sys/class/net")? {
        let folder = interface?.path();
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        if read("address").trim().eq_ignore_ascii_case(mac) {
            return Ok(read("ifindex").trim().parse().ok());
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_name_interface_address_and_prefix() {
        let wanted = Assignment { mac: "02:11:00:00:00:01", address: Ipv4Addr::new(10, 0, 0, 1), prefix: 24 };
        assert_eq!(parse("02:11:00:00:00:01,10.0.0.1/24"), Some(wanted));
        for bad in ["", "02:11:00:00:00:01", "a,10.0.0.1", "a,10.0.0.1/33", "a,10.0.0/24", "a,/"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
