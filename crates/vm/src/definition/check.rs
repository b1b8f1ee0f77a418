//! Checks of a VM that do not depend on the host or on other VMs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use rustix::fs::{FileType, OFlags};
use taut_api::ip::{BadGateway, check_gateway};
use taut_api::machine::MOST_SPIN_US;
use taut_api::resources::MemoryReservation;
use taut_api::shares::MemoryLimit;
use taut_api::vm::{Boot, Disk, LatencySensitivity, NicModel, NicSpec, VmKind, VmSpec};
use taut_api::{ApiError, Bytes};

use super::{buffers, passthrough, vmci};
use crate::error::invalid;
use crate::named_file::NamedFile;

/// Least memory of a VM under QEMU. A Debian kernel with an initial RAM file system needs a little
/// more, other systems need less.
const LEAST_QEMU: Bytes = Bytes::mib(64);
/// Least memory of a micro VM: rings and buffers of usual cards, and some spare room.
const LEAST_MICRO: Bytes = Bytes::mib(16);
/// Most memory of a VM. No host has more, and larger addresses would overflow elsewhere.
const MOST: Bytes = Bytes(64 << 40);
const MOST_VCPUS: u32 = 256;
const MOST_NICS: usize = 32;
/// Least reservation or limit of memory.
const LEAST_SIZE: Bytes = Bytes::mib(1);
/// Least limit of a disk's bandwidth, in bytes a second: one page.
const LEAST_BANDWIDTH: u64 = 4096;
/// Largest limit of a disk that QEMU accepts.
const MOST_THROTTLE: u64 = 1_000_000_000_000_000;
/// Longest command line from the user. The x86 kernel accepts 2048 bytes, including what taut adds.
const MOST_CMDLINE: usize = 1500;

/// Checks everything and returns the first fault.
pub(super) fn check(spec: &VmSpec) -> Result<(), ApiError> {
    check_changed(spec)?;
    passthrough::check(spec)?;
    system(spec)?;
    nics(&spec.nics, spec.kind)?;
    spec.vmci.as_ref().map_or(Ok(()), |device| vmci::check(spec.kind, device))?;
    buffers::check(spec)
}

/// Checks the settings of a VM that can change while it exists, but for those of its cards and its
/// VMCI device. Returns the first fault.
pub(super) fn check_changed(spec: &VmSpec) -> Result<(), ApiError> {
    size(spec)?;
    reservations(spec)?;
    machine(spec)?;
    placement(spec)
}

/// Checks the number of vCPUs and the size of the memory.
fn size(spec: &VmSpec) -> Result<(), ApiError> {
    memory(spec)?;
    if (1..=MOST_VCPUS).contains(&spec.vcpus) {
        return Ok(());
    }
    Err(invalid(
        format!("vcpus = {} is outside 1 to {MOST_VCPUS}", spec.vcpus),
        "give the VM at least one virtual CPU, and at most as many as the host has CPUs",
    ))
}

fn memory(spec: &VmSpec) -> Result<(), ApiError> {
    let least = match spec.kind {
        VmKind::Qemu => LEAST_QEMU,
        VmKind::Micro => LEAST_MICRO,
    };
    if !(least..=MOST).contains(&spec.memory) {
        return Err(invalid(
            format!("memory = {} is outside {least} to {MOST}", understood(spec.memory)),
            "write the size with its unit, such as memory = \"512MiB\"; a number without a unit is bytes",
        ));
    }
    let step = VmSpec::MEMORY_STEP;
    if !spec.memory.0.is_multiple_of(step.0) {
        let above = spec.memory.0.next_multiple_of(step.0);
        return Err(invalid(
            format!("memory = {} is not a multiple of {step}, the size of a huge page", spec.memory),
            // The larger one may be more than the host has.
            format!("use {} or {}", Bytes(above - step.0), Bytes(above)),
        ));
    }
    Ok(())
}

/// Returns a size as it was understood, in bytes too if it is too small to be meant.
fn understood(size: Bytes) -> String {
    if size < LEAST_SIZE { format!("{size} ({} bytes)", size.0) } else { size.to_string() }
}

/// Refuses a reservation or limit of memory that was hardly meant: a number of MiB without its
/// unit.
fn meant(setting: &str, size: Bytes) -> Result<(), ApiError> {
    if size.0 == 0 || size >= LEAST_SIZE {
        return Ok(());
    }
    Err(invalid(
        format!("{setting} = {} is less than {LEAST_SIZE}", understood(size)),
        "write the size with its unit, such as \"512MiB\"; a number without a unit is bytes",
    ))
}

/// Checks reservations and latency sensitivity. Whether the host can provide them is not checked
/// here.
fn reservations(spec: &VmSpec) -> Result<(), ApiError> {
    passthrough::memory(spec)?;
    if let MemoryReservation::Size(size) = spec.memory_reservation {
        meant("memory_reservation", size)?;
    }
    if let MemoryLimit::Size(size) = spec.memory_limit {
        meant("memory_limit", size)?;
    }
    if let MemoryReservation::Size(size) = spec.memory_reservation
        && size > spec.memory
    {
        return Err(invalid(
            format!("memory_reservation = {size} is more than the VM's memory of {}", spec.memory),
            "use \"full\", or a size up to that of the memory",
        ));
    }
    if spec.kind == VmKind::Micro && spec.vcpus > 1 && spec.latency_sensitivity != LatencySensitivity::Normal
    {
        return Err(invalid(
            format!("a micro VM uses one vCPU, but {} would each get an exclusive pCPU", spec.vcpus),
            "use vcpus = 1",
        ));
    }
    Ok(())
}

/// Checks accelerator, idle vCPUs and disk limits.
fn machine(spec: &VmSpec) -> Result<(), ApiError> {
    if spec.kind == VmKind::Micro && !(spec.accelerator.is_auto() && spec.halt.is_default()) {
        return Err(invalid(
            "a micro VM runs natively: it has neither an accelerator nor vCPUs that halt",
            "remove `accelerator` and [halt], or use kind = \"qemu\"",
        ));
    }
    if let Some(us) = spec.halt.min_spin_us
        && !(1..=MOST_SPIN_US).contains(&us)
    {
        return Err(invalid(
            format!("halt.min_spin_us = {us} is outside 1 to {MOST_SPIN_US} microseconds"),
            "the default of ESX is 100; for a vCPU that never halts on the host use desched = false",
        ));
    }
    let Some(limits) = spec.disk.as_ref().map(|disk| disk.limits) else { return Ok(()) };
    let bandwidth = limits.bandwidth.map(|bandwidth| bandwidth.0);
    for (name, limit, least, hint) in [
        ("bandwidth", bandwidth, LEAST_BANDWIDTH, "write it with its unit, such as \"10MiB\", or remove it"),
        ("iops", limits.iops, 1, "remove it if the disk is to have no limit"),
    ] {
        if let Some(limit) = limit.filter(|limit| !(least..=MOST_THROTTLE).contains(limit)) {
            return Err(invalid(
                format!("disk.limits.{name} = {limit} is outside {least} to {MOST_THROTTLE} a second"),
                hint,
            ));
        }
    }
    Ok(())
}

/// Checks the number of vCPUs per virtual NUMA node.
fn placement(spec: &VmSpec) -> Result<(), ApiError> {
    match spec.placement.vcpus_per_node {
        Some(most) if !(1..=MOST_VCPUS).contains(&most) => Err(invalid(
            format!("placement.vcpus_per_node = {most} is outside 1 to {MOST_VCPUS}"),
            "remove it: the guest then sees one NUMA node",
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
            "shorten it; the kernel would cut off the rest",
        ));
    }
    Ok(())
}

fn image(disk: &Disk) -> Result<(), ApiError> {
    readable("disk", &disk.path, true)
}

fn readable(what: &str, path: &str, device_allowed: bool) -> Result<(), ApiError> {
    let hint = "relative paths start from the VM file's directory; check the path and its permissions";
    let fits = |kind| kind == FileType::RegularFile || device_allowed && kind == FileType::BlockDevice;
    let readable = is_readable(path, fits)
        .map_err(|error| invalid(format!("the {what} `{path}` cannot be read"), hint).because(&error))?;
    if readable {
        return Ok(());
    }
    let expected = if device_allowed { "a file or block device" } else { "a file" };
    Err(invalid(format!("the {what} `{path}` is not {expected}"), hint))
}

/// Opens a file for reading, and closes it again. Returns `false` if its type does not fit.
fn is_readable(path: &str, fits: impl Fn(FileType) -> bool) -> io::Result<bool> {
    let file = NamedFile::find(Path::new(path))?;
    if !fits(file.kind()?) {
        return Ok(false);
    }
    file.open(OFlags::RDONLY, fits).map(|_| true)
}

/// Checks that each gateway is in its card's network, and that there is one at most: a guest has
/// one default route.
fn gateways(nics: &[NicSpec]) -> Result<(), ApiError> {
    for (index, nic) in nics.iter().enumerate() {
        check_gateway(nic.ip, nic.gateway)
            .map_err(|error| invalid(format!("nic {index}: {error}"), BadGateway::HINT))?;
    }
    let mut routed = nics.iter().enumerate().filter(|(_, nic)| nic.gateway.is_some());
    match (routed.next(), routed.next()) {
        (Some((first, _)), Some((second, _))) => Err(invalid(
            format!("nics {first} and {second} both have a gateway, but a guest has one default route"),
            "leave one of them out; further routes belong into the guest",
        )),
        _ => Ok(()),
    }
}

fn nics(nics: &[NicSpec], kind: VmKind) -> Result<(), ApiError> {
    if nics.len() > MOST_NICS {
        return Err(invalid(
            format!("the VM has {} vNICs, more than {MOST_NICS}", nics.len()),
            "remove some [[nic]] tables",
        ));
    }
    gateways(nics)?;
    let mut owners = BTreeMap::new();
    for (index, nic) in nics.iter().enumerate() {
        if let Some(mac) = nic.mac {
            if !mac.is_assignable() {
                return Err(invalid(
                    format!(
                        "nic {index}: {mac} cannot be the address of a card: it is a group address or zero"
                    ),
                    "use an even first octet, as in 02:11:00:00:00:01, or remove `mac`",
                ));
            }
            if let Some(other) = owners.insert(mac, index) {
                return Err(invalid(
                    format!("nics {other} and {index} have the same address {mac}"),
                    "give each card its own `mac`, or remove it and taut derives one",
                ));
            }
        }
        for (name, size) in [("rx", nic.rings.rx), ("tx", nic.rings.tx)] {
            if !size.is_power_of_two() || !(64..=1024).contains(&size) {
                return Err(invalid(
                    format!("nic {index}: rings.{name} = {size} descriptors is not a possible size"),
                    "use 64, 128, 256, 512 or 1024",
                ));
            }
        }
        if nic.queues.get() > 1 && (kind == VmKind::Micro || nic.model != NicModel::Virtio) {
            return Err(invalid(
                format!("nic {index}: only virtio cards under QEMU can have {} queue pairs", nic.queues),
                "remove `queues`: the card then has one pair",
            ));
        }
        if kind == VmKind::Micro && nic.model != NicModel::Virtio {
            return Err(invalid(
                format!("nic {index}: a micro VM supports only virtio cards"),
                "remove `model`, or use kind = \"qemu\"",
            ));
        }
    }
    Ok(())
}
