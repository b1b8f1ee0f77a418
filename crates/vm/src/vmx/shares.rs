//! Shares and limits of CPU and memory.

use taut_api::shares::{CpuLimit, MemoryLimit, Shares};
use taut_api::vm::VmSpec;
use taut_api::{ApiError, Bytes};

use super::file::VmxFile;

/// Reads `sched.cpu.shares`, `sched.cpu.max`, `sched.mem.shares` and `sched.mem.max`. Processors
/// and memory must have been read before.
pub(super) fn read(file: &mut VmxFile, spec: &mut VmSpec) -> Result<(), ApiError> {
    const CPU: &str = "sched.cpu.max";
    const MEMORY: &str = "sched.mem.max";
    spec.cpu.shares = shares(file, "sched.cpu.shares", "cpu.shares");
    spec.memory_shares = shares(file, "sched.mem.shares", "memory_shares");
    let in_mhz = file.get("sched.cpu.units").is_none_or(|units| units.eq_ignore_ascii_case("mhz"));
    if in_mhz && file.get(CPU).is_some() {
        let mhz = limit(file, CPU, "a number of MHz, or unlimited")?;
        spec.cpu.limit = mhz.map_or(CpuLimit::None, CpuLimit::Mhz);
        file.understood(CPU, "cpu.limit");
    }
    if file.get(MEMORY).is_some() {
        let mib = limit(file, MEMORY, "a size in MB, or unlimited")?;
        // A limit that is not below the memory has no effect. The memory may have been rounded up.
        let least = spec.memory.as_mib().saturating_sub(1);
        let size = mib.map(u64::from).filter(|mib| *mib < least);
        spec.memory_limit = size.map_or(MemoryLimit::None, |mib| MemoryLimit::Size(Bytes::mib(mib)));
        file.understood(MEMORY, "memory_limit");
    }
    Ok(())
}

/// Reads a limit. ESX writes "no limit" as a word or as -1; 0 means the same.
fn limit(file: &VmxFile, key: &str, what: &str) -> Result<Option<u32>, ApiError> {
    if file
        .get(key)
        .is_some_and(|value| ["unlimited", "-1", "0"].contains(&value.trim().to_ascii_lowercase().as_str()))
    {
        return Ok(None);
    }
    file.parsed::<u32>(key, what)
}

/// Reads shares of one kind: one of ESX's levels or a number.
pub(super) fn shares(file: &mut VmxFile, key: &str, field: &str) -> Shares {
    let Some(value) = file.get(key).map(str::to_owned) else { return Shares::Normal };
    match (value.parse::<Shares>(), value.trim().parse::<u32>()) {
        (Ok(shares), _) => {
            file.understood(key, field);
            shares
        }
        (Err(_), Ok(number)) if number > Shares::MOST => {
            file.mapped(key, field, format!("{}: the largest number of shares", Shares::MOST));
            Shares::Custom(Shares::MOST)
        }
        _ => {
            file.mapped(key, field, "normal: the value is neither a level of ESX nor a number");
            Shares::Normal
        }
    }
}
