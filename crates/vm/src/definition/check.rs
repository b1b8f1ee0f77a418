//! What a VM must be in itself, whatever else exists on the host.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt as _;

use taut_api::machine::MOST_SPIN_US;
use taut_api::resources::MemoryReservation;
use taut_api::vm::{Boot, Disk, LatencySensitivity, NicModel, NicSpec, VmKind, VmSpec};
use taut_api::{ApiError, Bytes};

use super::{passthrough, vmci};
use crate::error::invalid;

/// Guest memory is handed to the data plane in pages of this size where the host has them.
const MEMORY_STEP: Bytes = Bytes::mib(2);
/// A Debian kernel with an initial RAM file system needs somewhat more; smaller systems exist.
const LEAST_QEMU: Bytes = Bytes::mib(64);
/// Rings, buffers and a little room.
const LEAST_MICRO: Bytes = Bytes::mib(16);
/// No host has more; beyond it addresses overflow elsewhere.
const MOST: Bytes = Bytes(64 << 40);
const MOST_VCPUS: u32 = 256;
const MOST_NICS: usize = 32;
/// The most that QEMU takes as a limit of a disk.
const MOST_THROTTLE: u64 = 1_000_000_000_000_000;
/// The kernel's own limit for its command line on x86 is 2048; ours is added to it.
const MOST_CMDLINE: usize = 1500;

/// Checks everything; the first fault is returned.
pub(super) fn check(spec: &VmSpec) -> Result<(), ApiError> {
    memory(spec)?;
    if !(1..=MOST_VCPUS).contains(&spec.vcpus) {
        return Err(invalid(
            format!("vcpus = {} is outside 1 to {MOST_VCPUS}", spec.vcpus),
            "give the VM at least one virtual CPU, and fewer than the host has",
        ));
    }
    reservations(spec)?;
    machine(spec)?;
    passthrough::check(spec)?;
    placement(spec)?;
    system(spec)?;
    nics(&spec.nics, spec.kind)?;
    spec.vmci.as_ref().map_or(Ok(()), vmci::check)
}

fn memory(spec: &VmSpec) -> Result<(), ApiError> {
    let least = match spec.kind {
        VmKind::Qemu => LEAST_QEMU,
        VmKind::Micro => LEAST_MICRO,
    };
    if !(least..=MOST).contains(&spec.memory) {
        return Err(invalid(
            format!("memory = {} is outside {least} to {MOST}", spec.memory),
            "write it with its unit, such as memory = \"512MiB\"",
        ));
    }
    if !spec.memory.0.is_multiple_of(MEMORY_STEP.0) {
        let rounded = Bytes(spec.memory.0.next_multiple_of(MEMORY_STEP.0));
        return Err(invalid(
            format!("memory = {} is not a multiple of {MEMORY_STEP}, the size of a huge page", spec.memory),
            format!("use {rounded}"),
        ));
    }
    Ok(())
}

/// What a VM's reservations and its latency sensitivity must be in themselves; what the host has is another matter.
pub(super) fn reservations(spec: &VmSpec) -> Result<(), ApiError> {
    passthrough::memory(spec)?;
    if let MemoryReservation::Size(size) = spec.memory_reservation
        && size > spec.memory
    {
        return Err(invalid(
            format!("memory_reservation = {size} is more than its memory of {}", spec.memory),
            "use \"full\", or a size up to its memory",
        ));
    }
    if spec.kind == VmKind::Micro && spec.vcpus > 1 && spec.latency_sensitivity != LatencySensitivity::Normal
    {
        return Err(invalid(
            format!("a micro VM runs on one vCPU, and {} would own a pCPU each", spec.vcpus),
            "use vcpus = 1",
        ));
    }
    Ok(())
}

/// What is said of its accelerator, its idle vCPUs and its disk's limits.
pub(super) fn machine(spec: &VmSpec) -> Result<(), ApiError> {
    if spec.kind == VmKind::Micro && !(spec.accelerator.is_auto() && spec.halt.is_default()) {
        return Err(invalid(
            "a micro VM runs natively: it has no accelerator to choose and no vCPU that halts",
            "leave `accelerator` and [halt] out, or use kind = \"qemu\"",
        ));
    }
    if let Some(us) = spec.halt.min_spin_us
        && !(1..=MOST_SPIN_US).contains(&us)
    {
        return Err(invalid(
            format!("halt.min_spin_us = {us} is outside 1 to {MOST_SPIN_US} microseconds"),
            "ESX's own is 100; for a vCPU that never halts on the host use desched = false",
        ));
    }
    let Some(limits) = spec.disk.as_ref().map(|disk| disk.limits) else { return Ok(()) };
    for (name, limit) in [("bandwidth", limits.bandwidth.map(|bandwidth| bandwidth.0)), ("iops", limits.iops)]
    {
        if let Some(limit) = limit.filter(|limit| !(1..=MOST_THROTTLE).contains(limit)) {
            return Err(invalid(
                format!("disk.limits.{name} = {limit} is outside 1 to {MOST_THROTTLE} a second"),
                "leave it out for a disk that is not limited",
            ));
        }
    }
    Ok(())
}

fn placement(spec: &VmSpec) -> Result<(), ApiError> {
    match spec.placement.vcpus_per_node {
        Some(most) if !(1..=MOST_VCPUS).contains(&most) => Err(invalid(
            format!("placement.vcpus_per_node = {most} is outside 1 to {MOST_VCPUS}"),
            "leave it out: the guest then sees one NUMA node",
        )),
        _ => Ok(()),
    }
}

fn system(spec: &VmSpec) -> Result<(), ApiError> {
    match (spec.kind, &spec.boot, &spec.disk) {
        (VmKind::Micro, None, None) => Ok(()),
        (VmKind::Micro, _, _) => Err(invalid(
            "a micro VM has neither [boot] nor [disk]: it runs no operating system",
            "remove the table, or use kind = \"qemu\"",
        )),
        (VmKind::Qemu, None, None) => Err(invalid(
            "the VM has neither [boot] nor [disk], so there is nothing to run",
            "add [boot] with a kernel, or [disk] with a path",
        )),
        (VmKind::Qemu, boot, disk) => {
            boot.as_ref().map_or(Ok(()), kernel)?;
            disk.as_ref().map_or(Ok(()), image)
        }
    }
}

fn kernel(boot: &Boot) -> Result<(), ApiError> {
    readable("kernel", &boot.kernel, false)?;
    boot.initrd.as_ref().map_or(Ok(()), |initrd| readable("initrd", initrd, false))?;
    if let Some(bad) = boot.cmdline.chars().find(|c| c.is_control()) {
        return Err(invalid(
            format!("cmdline contains the control character {bad:?}"),
            "write the kernel's arguments on one line, separated by spaces",
        ));
    }
    if boot.cmdline.len() > MOST_CMDLINE {
        return Err(invalid(
            format!("cmdline has {} bytes, more than {MOST_CMDLINE}", boot.cmdline.len()),
            "the kernel would cut it off; shorten it",
        ));
    }
    Ok(())
}

fn image(disk: &Disk) -> Result<(), ApiError> {
    readable("disk", &disk.path, true)
}

fn readable(what: &str, path: &str, device_allowed: bool) -> Result<(), ApiError> {
    let hint = "relative paths start from the VM file's directory; check the path and its permissions";
    let kind = fs::metadata(path)
        .and_then(|metadata| File::open(path).map(|_| metadata.file_type()))
        .map_err(|error| invalid(format!("the {what} `{path}` cannot be read"), hint).because(&error))?;
    if kind.is_file() || (device_allowed && kind.is_block_device()) {
        return Ok(());
    }
    let expected = if device_allowed { "a file or block device" } else { "a file" };
    Err(invalid(format!("the {what} `{path}` is not {expected}"), hint))
}

fn nics(nics: &[NicSpec], kind: VmKind) -> Result<(), ApiError> {
    if nics.len() > MOST_NICS {
        return Err(invalid(
            format!("the VM has {} vNICs, more than {MOST_NICS}", nics.len()),
            "remove some [[nic]] tables",
        ));
    }
    let mut owners = BTreeMap::new();
    for (index, nic) in nics.iter().enumerate() {
        if let Some(mac) = nic.mac {
            if !mac.is_assignable() {
                return Err(invalid(
                    format!("nic {index}: {mac} is no address for a card (it is a group address or zero)"),
                    "the first octet must be even, such as 02:11:00:00:00:01; or leave `mac` out",
                ));
            }
            if let Some(other) = owners.insert(mac, index) {
                return Err(invalid(
                    format!("nics {other} and {index} have the same address {mac}"),
                    "give each card its own `mac`, or leave it out and taut derives one",
                ));
            }
        }
        for (name, size) in [("rx", nic.rings.rx), ("tx", nic.rings.tx)] {
            if !size.is_power_of_two() || !(64..=1024).contains(&size) {
                return Err(invalid(
                    format!("nic {index}: a ring of {name} = {size} descriptors is not possible"),
                    "use 64, 128, 256, 512 or 1024",
                ));
            }
        }
        if nic.queues.get() > 1 && (kind == VmKind::Micro || nic.model != NicModel::Virtio) {
            return Err(invalid(
                format!(
                    "nic {index}: {} pairs of queues are offered by virtio cards of QEMU's only",
                    nic.queues
                ),
                "leave `queues` out: the card then has one pair",
            ));
        }
        if kind == VmKind::Micro && nic.model != NicModel::Virtio {
            return Err(invalid(
                format!("nic {index}: a micro VM drives only virtio cards"),
                "leave `model` out, or use kind = \"qemu\"",
            ));
        }
    }
    Ok(())
}
