//! IP addresses of the guest's interfaces and its default route, as the host chooses them.
//!
//! The host passes words of the form `taut.ip=MAC,ADDRESS/PREFIX` and `taut.gateway=ADDRESS`. A
//! directly booted guest finds them on its kernel command line, one that boots from its own disk in
//! the firmware configuration (`fw_cfg`).

use std::fs;
use std::io;
use std::net::Ipv4Addr;

use taut_bench::agent::protocol::Configure;
use taut_host::kernel::netlink::Links;

use crate::patience::eventually;

/// Words of a machine whose kernel command line is its own. Readable with the driver `qemu_fw_cfg`.
const FIRMWARE: &str = "/sys/firmware/qemu_fw_cfg/by_name/opt/org.taut/addresses/raw";
/// Advice for a word that cannot be obeyed.
const CHECK_CARDS: &str =
    "hint: compare `mac`, `ip` and `gateway` of the VM's cards on the host: taut vm show NAME";
const INTERFACES: &str = "/sys/class/net";

/// Sets up the loopback and every interface that the host names. A word that cannot be obeyed is
/// reported and does not affect the others.
pub(crate) fn configure() -> io::Result<()> {
    Links::open().and_then(|mut links| links.set_up(Links::LOOPBACK)).map_err(|error| {
        let told = format!("the loopback interface cannot be set up: {error}\nhint: run taut-guest as root");
        io::Error::new(error.kind(), told)
    })?;
    let words =
        fs::read_to_string("/proc/cmdline")? + " " + &fs::read_to_string(FIRMWARE).unwrap_or_default();
    for argument in words.split_whitespace().filter_map(|word| word.strip_prefix("taut.ip=")) {
        let outcome = match parse(argument) {
            Some(wanted) => eventually(|| Ok(set(&wanted)?.then_some(())), "the interface"),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "not MAC,ADDRESS/PREFIX")),
        };
        if let Err(error) = outcome {
            eprintln!("taut guest: taut.ip={argument}: {error}\n{CHECK_CARDS}");
        }
    }
    // The gateway is reached through one of the addresses.
    for argument in words.split_whitespace().filter_map(|word| word.strip_prefix("taut.gateway=")) {
        let gateway = argument.parse::<Ipv4Addr>().map_err(io::Error::other);
        if let Err(error) = gateway.and_then(|gateway| Links::open()?.set_gateway(gateway)) {
            eprintln!("taut guest: taut.gateway={argument}: {error}\n{CHECK_CARDS}");
        }
    }
    Ok(())
}

/// Gives the interface with this MAC address its IP address and sets it up. Returns false if there
/// is no such interface.
pub(crate) fn set(wanted: &Configure) -> io::Result<bool> {
    for entry in fs::read_dir(INTERFACES)? {
        let folder = entry?.path();
        let read = |name| fs::read_to_string(folder.join(name)).unwrap_or_default();
        if !read("address").trim().eq_ignore_ascii_case(&wanted.mac) {
            continue;
        }
        if let Ok(index) = read("ifindex").trim().parse() {
            let mut links = Links::open()?;
            links.set_ip(index, wanted.ip)?;
            links.set_up(index)?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn parse(argument: &str) -> Option<Configure> {
    let (mac, ip) = argument.split_once(',')?;
    Some(Configure { mac: mac.to_owned(), ip: ip.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_name_interface_address_and_prefix() {
        let ip = "10.0.0.1/24".parse().unwrap();
        let wanted = Configure { mac: "02:11:00:00:00:01".to_owned(), ip };
        assert_eq!(parse("02:11:00:00:00:01,10.0.0.1/24"), Some(wanted));
        for bad in ["", "02:11:00:00:00:01", "a,10.0.0.1", "a,10.0.0.1/33", "a,10.0.0/24", "a,/"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
