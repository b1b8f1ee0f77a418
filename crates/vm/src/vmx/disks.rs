//! `scsiA:B.*`, `nvmeA:B.*`, `sataA:B.*`, `ideA:B.*`: the system disk.

use taut_api::machine::DiskLimits;
use taut_api::vm::{Disk, DiskBus, DiskFormat};
use taut_api::{ApiError, Bytes};

use super::file::VmxFile;
use super::shares;
use crate::error::invalid;

/// A kind of disk controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Scsi,
    Nvme,
    Sata,
    Ide,
}

impl Controller {
    /// All kinds, in the order in which they are searched.
    const ALL: [Self; 4] = [Self::Scsi, Self::Nvme, Self::Sata, Self::Ide];

    /// The start of its keys.
    fn prefix(self) -> &'static str {
        match self {
            Self::Scsi => "scsi",
            Self::Nvme => "nvme",
            Self::Sata => "sata",
            Self::Ide => "ide",
        }
    }
}

/// Reads the first hard disk that is present. Other disks and CD-ROM drives are reported.
pub(super) fn read(file: &mut VmxFile) -> Result<Disk, ApiError> {
    let mut found = None;
    for controller in Controller::ALL {
        for place in places(file, controller) {
            let prefix = format!("{}{}.", controller.prefix(), place.text);
            if !file.is_true(&format!("{prefix}present")) {
                file.report_all(&prefix, "the device is not present");
            } else if is_cdrom(file, &prefix) {
                file.report_all(&prefix, "CD-ROM drives are not supported");
            } else if found.is_some() || file.get(&format!("{prefix}filename")).is_none() {
                file.report_all(&prefix, "only the first hard disk is attached to the VM");
            } else {
                found = Some(hard_disk(file, controller, &place, &prefix));
            }
        }
    }
    found.ok_or_else(|| {
        invalid(
            "the .vmx names no hard disk that is present",
            "add lines such as scsi0:0.present = \"TRUE\" and scsi0:0.fileName = \"disk.vmdk\"",
        )
    })
}

/// Position of a device: number of its controller and unit on it, such as `0:1`.
struct Place {
    controller: u32,
    unit: u32,
    text: String,
}

fn places(file: &VmxFile, controller: Controller) -> Vec<Place> {
    let place = |key: &str| {
        let text = key.strip_prefix(controller.prefix())?.split_once('.')?.0;
        let (controller, unit) = text.split_once(':')?;
        Some(Place { controller: controller.parse().ok()?, unit: unit.parse().ok()?, text: text.to_owned() })
    };
    let mut places: Vec<Place> = file.keys().filter_map(place).collect();
    places.sort_by(|a, b| (a.controller, a.unit, &a.text).cmp(&(b.controller, b.unit, &b.text)));
    places.dedup_by(|a, b| a.text == b.text);
    places
}

fn is_cdrom(file: &VmxFile, prefix: &str) -> bool {
    let kind = file.get(&format!("{prefix}devicetype")).unwrap_or_default().to_ascii_lowercase();
    let name = file.get(&format!("{prefix}filename")).unwrap_or_default();
    kind.contains("cdrom") || extension(name).eq_ignore_ascii_case("iso")
}

/// The part of a file name behind its last dot.
fn extension(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}

fn hard_disk(file: &mut VmxFile, controller: Controller, place: &Place, prefix: &str) -> Disk {
    let key = |name: &str| format!("{prefix}{name}");
    let path = file.get(&key("filename")).unwrap_or_default().to_owned();
    let format = match extension(&path).to_ascii_lowercase().as_str() {
        "vmdk" => DiskFormat::Vmdk,
        "qcow2" => DiskFormat::Qcow2,
        _ => DiskFormat::Raw,
    };
    file.understood(&key("present"), "disk");
    file.understood(&key("filename"), "disk.path");
    file.report_all(&key("devicetype"), "the device is a hard disk");
    let snapshot =
        file.get(&key("mode")).is_some_and(|mode| mode.eq_ignore_ascii_case("independent-nonpersistent"));
    if snapshot {
        file.understood(&key("mode"), "disk.snapshot");
    }
    let scheduling = format!("sched.{}{}.", controller.prefix(), place.text);
    let limits = limits(file, &scheduling);
    let shares = shares::shares(file, &format!("{scheduling}shares"), "disk.shares");
    Disk { path, format, bus: bus(file, controller, place), snapshot, limits, shares }
}

/// Reads `sched.scsi0:0.throughputCap`: `80IOPS`, `10MBps` or `off`. A number without unit counts
/// operations. `bandwidthCap` is the older name of the key.
fn limits(file: &mut VmxFile, prefix: &str) -> DiskLimits {
    let mut limits = DiskLimits::default();
    for name in ["throughputcap", "bandwidthcap"] {
        let key = format!("{prefix}{name}");
        let Some(value) = file.get(&key).map(|value| value.trim().to_ascii_lowercase()) else { continue };
        let number =
            |unit: &str| value.strip_suffix(unit)?.trim().parse::<u64>().ok().filter(|number| *number > 0);
        let bytes = [("kbps", 1 << 10), ("mbps", 1 << 20), ("gbps", 1 << 30)]
            .into_iter()
            .find_map(|(unit, bytes)| number(unit)?.checked_mul(bytes));
        if let Some(bytes) = bytes {
            limits.bandwidth = Some(Bytes(bytes));
            file.understood(&key, "disk.limits.bandwidth");
        } else if let Some(iops) = number("iops").or_else(|| number("")) {
            limits.iops = Some(iops);
            file.understood(&key, "disk.limits.iops");
        } else if ["off", "unlimited", "-1", "0"].contains(&value.as_str()) {
            file.understood(&key, "disk.limits");
        } else {
            file.reported(
                &key,
                "neither operations (80IOPS) nor bytes (10MBps) a second: the disk has no limit",
            );
        }
    }
    limits
}

/// The bus of the disk: that on ESX if QEMU has such a controller.
fn bus(file: &mut VmxFile, controller: Controller, place: &Place) -> DiskBus {
    const FIELD: &str = "disk.bus";
    let keys = format!("{}{}", controller.prefix(), place.controller);
    let (present, model) = (format!("{keys}.present"), format!("{keys}.virtualdev"));
    match controller {
        Controller::Nvme => {
            file.understood(&present, FIELD);
            DiskBus::Nvme
        }
        Controller::Sata => {
            file.understood(&present, FIELD);
            DiskBus::Sata
        }
        Controller::Ide => {
            let note = "sata: the machine has an AHCI controller instead of IDE";
            file.mapped(&format!("ide{}.present", place.text), FIELD, note);
            DiskBus::Sata
        }
        Controller::Scsi => {
            file.understood(&present, "disk");
            let (bus, note) = match file.get(&model).map(str::to_ascii_lowercase).as_deref() {
                Some("pvscsi") => (DiskBus::Pvscsi, None),
                Some("lsisas1068") => (DiskBus::Lsisas1068, None),
                _ => (
                    DiskBus::Sata,
                    Some("sata: QEMU does not have this SCSI controller; most guests have a driver for AHCI"),
                ),
            };
            match note {
                None => file.understood(&model, FIELD),
                Some(note) if file.get(&model).is_some() => file.mapped(&model, FIELD, note),
                Some(note) => file.mapped(&present, FIELD, note),
            }
            bus
        }
    }
}
