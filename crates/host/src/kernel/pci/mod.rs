//! PCI devices for VMs (LS-8): their identity, IOMMU group, driver, and how the host uses
//! them.

use std::fs;
use std::path::{Path, PathBuf};

use taut_api::passthrough::{Neighbour, PciAddress, PciDevice, PciHost};

/// Name of the driver that hands devices to VMs.
pub(crate) const VFIO: &str = "vfio-pci";

/// Returns the folder of a PCI device.
pub(crate) fn folder(root: &Path, address: &str) -> PathBuf {
    root.join("sys/bus/pci/devices").join(address)
}

/// Returns whether and how the host below `root` can hand devices to VMs.
pub fn host(root: &Path) -> PciHost {
    PciHost {
        groups: names(&root.join("sys/kernel/iommu_groups")).len(),
        vfio: root.join("sys/bus/pci/drivers").join(VFIO).exists(),
    }
}

/// Reads the device at an address; `None` if there is no device.
pub fn device(root: &Path, address: PciAddress) -> Option<PciDevice> {
    let address = address.to_string();
    let folder = folder(root, &address);
    let text = |file: &str| Some(fs::read_to_string(folder.join(file)).ok()?.trim().to_owned());
    let hex = |file: &str| Some(text(file)?.trim_start_matches("0x").to_owned());
    let id = format!("{}:{}", hex("vendor")?, hex("device")?);
    let group = link(&folder.join("iommu_group"));
    let others = group.iter().flat_map(|group| {
        names(&root.join("sys/kernel/iommu_groups").join(group).join("devices")).into_iter()
    });
    let neighbour = |other: String| Neighbour {
        bridge: is_bridge(root, &other),
        driver: link(&self::folder(root, &other).join("driver")),
        address: other,
    };
    Some(PciDevice {
        id,
        bridge: is_bridge(root, &address),
        driver: link(&folder.join("driver")),
        group: group.as_ref().and_then(|group| group.parse().ok()),
        neighbours: others.filter(|other| *other != address).map(neighbour).collect(),
        uses: [network(root, &address), disks(root, &address)].concat(),
        // A host without nodes shows -1.
        node: text("numa_node").and_then(|node| node.parse().ok()),
    })
}

/// Returns the numbers of the interrupts that the device has now.
pub fn interrupts(root: &Path, address: PciAddress) -> Vec<u32> {
    let names = names(&folder(root, &address.to_string()).join("msi_irqs"));
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

fn is_bridge(root: &Path, address: &str) -> bool {
    let class = fs::read_to_string(folder(root, address).join("class")).unwrap_or_default();
    class.trim().starts_with("0x06")
}

/// Describes how the host uses the device's network interfaces.
fn network(root: &Path, address: &str) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let (routes, addresses) = (read("proc/net/route"), read("proc/net/if_inet6"));
    let mut uses = Vec::new();
    for card in below(root, "net", address) {
        let mine: Vec<Vec<&str>> = routes
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|route| route.first() == Some(&&*card))
            .collect();
        if mine.iter().any(|route| route.get(1) == Some(&"00000000")) {
            uses.push(format!("its interface {card} has the host's default route"));
        } else if !mine.is_empty() {
            uses.push(format!("its interface {card} has addresses ({} IPv4 routes)", mine.len()));
        }
        // Every interface has a link-local address.
        let global = addresses
            .lines()
            .filter(|line| line.split_whitespace().last() == Some(&*card) && !line.starts_with("fe80"));
        let count = global.count();
        if count > 0 {
            uses.push(format!("its interface {card} has {count} IPv6 addresses"));
        }
        if let Some(master) = link(&root.join("sys/class/net").join(&card).join("master")) {
            uses.push(format!("its interface {card} belongs to {master}"));
        }
    }
    uses
}

/// Describes how the host uses the device's disks.
fn disks(root: &Path, address: &str) -> Vec<String> {
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let (mounts, swaps) = (read("proc/mounts"), read("proc/swaps"));
    let mut uses = Vec::new();
    for disk in below(root, "block", address) {
        let device = format!("/dev/{disk}");
        let first = |line: &&str| line.split_whitespace().next() == Some(&device);
        if let Some(mount) = mounts.lines().find(first) {
            let at = mount.split_whitespace().nth(1).unwrap_or("somewhere");
            uses.push(format!("its disk {disk} is mounted at {at}"));
        }
        if swaps.lines().any(|line| first(&line)) {
            uses.push(format!("the host swaps to its disk {disk}"));
        }
        let holders = names(&root.join("sys/class/block").join(&disk).join("holders"));
        if !holders.is_empty() {
            uses.push(format!("its disk {disk} is a part of {}", holders.join(", ")));
        }
    }
    uses
}

/// Returns the interfaces or disks of a device: the kernel's links to them lead through its folder.
fn below(root: &Path, class: &str, address: &str) -> Vec<String> {
    let folder = root.join("sys/class").join(class);
    let is_its = |name: &String| {
        let target = fs::read_link(folder.join(name)).unwrap_or_default();
        target.components().any(|part| part.as_os_str() == address)
    };
    names(&folder).into_iter().filter(is_its).collect()
}

/// Returns the last component of a link's target.
pub(crate) fn link(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
