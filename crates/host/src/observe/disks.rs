//! Block devices of the host: what they read and wrote (`/proc/diskstats`).

use std::fs;
use std::path::Path;

/// Bytes of a sector in the kernel's counters, whatever the device has.
const SECTOR: u64 = 512;

/// Counters of a block device since the boot. They may wrap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Name, such as `nvme0n1`.
    pub name: String,
    /// Reads that have ended.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time that reads took, in milliseconds, those at the same time each counted.
    pub read_ms: u64,
    /// Writes that have ended.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time that writes took, in milliseconds.
    pub write_ms: u64,
    /// Requests that the device works on now.
    pub active: u64,
    /// Time that the device had requests, in milliseconds.
    pub busy_ms: u64,
}

/// Reads the devices that have ever been used, without their partitions.
pub fn read(root: &Path) -> Vec<Disk> {
    let text = fs::read_to_string(root.join("proc/diskstats")).unwrap_or_default();
    let is_whole = |disk: &Disk| root.join("sys/block").join(disk.name.replace('/', "!")).exists();
    text.lines().filter_map(disk).filter(|disk| disk.reads + disk.writes > 0 && is_whole(disk)).collect()
}

/// Parses `major minor name reads merged sectors ms writes merged sectors ms active ms …`.
fn disk(line: &str) -> Option<Disk> {
    let mut words = line.split_whitespace().skip(2);
    let name = words.next()?.to_owned();
    let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let [reads, _, read, read_ms, writes, _, written, write_ms, active, busy_ms, ..] = numbers[..] else {
        return None;
    };
    Some(Disk {
        name,
        reads,
        read_bytes: read.wrapping_mul(SECTOR),
        read_ms,
        writes,
        written_bytes: written.wrapping_mul(SECTOR),
        write_ms,
        active,
        busy_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_devices_that_were_used_are_read() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["vda", "loop0"] {
            fs::create_dir_all(dir.path().join("sys/block").join(name)).unwrap();
        }
        fs::create_dir_all(dir.path().join("proc")).unwrap();
        let text = " 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0 0\n\
                    254 0 vda 10 1 80 5 20 2 400 60 3 33 65 0 0 0 0 1 1\n\
                    254 1 vda1 10 1 80 5 20 2 400 60 0 33 65\n\
                    254 2 short 1 2\n";
        fs::write(dir.path().join("proc/diskstats"), text).unwrap();
        let vda = Disk {
            name: "vda".to_owned(),
            reads: 10,
            read_bytes: 40_960,
            read_ms: 5,
            writes: 20,
            written_bytes: 204_800,
            write_ms: 60,
            active: 3,
            busy_ms: 33,
        };
        assert_eq!(read(dir.path()), [vda]);
    }
}
