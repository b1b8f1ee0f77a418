//! taut on a host with two NUMA nodes and cgroup v2, or with a network card. That host is a guest,
//! its VMs are nested guests, and a script in it prints one fact a line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use taut_tests::{Image, bin_dir, image};

const NODES: [&str; 12] = [
    "-smp",
    "4,sockets=2",
    "-m",
    "1280M",
    "-object",
    "memory-backend-ram,id=m0,size=640M",
    "-object",
    "memory-backend-ram,id=m1,size=640M",
    "-numa",
    "node,nodeid=0,cpus=0-1,memdev=m0",
    "-numa",
    "node,nodeid=1,cpus=2-3,memdev=m1",
];

/// A network card with a cable.
const CARD: [&str; 4] = ["-netdev", "hubport,id=cable,hubid=0", "-device", "e1000e,netdev=cable"];

/// Boots a host with the kernel of `image` and these devices that only runs a script, and checks
/// that all its facts come true.
fn check(image: &Path, devices: &[&str], script: &str) {
    let said = run(image, devices, script);
    let wanted = script.lines().filter(|line| line.starts_with("fact \"")).count();
    let facts: Vec<_> = said.lines().map(str::trim_end).filter(|line| line.starts_with("ok ")).collect();
    assert!(said.contains("finished") && !said.contains("not ok"), "{said}");
    assert_eq!(facts.len(), wanted, "{said}");
}

fn run(image: &Path, devices: &[&str], script: &str) -> String {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let initrd: PathBuf = dir.path().join("initrd");
    let file = dir.path().join("script");
    std::fs::write(&file, format!("{}\n{script}", include_str!("nested/fact.sh"))).unwrap();
    let made = Command::new(checkout.parent().unwrap().join("tools/make-host.sh"))
        .arg(bin_dir())
        .arg(&file)
        .arg(&initrd)
        .status()
        .unwrap();
    assert!(made.success());
    if !devices.is_empty() {
        // The image has the modules of its kernel. What comes later replaces files of the same
        // name.
        let parts = [image.join("initrd"), initrd.clone()].map(|part| std::fs::read(part).unwrap());
        std::fs::write(&initrd, parts.concat()).unwrap();
    }
    let output = Command::new("timeout")
        .args([
            "--signal=KILL",
            // Only a host that hangs takes so long: on two idle cores it needs a small part of
            // that.
            "900",
            "qemu-system-x86_64",
            "-machine",
            "q35",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
        ])
        .args(NODES)
        .args(devices)
        .args(["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-kernel"])
        .arg(image.join("vmlinuz"))
        .arg("-initrd")
        .arg(&initrd)
        // The kernel's check of its timer fails if the host gives the emulated CPU no time.
        .args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn placement_shares_and_partitions_on_two_nodes_with_cgroup_v2() {
    // Isolated partitions need Linux 6.7.
    let Some(image) = image(Image::Debian6_12) else { return };
    check(&image, &[], include_str!("nested/placement.sh"));
}

#[test]
fn limits_with_cgroup_v2() {
    let Some(image) = image(Image::Debian6_12) else { return };
    check(&image, &[], include_str!("nested/limits.sh"));
}

#[test]
fn settings_of_an_emulated_card() {
    // The kernels of the other images have no drivers of physical cards.
    let Some(image) = image(Image::DebianFull) else { return };
    check(&image, &CARD, include_str!("nested/cards.sh"));
}
