//! `SOCK_SEQPACKET` between Linux guests with different kernels: a program in each of them sends
//! messages to the other one and compares what arrives.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use taut_tests::{Image, Taut, bin_dir, image};

use crate::preload::{guest_with, printed, vm_file};

/// Messages of all lengths in each direction, unless `TAUT_SEQPACKET_MESSAGES` says another number.
const MESSAGES: u64 = 100_000;
/// Time for as many messages, and for the other parts of the program, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Boots a guest that runs `script` with the program.
fn boot(taut: &Taut, name: &str, image: &Path, cid: u32, script: &str) {
    let program = bin_dir().join("examples/seqpacket");
    assert!(program.exists(), "`make test-guest` builds {}", program.display());
    let guest = guest_with(taut, image, name, ["", script], &[program]);
    taut.boot(name, &vm_file(&guest, &format!("[vmci]\ncid = {cid}\ndomains = [\"records\"]")));
}

/// Waits until the program in a guest is done, and prints its lines.
fn passes(taut: &Taut, name: &str, patience: Duration) {
    let end = Instant::now() + patience;
    // Looking often would take CPU time from the guests.
    let log = loop {
        sleep(Duration::from_millis(500));
        let log = taut.ok(["vm", "log", name]);
        assert!(!log.contains("seqpacket: failed"), "{log}");
        if log.contains("seqpacket: all was as planned.") {
            break log;
        }
        assert!(Instant::now() < end, "not done after {patience:?}: {log}");
    };
    log.lines().filter(|line| line.starts_with("seqpacket: ")).for_each(|line| println!("{name}: {line}"));
}

#[test]
fn records_pass_between_kernels_whole_and_in_order() {
    let messages = std::env::var("TAUT_SEQPACKET_MESSAGES").ok();
    let messages = messages.map_or(MESSAGES, |count| count.parse().expect("TAUT_SEQPACKET_MESSAGES"));
    let (Some(old), Some(new)) = (image(Image::Debian6_1), image(Image::Debian6_12)) else { return };
    let taut = Taut::start();
    boot(&taut, "server", &old, 101, "seqpacket serve\n");
    printed(&taut, "server", &["seqpacket: serves"]);
    boot(&taut, "client", &new, 102, &format!("seqpacket drive 101 --messages {messages}\n"));
    passes(&taut, "client", PATIENCE * (1 + messages / MESSAGES) as u32);
    let Some(newest) = image(Image::DebianNewest) else { return };
    let few = messages / 10;
    boot(&taut, "newest", &newest, 103, &format!("seqpacket drive 101 --messages {few}\n"));
    passes(&taut, "newest", PATIENCE);
}
