//! QEMU's options and names for a VMCI device, at the start and when it is plugged in again.

use std::path::Path;

/// ID of the device, and of the character device that connects it to the fabric.
pub(crate) const ID: &str = "vmci0";
/// ID of the root port of the device. A running guest can only unplug a device that has its own
/// port.
pub(crate) const BUS: &str = "vmciport";
/// QEMU's name for the device model.
pub(crate) const DRIVER: &str = "vhost-user-vsock-pci";
/// PCI slot of the port, clear of the cards and of the slots that QEMU assigns.
const SLOT: usize = 0x10;

/// The options that create the device.
pub(super) fn options(socket: &Path, without_msix: bool) -> [(&'static str, String); 3] {
    let vectors = if without_msix { ",vectors=0" } else { "" };
    [
        ("-device", format!("pcie-root-port,id={BUS},chassis=1,addr={SLOT:x}")),
        ("-chardev", format!("socket,id={ID},path={}", socket.display())),
        ("-device", format!("{DRIVER},id={ID},chardev={ID},bus={BUS}{vectors}")),
    ]
}
