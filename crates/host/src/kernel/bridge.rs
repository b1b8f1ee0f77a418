//! Ethernet addresses that a Linux bridge has learned at one of its ports (`/sys/class/net`).

use std::fs::{read, read_link, read_to_string};
use std::io;
use std::path::Path;

/// Bytes of an entry in `brforward` (`struct __fdb_entry` of <linux/if_bridge.h>).
const ENTRY: usize = 16;

/// Returns the addresses that the bridge of an interface has learned there; none if the interface
/// is in no bridge.
pub fn learned_addresses(interface: &str) -> io::Result<Vec<[u8; 6]>> {
    learned_below(Path::new("/sys/class/net"), interface)
}

fn learned_below(root: &Path, interface: &str) -> io::Result<Vec<[u8; 6]>> {
    let port = root.join(interface).join("brport");
    let number = match read_to_string(port.join("port_no")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        number => number?,
    };
    let number = number.trim().trim_start_matches("0x");
    let number = u16::from_str_radix(number, 16).map_err(io::Error::other)?;
    let bridge = read_link(port.join("bridge"))?;
    let bridge = bridge.file_name().ok_or(io::ErrorKind::InvalidData)?;
    let entries = read(root.join(bridge).join("brforward"))?;
    let of_port = |entry: &[u8]| {
        let [low, is_own, high] = [entry[6], entry[7], entry[12]];
        is_own == 0 && u16::from_le_bytes([low, high]) == number
    };
    let learned = entries.chunks_exact(ENTRY).filter(|entry| of_port(entry));
    Ok(learned.filter_map(|entry| entry.first_chunk().copied()).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn addresses_are_those_behind_the_port() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        create_dir_all(path("vnet0/brport")).unwrap();
        create_dir_all(path("vnet1")).unwrap();
        create_dir_all(path("br0")).unwrap();
        write(path("vnet0/brport/port_no"), "0x102\n").unwrap();
        symlink("../../br0", path("vnet0/brport/bridge")).unwrap();
        let entry = |last: u8, port: u16, is_own: u8| {
            let [low, high] = port.to_le_bytes();
            [2, 0, 0, 0, 0, last, low, is_own, 9, 0, 0, 0, high, 0, 0, 0]
        };
        let entries = [entry(1, 0x102, 0), entry(2, 2, 0), entry(3, 0x102, 1), entry(4, 0x102, 0)].concat();
        write(path("br0/brforward"), entries).unwrap();
        let learned = learned_below(root.path(), "vnet0").unwrap();
        assert_eq!(learned, [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 4]]);
        assert_eq!(learned_below(root.path(), "vnet1").unwrap(), Vec::<[u8; 6]>::new());
        assert_eq!(learned_below(root.path(), "absent").unwrap(), Vec::<[u8; 6]>::new());
    }
}
