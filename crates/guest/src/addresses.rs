//! Addresses that the host gives the guest's interfaces: words of the form `taut.ip=MAC,ADDRESS/PREFIX`.
//!
//! A directly booted guest finds them on its kernel command line, one that boots from its own disk in the machine's
//! firmware configuration (`fw_cfg`).

use std::fs;
use std::io;
use std::net::Ipv4Addr;

use crate::netlink::Netlink;
use crate::patience::eventually;

/// The words of a machine without a kernel command line from the host; there with the driver `qemu_fw_cfg`.
const FIRMWARE: &str = "/sys/firmware/qemu_fw_cfg/by_name/opt/org.taut/addresses/raw";

/// One `taut.ip=` argument.
#[derive(Debug, PartialEq, Eq)]
struct Assignment<'a> {
    mac: &'a str,
    address: Ipv4Addr,
    prefix: u8,
}

/// Brings up the loopback and every interface that the host names. What is wrong with one leaves the others alone.
pub(crate) fn configure() -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    netlink.set_up(1)?;
    let words =
        fs::read_to_string("/proc/cmdline")? + " " + &fs::read_to_string(FIRMWARE).unwrap_or_default();
    for argument in words.split_whitespace().filter_map(|word| word.strip_prefix("taut.ip=")) {
        let outcome = match parse(argument) {
            Some(wanted) => assign(&mut netlink, &wanted),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "not MAC,ADDRESS/PREFIX")),
        };
        if let Err(error) = outcome {
            eprintln!("taut guest: taut.ip={argument}: {error}");
        }
    }
    Ok(())
}

fn assign(netlink: &mut Netlink, wanted: &Assignment<'_>) -> io::Result<()> {
    let index = eventually(|| interface(wanted.mac), "the interface")?;
    netlink.add_address(index, wanted.address, wanted.prefix)?;
    netlink.set_up(index)
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
