//! Reading devices of the fake host.

use std::os::unix::fs::symlink;

use super::fixture::{BRIDGE, NVME, OTHER, PORT, VF, machine, write};
use super::*;

fn at(root: &Path, address: &str) -> PciDevice {
    device(root, address.parse().unwrap()).unwrap()
}

#[test]
fn a_device_is_read_with_its_group_and_uses() {
    let dir = machine();
    let root = dir.path();
    assert_eq!(host(root), PciHost { groups: 4, vfio: true });
    let port = at(root, PORT);
    assert_eq!((port.id.as_str(), port.driver.as_deref(), port.group), ("8086:1572", Some("i40e"), Some(31)));
    assert_eq!(port.node, Some(1));
    assert_eq!(port.neighbours.iter().map(|other| &*other.address).collect::<Vec<_>>(), [OTHER]);
    assert_eq!(port.uses, ["its interface ens1f0 has the host's default route"]);
    assert_eq!(
        at(root, OTHER).uses,
        ["its interface ens1f1 has addresses (1 IPv4 routes)", "its interface ens1f1 has 1 IPv6 addresses"]
    );
    assert_eq!(at(root, VF).uses, Vec::<String>::new(), "every interface has a link-local address");
    assert_eq!(
        at(root, NVME).uses,
        [
            "the host swaps to its disk nvme0n1",
            "its disk nvme0n1 is a part of dm-0",
            "its disk nvme0n1p1 is mounted at /"
        ]
    );
    assert!(at(root, BRIDGE).bridge && !port.bridge);
    assert_eq!(device(root, "0000:ff:00.0".parse().unwrap()), None);
    symlink("../br0", root.join("sys/class/net/ens1v0/master")).unwrap();
    assert_eq!(at(root, VF).uses, ["its interface ens1v0 belongs to br0"]);
    for irq in ["120", "98", "99"] {
        write(root, &format!("sys/bus/pci/devices/{VF}/msi_irqs/{irq}"), "msix\n");
    }
    assert_eq!(interrupts(root, VF.parse().unwrap()), [98, 99, 120]);
}
