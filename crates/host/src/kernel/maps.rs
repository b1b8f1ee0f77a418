//! `/proc/PID/maps`: the addresses of a guest's memory in its process.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

/// Maximum number of bytes read from the file. The kernel's limit of 65,530 mappings fits, unless
/// their names are excessively long.
const MAX_TEXT: u64 = 16 << 20;

/// Returns the addresses of a guest's memory in process `pid`, ascending: its shared mappings of
/// memfd files. They add up to at most `most` bytes, however much the process maps.
///
/// # Errors
/// Returns an error if the process has ended or may not be inspected.
pub(crate) fn read(root: &Path, pid: u32, most: u64) -> io::Result<Vec<Range<u64>>> {
    let mut text = Vec::new();
    File::open(root.join(format!("proc/{pid}/maps")))?.take(MAX_TEXT).read_to_end(&mut text)?;
    Ok(parse(&String::from_utf8_lossy(&text), most))
}

fn parse(text: &str, mut most: u64) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    for mut range in text.lines().filter_map(mapping) {
        range.end = range.end.min(range.start.saturating_add(most));
        if range.is_empty() {
            break;
        }
        most -= range.end - range.start;
        ranges.push(range);
    }
    ranges
}

/// Parses a line such as `7f…-7f… rw-s 00000000 00:01 1031 /memfd:NAME (deleted)`. Returns `None`
/// for another file or a private mapping.
fn mapping(line: &str) -> Option<Range<u64>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let shared = words.next()?.ends_with('s');
    let file = words.nth(3)?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    (shared && file.starts_with("/memfd:")).then_some(address(start)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Captured from QEMU 10.0.2 with 128 MiB.
    const QEMU: &str = "\
55e1f0a00000-55e1f0d83000 r--p 00000000 fe:00 1835157                    /usr/bin/qemu-system-x86_64
55e2153e5000-55e216a3c000 rw-p 00000000 00:00 0                          [heap]
7f61f7e00000-7f61ffe00000 rw-s 00000000 00:01 6150                       /memfd:memory-backend-memfd (deleted)
7f6200000000-7f6200021000 rw-p 00000000 00:00 0 
7f6210000000-7f6210001000 rw-p 00000000 00:01 6151                       /memfd:private (deleted)
7f6290000000-7f6290002000 rw-s 00000000 00:01 6152                       /memfd:a b (deleted)
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn shared_memfd_mappings_are_found_up_to_the_bound() {
        let (ram, other) = (0x7f61_f7e0_0000..0x7f61_ffe0_0000, 0x7f62_9000_0000..0x7f62_9000_2000);
        assert_eq!(parse(QEMU, 1 << 40), [ram.clone(), other]);
        assert_eq!(parse(QEMU, 128 << 20), std::slice::from_ref(&ram));
        let page = ram.start..ram.start + 4096;
        assert_eq!(parse(QEMU, 4096), std::slice::from_ref(&page));
        assert_eq!(parse(QEMU, 0), []);
    }

    #[test]
    fn malformed_lines_are_skipped() {
        for line in [
            "",
            "-",
            "1-2",
            "1-2 rw-s 0 0 0",
            "x-2 rw-s 0 0:1 6 /memfd:a",
            "1-10000000000000000 rw-s 0 0:1 6 /memfd:a",
            "1000-2000 rw-s 0 0:1 6 /tmp/memfd:a",
        ] {
            assert_eq!(mapping(line), None, "{line}");
        }
        assert_eq!(parse("2000-1000 rw-s 0 0:1 6 /memfd:a", 9), []);
        let all = parse("0-ffffffffffffffff rw-s 0 0:1 6 /memfd:a", u64::MAX);
        assert_eq!(all.first().map(|range| (range.start, range.end)), Some((0, u64::MAX)));
    }

    proptest::proptest! {
        #[test]
        fn ranges_of_any_text_stay_within_the_bound(text in "([0-9a-f]{0,17}-?[0-9a-f]{0,17} rw-s 0 0:1 6 /memfd:a\n|.{0,9}\n){0,9}", most in 0..1u64 << 40) {
            let ranges = parse(&text, most);
            let sum: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            proptest::prop_assert!(sum <= most);
        }
    }
}
