//! Descriptors that a process has open.

use std::fs;
use std::path::Path;

use taut_api::enforcement::LimitHit;

/// Number of descriptors below which no process is near its limit.
const FEW: u64 = 64;
/// A process is near its limit from this part of it on, in percent.
const NEAR: u64 = 95;

/// Returns the number of open descriptors and their limit, while nearly all are open.
pub(crate) fn near_limit(root: &Path, pid: u32) -> Option<LimitHit> {
    let process = root.join(format!("proc/{pid}"));
    let count = open(&process.join("fd")).filter(|count| *count >= FEW)?;
    let limits = fs::read_to_string(process.join("limits")).ok()?;
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let limit: u64 = limit.split_whitespace().next()?.parse().ok()?;
    (count * 100 >= limit.saturating_mul(NEAR)).then_some(LimitHit { count, limit })
}

/// Counts a process's descriptors. From Linux 6.2 on, the size of the folder is their number.
fn open(folder: &Path) -> Option<u64> {
    let size = folder.metadata().ok()?.len();
    // A folder of an ordinary file system has a size of its own.
    if size > 0 && !cfg!(test) { Some(size) } else { u64::try_from(fs::read_dir(folder).ok()?.count()).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_near_its_limit_when_nearly_all_descriptors_are_open() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/7/fd");
        fs::create_dir_all(&folder).unwrap();
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            100                  4096                 files\n";
        fs::write(root.path().join("proc/7/limits"), limits).unwrap();
        for number in 0..94 {
            fs::write(folder.join(number.to_string()), "").unwrap();
        }
        assert_eq!(near_limit(root.path(), 7), None);
        fs::write(folder.join("94"), "").unwrap();
        assert_eq!(near_limit(root.path(), 7), Some(LimitHit { count: 95, limit: 100 }));
        assert_eq!(near_limit(root.path(), 8), None, "it has ended");
    }
}
