//! The kernel modules of a guest, and the order in which they can be loaded.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use super::ImageError;
use super::package::{self, Package};

/// Drivers of all devices that taut's command lines can contain, and modules that the agent needs.
/// A kernel without one of them has it built in or does not support that device.
const WANTED: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "virtio_blk",
    "virtio_rng",
    "vmw_vsock_virtio_transport",
    "af_packet",
    "qemu_fw_cfg",
    "vmxnet3",
    "e1000",
    "e1000e",
    "pcnet32",
    "button",
    "evdev",
    "ext4",
];

/// Drivers of the NVDIMM with the queue pairs of a VMCI device.
const OF_NVDIMM: &[&str] = &["nfit", "nd_pmem", "device_dax", "dax_pmem"];

/// Modules that are loaded together, in the order of a file in `/modules`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    /// Modules of all guests.
    All,
    /// Modules of guests with an NVDIMM. Others would spend time and memory on them.
    Nvdimm,
}

impl Set {
    pub(super) const ALL: [Self; 2] = [Self::All, Self::Nvdimm];

    /// Returns the name of the file with the load order.
    pub(super) const fn file(self) -> &'static str {
        match self {
            Self::All => "order",
            Self::Nvdimm => "order-nvdimm",
        }
    }
}

/// A module, ready to be loaded.
#[derive(Debug)]
pub(super) struct Module {
    /// Name without suffixes.
    pub(super) name: String,
    /// The object file, uncompressed.
    pub(super) object: Vec<u8>,
    /// The modules that it is loaded with.
    pub(super) set: Set,
}

/// The wanted modules and everything they depend on, dependencies first.
pub(super) fn in_load_order(package: &Package) -> Result<Vec<Module>, ImageError> {
    let folder = package.modules();
    let dep_file = folder.join("modules.dep");
    let text = fs::read_to_string(&dep_file).map_err(|source| ImageError::File { path: dep_file, source })?;
    let all = order(&text, WANTED);
    let mut of_nvdimm = order(&text, OF_NVDIMM);
    of_nvdimm.retain(|path| !all.contains(path));
    let sets =
        all.iter().map(|path| (path, Set::All)).chain(of_nvdimm.iter().map(|path| (path, Set::Nvdimm)));
    sets.map(|(path, set)| Ok(Module { name: name(path), object: object(&folder.join(path))?, set }))
        .collect()
}

/// Paths from `modules.dep` that the wanted modules need, each behind its dependencies.
fn order(modules_dep: &str, wanted: &[&str]) -> Vec<String> {
    let by_name: HashMap<String, (&str, Vec<&str>)> = modules_dep
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| (name(path), (path, needs.split_whitespace().collect())))
        .collect();
    let (mut order, mut seen) = (Vec::new(), HashSet::new());
    for module in wanted {
        let Some((path, needs)) = by_name.get(*module) else { continue };
        // depmod lists all transitive dependencies of a module, the deepest last.
        for step in needs.iter().rev().chain([path]) {
            if seen.insert(*step) {
                order.push((*step).to_owned());
            }
        }
    }
    order
}

/// `kernel/drivers/net/virtio_net.ko.xz` → `virtio_net`.
fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

fn object(path: &Path) -> Result<Vec<u8>, ImageError> {
    let compressed = |program| Ok(package::run(program, &[OsStr::new("-dc"), path.as_os_str()], path)?);
    match path.extension().and_then(OsStr::to_str) {
        Some("xz") => compressed("xz"),
        Some("zst") => compressed("zstd"),
        _ => fs::read(path).map_err(|source| ImageError::File { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first_and_once() {
        let dep = "kernel/net/core/failover.ko:\n\
                   kernel/drivers/net/net_failover.ko: kernel/net/core/failover.ko\n\
                   kernel/drivers/net/virtio_net.ko: kernel/drivers/net/net_failover.ko kernel/net/core/failover.ko\n\
                   kernel/drivers/other.ko.xz: kernel/net/core/failover.ko\n";
        assert_eq!(
            order(dep, &["virtio_net", "built_in", "other"]),
            [
                "kernel/net/core/failover.ko",
                "kernel/drivers/net/net_failover.ko",
                "kernel/drivers/net/virtio_net.ko",
                "kernel/drivers/other.ko.xz"
            ]
        );
    }
}
