//! Name, processors, memory and latency sensitivity.

use taut_api::resources::{CpuReservation, MemoryReservation};
use taut_api::vm::{LatencySensitivity, VmSpec};
use taut_api::{ApiError, Bytes, Name};

use super::file::VmxFile;
use crate::error::invalid;

/// Reads `displayName` and turns it into a valid name.
pub(super) fn name(file: &mut VmxFile) -> Option<Name> {
    let display = file.get("displayname")?.to_owned();
    let name = usable_name(&display);
    match &name {
        Some(name) if name.as_str() == display => file.understood("displayname", "name"),
        Some(name) => {
            file.mapped(
                "displayname",
                "name",
                format!("{name}: names consist of letters, digits, `-`, `_` and `.`"),
            );
        }
        None => file.reported("displayname", "no character in it can be part of a name"),
    }
    name
}

/// Turns a text into a name: characters that a name cannot have become `-`.
pub(super) fn usable_name(text: &str) -> Option<Name> {
    let legal = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let mapped: String = text.chars().map(legal).collect();
    let trimmed = mapped.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let mut short = trimmed.chars().take(63).collect::<String>();
    short.truncate(short.trim_end_matches('-').len());
    short.parse().ok()
}

/// Reads processors, memory and latency sensitivity.
pub(super) fn read(file: &mut VmxFile, spec: &mut VmSpec) -> Result<(), ApiError> {
    if let Some(vcpus) = file.parsed("numvcpus", "a number of virtual CPUs")? {
        spec.vcpus = vcpus;
        file.understood("numvcpus", "vcpus");
    }
    memory(file, spec)?;
    latency_sensitivity(file, spec);
    reservations(file, spec)
}

fn memory(file: &mut VmxFile, spec: &mut VmSpec) -> Result<(), ApiError> {
    let Some(mib) = file.parsed::<u64>("memsize", "a size in MB")? else { return Ok(()) };
    // A huge page has two megabytes.
    let rounded = mib.checked_next_multiple_of(2).filter(|mib| *mib <= u64::MAX >> 20);
    let rounded = rounded.ok_or_else(|| {
        invalid(
            format!("memSize = \"{mib}\" MB is more than any machine has"),
            "correct the value in the .vmx",
        )
    })?;
    spec.memory = Bytes::mib(rounded);
    if rounded == mib {
        file.understood("memsize", "memory");
    } else {
        file.mapped("memsize", "memory", format!("{}: rounded up to whole huge pages", spec.memory));
    }
    Ok(())
}

fn latency_sensitivity(file: &mut VmxFile, spec: &mut VmSpec) {
    const KEY: &str = "sched.cpu.latencysensitivity";
    const FIELD: &str = "latency_sensitivity";
    let Some(value) = file.get(KEY).map(str::to_ascii_lowercase) else { return };
    match value.as_str() {
        "normal" => file.understood(KEY, FIELD),
        "high" => {
            spec.latency_sensitivity = LatencySensitivity::High;
            file.understood(KEY, FIELD);
        }
        "low" | "medium" => file.mapped(KEY, FIELD, "normal: ESX's experimental levels have no counterpart"),
        _ => file.mapped(KEY, FIELD, "normal: the value is not a level of ESX"),
    }
}

/// Reads the reservations: `sched.cpu.min`, `sched.mem.min` and `sched.mem.pin`.
fn reservations(file: &mut VmxFile, spec: &mut VmSpec) -> Result<(), ApiError> {
    const CPU: &str = "sched.cpu.min";
    const MEMORY: &str = "sched.mem.min";
    const PIN: &str = "sched.mem.pin";
    // ESX calculates values in other units itself. Only MHz can be taken over.
    let in_mhz = file.get("sched.cpu.units").is_none_or(|units| units.eq_ignore_ascii_case("mhz"));
    if in_mhz && let Some(mhz) = file.parsed::<u32>(CPU, "a number of MHz")? {
        spec.cpu.reservation = if mhz == 0 { CpuReservation::None } else { CpuReservation::Mhz(mhz) };
        file.understood(CPU, "cpu.reservation");
        file.understood("sched.cpu.units", "cpu.reservation");
    }
    if let Some(mib) = file.parsed::<u64>(MEMORY, "a size in MB")? {
        let size = Bytes::mib(mib.min(u64::MAX >> 20));
        spec.memory_reservation = match size {
            Bytes(0) => MemoryReservation::None,
            size if size >= spec.memory => MemoryReservation::Full,
            size => MemoryReservation::Size(size),
        };
        file.understood(MEMORY, "memory_reservation");
    }
    if file.is_true(PIN) {
        spec.memory_reservation = MemoryReservation::Full;
        file.mapped(PIN, "memory_reservation", "full: fully reserved memory is locked");
    }
    // A file of ESX may have the sensitivity without the reservation that it requires. taut would
    // refuse such a VM.
    if spec.latency_sensitivity != LatencySensitivity::Normal
        && spec.memory_reservation.of(spec.memory) < spec.memory
    {
        spec.latency_sensitivity = LatencySensitivity::Normal;
        let note = "normal: high requires that all memory is reserved (sched.mem.min)";
        file.mapped("sched.cpu.latencysensitivity", "latency_sensitivity", note);
    }
    Ok(())
}
