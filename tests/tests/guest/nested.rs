//! taut on hosts of other kinds: with two NUMA nodes and cgroup v2, with a network card. Such a
//! host is a guest, its VMs are nested guests, and a script in it prints one fact a line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use taut_tests::{Image, bin_dir, image};

/// The parts of a host that not every host has.
#[derive(Debug, Clone, Copy)]
struct Host<'a> {
    /// Arguments for QEMU.
    hardware: &'a [&'a str],
    /// Modules of its kernel, beside those of a guest image. Without any, it has none.
    modules: &'a [&'a str],
    /// Programs of this system.
    programs: &'a [&'a str],
    /// Words of the kernel's command line.
    kernel: &'a str,
}

/// Two NUMA nodes.
const TWO_NODES: [&str; 12] = [
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
const NUMA: Host<'_> = Host { hardware: &TWO_NODES, modules: &[], programs: &[], kernel: "" };

/// A network card with a cable.
const CARD: Host<'_> = Host {
    hardware: &[
        "-smp",
        "2",
        "-m",
        "1G",
        "-netdev",
        "hubport,id=cable,hubid=0",
        "-device",
        "e1000e,netdev=cable",
    ],
    modules: &["e1000e"],
    programs: &[],
    kernel: "",
};

/// Boots a host with the kernel of `image` that only runs a script, and checks that all its facts
/// come true.
fn check(image: &Path, host: &Host<'_>, script: &str) {
    let said = run(image, host, script);
    let wanted = script.lines().filter(|line| line.starts_with("fact \"")).count();
    let facts: Vec<_> = said.lines().map(str::trim_end).filter(|line| line.starts_with("ok ")).collect();
    assert!(said.contains("finished") && !said.contains("not ok"), "{said}");
    assert_eq!(facts.len(), wanted, "{said}");
}

fn run(image: &Path, host: &Host<'_>, script: &str) -> String {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let initrd: PathBuf = dir.path().join("initrd");
    let file = dir.path().join("script");
    std::fs::write(&file, format!("{}\n{script}", include_str!("nested/fact.sh"))).unwrap();
    let made = Command::new(checkout.parent().unwrap().join("tools/make-host.sh"))
        .arg(bin_dir())
        .arg(&file)
        .arg(&initrd)
        .arg(image)
        .args(host.modules)
        .env("PROGRAMS", host.programs.join(" "))
        .status()
        .unwrap();
    assert!(made.success());
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
        .args(host.hardware)
        .args(["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-kernel"])
        .arg(image.join("vmlinuz"))
        .arg("-initrd")
        .arg(&initrd)
        // The kernel's check of its timer fails if the host gives the emulated CPU no time.
        .arg("-append")
        .arg(format!("console=ttyS0 quiet panic=-1 no_timer_check {}", host.kernel))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn placement_shares_and_partitions_on_two_nodes_with_cgroup_v2() {
    // Isolated partitions need Linux 6.7.
    let Some(image) = image(Image::Debian6_12) else { return };
    check(&image, &NUMA, include_str!("nested/placement.sh"));
}

#[test]
fn limits_with_cgroup_v2() {
    let Some(image) = image(Image::Debian6_12) else { return };
    check(&image, &NUMA, include_str!("nested/limits.sh"));
}

#[test]
fn settings_of_an_emulated_card() {
    // The kernels of the other images have no drivers of physical cards.
    let Some(image) = image(Image::DebianFull) else { return };
    check(&image, &CARD, include_str!("nested/cards.sh"));
}

#[test]
fn virtual_functions_of_an_emulated_card() {
    let Some(image) = image(Image::DebianFull) else { return };
    let host = Host {
        hardware: &[
            "-smp",
            "2",
            "-m",
            "1G",
            "-device",
            "intel-iommu,intremap=on",
            "-device",
            "pcie-root-port,id=root",
            "-netdev",
            "hubport,id=cable,hubid=0",
            "-device",
            "igb,bus=root,netdev=cable",
        ],
        modules: &["igb", "igbvf", "vfio-pci", "vfio_iommu_type1"],
        programs: &["basename"],
        kernel: "intel_iommu=on",
    };
    check(&image, &host, include_str!("nested/functions.sh"));
}
