//! Datagram sockets of `AF_VSOCK` for programs with `libtaut_vmci.so`, which Linux guests do not
//! have otherwise.

use std::thread::sleep;
use std::time::{Duration, Instant};

use taut_tests::{Image, Taut, any_image, bin_dir, image};

use crate::preload::{guest_with, vm_file};

/// Datagrams from VM to VM and back, unless `TAUT_DATAGRAMS` says another number.
const DATAGRAMS: u64 = 20_000;
/// Time for as many on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const WITH: &str = "export LD_PRELOAD=/usr/local/lib/libtaut_vmci.so\n";

/// Waits until a guest has printed a line with `wanted`, and returns all that it printed.
fn finished(taut: &Taut, vm: &str, wanted: &str, patience: Duration) -> String {
    let end = Instant::now() + patience;
    loop {
        // Looking often would take CPU time from the guests.
        sleep(Duration::from_millis(500));
        let log = taut.ok(["vm", "log", vm]);
        assert!(!["Error", "panicked"].iter().any(|word| log.contains(word)), "{log}");
        if log.contains(wanted) {
            return log;
        }
        assert!(Instant::now() < end, "{vm} does not print {wanted:?}: {log}");
    }
}

#[test]
fn programs_with_the_library_have_datagram_sockets() {
    let program = bin_dir().join("examples/datagrams");
    assert!(program.exists(), "`make test-guest` builds {}", program.display());
    let count = std::env::var("TAUT_DATAGRAMS").ok();
    let count = count.map_or(DATAGRAMS, |count| count.parse().expect("TAUT_DATAGRAMS"));
    let Some(image) = image(Image::Debian6_12) else { return };
    let serve = format!("{WITH}datagrams serve\n");
    let drive = format!("datagrams\n{WITH}datagrams && datagrams drive 101 {count}\n");
    let taut = Taut::start();
    taut.boot_all([("server", any_image(), 101, serve), ("client", image, 102, drive)].map(
        |(name, image, cid, script)| {
            let guest = guest_with(&taut, &image, name, ["", &script], std::slice::from_ref(&program));
            (name, vm_file(&guest, &format!("[vmci]\ncid = {cid}\ndomains = [\"datagrams\"]")))
        },
    ));
    let log = finished(&taut, "client", "datagrams: all scenarios passed.", PATIENCE);
    // Without the library there is a clear error.
    assert!(log.contains("datagrams: refused: No such device"), "{log}");
    let patience = PATIENCE * u32::try_from(1 + count / DATAGRAMS).expect("a number of datagrams");
    let log = finished(&taut, "client", "came back as they were", patience);
    log.lines().filter(|line| line.contains("came back")).for_each(|line| println!("{line}"));
}
