//! Addresses that the host gives the guest's interfaces: words of the form `taut.ip=MAC,ADDRESS/PREFIX`.
//!
//! A directly booted guest finds them on its kernel command line, one that boots from its own disk in the machine's
//! firmware configuration (`fw_cfg`).

use std::fs;
use std::io;

use taut_bench::agent::protocol::Configure;
use taut_bench::kernel::interfaces;

use crate::patience::eventually;

/// The words of a machine without a kernel command line from the host; there with the driver `qemu_fw_cfg`.
const FIRMWARE: &str = "/sys/firmware/qemu_fw_cfg/by_name/opt/org.taut/addresses/raw";

/// Brings up the loopback and every interface that the host names. What is wrong with one leaves the others alone.
pub(crate) fn configure() -> io::Result<()> {
    interfaces::set_loopback_up()?;
    let words =
        fs::read_to_string("/proc/cmdline")? + " " + &fs::read_to_string(FIRMWARE).unwrap_or_default();
    for argument in words.split_whitespace().filter_map(|word| word.strip_prefix("taut.ip=")) {
        let outcome = match parse(argument) {
            Some(wanted) => eventually(|| interfaces::configure(&wanted), "the interface"),
            None => Err(io::Error::new(io::ErrorKind::InvalidInput, "not MAC,ADDRESS/PREFIX")),
        };
        if let Err(error) = outcome {
            eprintln!("taut guest: taut.ip={argument}: {error}");
        }
    }
    Ok(())
}

fn parse(argument: &str) -> Option<Configure> {
    let (mac, ip) = argument.split_once(',')?;
    Some(Configure { mac: mac.to_owned(), ip: ip.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use taut_bench::agent::protocol::IpNet;

    use super::*;

    #[test]
    fn assignments_name_interface_address_and_prefix() {
        let ip = IpNet { addr: Ipv4Addr::new(10, 0, 0, 1), prefix: 24 };
        let wanted = Configure { mac: "02:11:00:00:00:01".to_owned(), ip };
        assert_eq!(parse("02:11:00:00:00:01,10.0.0.1/24"), Some(wanted));
        for bad in ["", "02:11:00:00:00:01", "a,10.0.0.1", "a,10.0.0.1/33", "a,10.0.0/24", "a,/"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
