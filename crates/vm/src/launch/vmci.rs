//! QEMU's words for a VMCI device, at its start and when it is plugged in again.

use std::path::Path;

/// The device, and the character device that leads to the fabric.
pub(crate) const ID: &str = "vmci0";
/// The port that it is plugged into: of its own, because only there can it be unplugged while the guest runs.
pub(crate) const BUS: &str = "vmciport";
/// QEMU's name of the card that it is for the guest.
pub(crate) const DRIVER: &str = "vhost-user-vsock-pci";
/// PCI slot of the port, clear of the cards and of what QEMU places itself.
const SLOT: usize = 0x10;

/// The options that make it.
pub(super) fn options(socket: &Path, without_msix: bool) -> [(&'static str, String); 3] {
    let vectors = if without_msix { ",vectors=0" } else { "" };
    [
        ("-device", format!("pcie-root-port,id={BUS},chassis=1,addr={SLOT:x}")),
        ("-chardev", format!("socket,id={ID},path={}", socket.display())),
        ("-device", format!("{DRIVER},id={ID},chardev={ID},bus={BUS}{vectors}")),
    ]
}
