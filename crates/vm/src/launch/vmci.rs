//! QEMU's options and names for a VMCI device, at the start and when it is plugged in again.

/// ID of the device, and of the character device that connects it to the fabric.
pub(crate) const ID: &str = "vmci0";
/// ID of the root port of the device. A running guest can only unplug a device that has its own
/// port.
pub(crate) const BUS: &str = "vmciport";
/// QEMU's name for the device model.
pub(crate) const DRIVER: &str = "vhost-user-vsock-pci";
/// PCI slot of the port, clear of the cards and of the slots that QEMU assigns.
const SLOT: usize = 0x10;

/// The options that create the device. `connection` is the descriptor of a socket that is connected
/// to its back end.
pub(super) fn options(connection: i32, without_msix: bool) -> [(&'static str, String); 3] {
    let vectors = if without_msix { ",vectors=0" } else { "" };
    [
        ("-device", format!("pcie-root-port,id={BUS},chassis=1,addr={SLOT:x}")),
        ("-chardev", format!("socket,id={ID},fd={connection}")),
        ("-device", format!("{DRIVER},id={ID},chardev={ID},bus={BUS}{vectors}")),
    ]
}
