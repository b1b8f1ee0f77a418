//! Captured hosts: a text file that describes the files of a host that taut reads.
//!
//! [`unpack`] writes these files into a folder, which can then be read as a host's root.
//!
//! ```text
//! # a remark
//! proc/sys/vm/swappiness: 60
//! proc/meminfo:
//!   | MemTotal:       16384000 kB
//!   | MemAvailable:    8192000 kB
//! sys/devices/system/cpu/cpu{0..3}/cpufreq/scaling_governor: powersave
//! sys/devices/system/cpu/cpu{0..3}/topology/core_id: [0..1, 0..1]
//! dev/cpu_dma_latency: hex 00943577
//! ```
//!
//! Braces stand for several files; a list in brackets gives the content of each.
//! `tools/capture-host.sh` writes such a file.

use std::fs;
use std::io;
use std::path::{Component, Path};

/// Writes the files that `text` describes into `folder`.
///
/// # Errors
/// Returns an error that names the line if one cannot be parsed, or if a file cannot be written.
pub fn unpack(text: &str, folder: &Path) -> io::Result<()> {
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let bad = |what: &str| {
            io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {what}: {line}", number + 1))
        };
        let (pattern, content) = line.split_once(':').ok_or_else(|| bad("no colon after the path"))?;
        let mut content = content.trim().to_owned();
        while let Some((_, more)) = lines.next_if(|(_, line)| line.starts_with("  | ")) {
            content += &format!("{}{}", if content.is_empty() { "" } else { "\n" }, &more["  | ".len()..]);
        }
        let paths = expand(pattern).ok_or_else(|| bad("the braces hold no range"))?;
        let contents = match content.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
            Some(list) if paths.len() > 1 => items(list).ok_or_else(|| bad("a range has no numbers"))?,
            _ => vec![content; paths.len()],
        };
        if paths.len() != contents.len() {
            return Err(bad(&format!("{} files, {} contents", paths.len(), contents.len())));
        }
        for (path, content) in paths.iter().zip(contents) {
            if !Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(bad("the path leads out of the folder"));
            }
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            let bytes = match content.strip_prefix("hex ") {
                Some(digits) => hex(digits).ok_or_else(|| bad("not pairs of hexadecimal digits"))?,
                None => format!("{content}\n").into_bytes(),
            };
            fs::write(path, bytes)?;
        }
    }
    Ok(())
}

/// Expands `a{0..2}b` to `a0b`, `a1b`, `a2b`; several braces from left to right.
fn expand(pattern: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = pattern.split_once('{') else { return Some(vec![pattern.to_owned()]) };
    let (range, after) = rest.split_once('}')?;
    let after = expand(after)?;
    let numbers = self::range(range)?;
    Some(numbers.iter().flat_map(|n| after.iter().map(move |after| format!("{before}{n}{after}"))).collect())
}

/// Expands `0..1, x` to `0`, `1`, `x`.
fn items(list: &str) -> Option<Vec<String>> {
    let mut items = Vec::new();
    for item in list.split(',').map(str::trim) {
        if item.contains("..") { items.extend(range(item)?) } else { items.push(item.to_owned()) }
    }
    Some(items)
}

/// Exclusive upper bound of a number in a range, above what any captured host has.
const LIMIT: u32 = 4096;

fn range(text: &str) -> Option<Vec<String>> {
    let (first, last) = text.split_once("..")?;
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    (last < LIMIT).then(|| (first..=last).map(|number| number.to_string()).collect())
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if rest.is_empty() { pairs.iter().map(|digits| pair(digits)).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_lists_lines_and_bytes_are_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let text =
            "# m\na/cpu{0..2}/id: [0..1, x]\nb:\n  | one\n  | two\nc{0..1}: same\nd: hex 0aff\ne: [x] y\n";
        unpack(text, folder.path()).unwrap();
        let read = |path: &str| fs::read(folder.path().join(path)).unwrap();
        assert_eq!(read("a/cpu1/id"), b"1\n");
        assert_eq!(read("a/cpu2/id"), b"x\n");
        assert_eq!(read("b"), b"one\ntwo\n");
        assert_eq!((read("c0"), read("c1")), (b"same\n".to_vec(), b"same\n".to_vec()));
        assert_eq!(read("d"), [10, 255]);
        assert_eq!(read("e"), b"[x] y\n");
    }

    #[test]
    fn an_error_names_the_line() {
        let folder = tempfile::tempdir().unwrap();
        for bad in ["a", "a{0..}: 1", "a{0..2}: [1]", "../a: 1", "/a: 1", "a: hex 0"] {
            let error = unpack(&format!("x: 1\n{bad}\n"), folder.path()).unwrap_err();
            assert!(error.to_string().starts_with("line 2: "), "{bad}: {error}");
        }
    }
}
