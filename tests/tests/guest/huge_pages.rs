//! Huge pages: a VM with reserved memory gets them where the pool has enough, and the fabric works
//! in them.

use std::fs;

use taut_tests::{Netns, Prerequisite, Taut, any_image, eventually, require_found};

use crate::direct;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
/// Number of huge pages in the 128 MiB of [`direct`].
const PAGES: u64 = 64;

/// Resizes the host's pool to the pages in use and [`PAGES`] free ones, and restores it when
/// dropped.
struct Pool {
    before: u64,
}

impl Pool {
    /// Returns an error without a pool, or if the kernel finds too little contiguous memory.
    fn with_room() -> Result<Self, String> {
        let problem = |error: std::io::Error| format!("{POOL}/nr_hugepages: {error}");
        let before = number("nr_hugepages").map_err(problem)?;
        let pool = Self { before };
        let wanted = before - free() + PAGES;
        set(wanted).map_err(problem)?;
        match number("nr_hugepages").map_err(problem)? {
            got if got == wanted => Ok(pool),
            got => Err(format!("the kernel finds contiguous memory for {got} of {wanted} huge pages")),
        }
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

fn number(file: &str) -> std::io::Result<u64> {
    fs::read_to_string(format!("{POOL}/{file}"))?.trim().parse().map_err(std::io::Error::other)
}

/// Returns the number of pages that are neither used nor reserved.
fn free() -> u64 {
    number("free_hugepages").unwrap() - number("resv_hugepages").unwrap()
}

#[test]
fn reserved_memory_uses_huge_pages_if_enough_are_free() {
    let Some(_pool) = require_found(Prerequisite::HugePages, Pool::with_room()) else { return };
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
