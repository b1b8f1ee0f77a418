//! QEMU's options for a disk: a node for each image of its chain, with a format that is told and
//! never probed.
//!
//! From the bottom up: the images of the chain, an overlay if writes are discarded, and the node
//! [`DISK`], which the guest's device uses and which limits its bandwidth.

use serde_json::{Value, json};
use taut_api::vm::{Disk, DiskBus, DiskFormat};

use super::inherit::{Inherited, Source};
use super::throttle;

/// Name of the node that the guest's device uses.
pub(crate) const DISK: &str = "disk0";

/// The images that a disk consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskChain {
    /// The image that the disk names, and below it the images that it is based on.
    pub images: Vec<DiskImage>,
    /// Size of the disk as the guest sees it, in bytes.
    pub virtual_size: u64,
}

/// One image of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskImage {
    /// The format that the VM's file or the image above tells.
    pub format: DiskFormat,
    /// True for a block device.
    pub is_device: bool,
    /// First byte of the disk in a raw image, and the disk's size; `None` for the whole file.
    pub part: Option<(u64, u64)>,
}

/// Returns the options of a disk, in their order.
pub(super) fn options(
    disk: &Disk,
    chain: &DiskChain,
    inherited: &mut Inherited,
) -> Vec<(&'static str, String)> {
    let mut options = Vec::new();
    let mut below = Value::Null;
    for (level, image) in chain.images.iter().enumerate().rev() {
        let writable = level == 0 && !disk.snapshot;
        let number = inherited.add(Source::Image(level));
        let file = format!("{DISK}-file{level}");
        options.extend(file_node(&file, number, level, writable, image.is_device));
        let node = format!("{DISK}-image{level}");
        let mut format = json!({
            "driver": format_name(image.format), "node-name": node, "file": file, "read-only": !writable,
        });
        if let Some((offset, size)) = image.part {
            format["offset"] = json!(offset);
            format["size"] = json!(size);
        }
        if image.format != DiskFormat::Raw {
            // Null: the name of a backing file in the image, which a stranger may have written, is
            // not followed.
            format["backing"] = below;
        }
        options.push(("-blockdev", format.to_string()));
        below = json!(node);
    }
    if disk.snapshot {
        let number = inherited.add(Source::Overlay(chain.virtual_size));
        let (file, node) = (format!("{DISK}-file-overlay"), format!("{DISK}-overlay"));
        options.extend(file_node(&file, number, chain.images.len(), true, false));
        let overlay = json!({ "driver": "qcow2", "node-name": node, "file": file, "backing": below });
        options.push(("-blockdev", overlay.to_string()));
        below = json!(node);
    }
    options.push(("-object", throttle::group(disk.limits)));
    let limited =
        json!({ "driver": "throttle", "node-name": DISK, "throttle-group": throttle::GROUP, "file": below });
    options.push(("-blockdev", limited.to_string()));
    options.extend(devices(disk.bus).into_iter().map(|device| ("-device", device)));
    options
}

/// Returns the options that make a node of an inherited descriptor. Its set has a number from 1 on.
fn file_node(
    node: &str,
    number: i32,
    level: usize,
    writable: bool,
    is_device: bool,
) -> [(&'static str, String); 2] {
    let set = level + 1;
    let driver = if is_device { "host_device" } else { "file" };
    let file = json!({
        "driver": driver, "node-name": node, "filename": format!("/dev/fdset/{set}"), "read-only": !writable,
    });
    [("-add-fd", format!("fd={number},set={set}")), ("-blockdev", file.to_string())]
}

const fn format_name(format: DiskFormat) -> &'static str {
    match format {
        DiskFormat::Raw => "raw",
        DiskFormat::Qcow2 => "qcow2",
        DiskFormat::Vmdk => "vmdk",
    }
}

/// Returns the controller, if the machine has none of this kind, and the disk behind it.
fn devices(bus: DiskBus) -> Vec<String> {
    let (controller, device) = match bus {
        DiskBus::Virtio => (None, "virtio-blk-pci"),
        DiskBus::Pvscsi => (Some("pvscsi,id=scsi0"), "scsi-hd,bus=scsi0.0"),
        DiskBus::Lsisas1068 => (Some("mptsas1068,id=scsi0"), "scsi-hd,bus=scsi0.0"),
        // The machine's own AHCI controller.
        DiskBus::Sata => (None, "ide-hd,bus=ide.0"),
        DiskBus::Nvme => (None, "nvme,serial=disk0"),
    };
    let controller = controller.map(str::to_owned);
    controller.into_iter().chain([format!("{device},drive={DISK}")]).collect()
}
