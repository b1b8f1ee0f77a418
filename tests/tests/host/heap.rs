//! Memory of the daemon: one heap, for which it has asked for huge pages.

use std::fs;

use taut_tests::Taut;

/// Returns the bytes of each part of the heap that the kernel may put in huge pages.
fn marked(smaps: &str) -> Vec<u64> {
    let mut parts = Vec::new();
    let (mut is_heap, mut len) = (false, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
            (is_heap, len) = (line.ends_with("[heap]"), end - start);
        } else if is_heap && first == "VmFlags:" && words.any(|flag| flag == "hg") {
            parts.push(len);
        }
    }
    parts
}

#[test]
fn the_first_step_of_the_heap_is_marked_for_huge_pages() {
    let taut = Taut::start();
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", taut.daemon_pid())).unwrap();
    assert!(marked(&smaps).iter().any(|&len| len >= 64 << 20), "{smaps}");
}
