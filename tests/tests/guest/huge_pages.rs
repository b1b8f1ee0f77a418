//! Huge pages: a VM with reserved memory gets them where the pool has enough, and the fabric works
//! in them.

use std::fs;

use taut_tests::{Netns, Taut, eventually};

use crate::{any_image, direct};

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// Number of huge pages in the 128 MiB of [`direct`].
const PAGES: u64 = 64;

/// Resizes the host's pool to the pages in use and [`PAGES`] free ones, and restores it when
/// dropped.
struct Pool {
    before: u64,
}

impl Pool {
    /// Returns `None` without a pool, or if the kernel finds too little contiguous memory.
    fn with_room() -> Option<Self> {
        let before = number("nr_hugepages")?;
        let pool = Self { before };
        let held = before - free();
        set(held + PAGES).ok()?;
        (number("nr_hugepages")? == held + PAGES).then_some(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The failure of the test matters more than this error.
        let _ = set(self.before);
    }
}

fn set(pages: u64) -> std::io::Result<()> {
    fs::write(format!("{POOL}/nr_hugepages"), pages.to_string())
}

fn number(file: &str) -> Option<u64> {
    fs::read_to_string(format!("{POOL}/{file}")).ok()?.trim().parse().ok()
}

/// Returns the number of pages that are neither used nor reserved.
fn free() -> u64 {
    number("free_hugepages").unwrap() - number("resv_hugepages").unwrap()
}

#[test]
fn reserved_memory_uses_huge_pages_if_enough_are_free() {
    let Some(_pool) = Pool::with_room() else {
        eprintln!("left out: the kernel has no pool of huge pages, or too little memory in one piece");
        return;
    };
    assert_eq!(free(), PAGES);
    let taut = Taut::start().with_lan();
    let file = |ip| format!("memory_reservation = \"full\"\n{}", direct(&any_image(), ip));
    taut.boot("huge", &file("ip = \"10.72.0.1/24\""));
    assert_eq!(free(), 0, "all of its memory is from the pool");
    let explained = |name: &str| taut.ok(["vm", "explain", name]);
    assert!(explained("huge").contains("its memory is on huge pages of 2 MiB"), "{}", explained("huge"));
    // No pages are left for a second VM, which runs all the same; frames pass between both.
    taut.boot("plain", &file("ip = \"10.72.0.2/24\""));
    assert!(explained("plain").contains("its memory is on ordinary pages"), "{}", explained("plain"));
    let probe = Netns::attach(&taut, "probe", "lan", "10.72.0.9");
    for ip in ["10.72.0.1", "10.72.0.2"] {
        probe.reaches(ip, 10);
    }
    taut.ok(["bench", "stream", "plain", "huge", "--duration", "1"]);
    taut.ok(["bench", "rr", "huge", "plain", "--duration", "1"]);
    for vm in ["plain", "huge"] {
        taut.ok(["vm", "stop", "--force", vm]);
    }
    eventually("the pool has its pages back", || (free() == PAGES).then_some(()));
}
