//! taut on hosts of other kinds: with two NUMA nodes and cgroup v2, with a network card, with an
//! old kernel. Such a host is a guest, its VMs are nested guests, and a script in it prints one
//! fact a line.
//!
//! `make test` runs these tests beside the host tier, at idle priority. They share nothing with it:
//! the emulated host has namespaces, control groups and interfaces of its own, and its files are in
//! a new folder. Their time limits guard only against hosts that hang.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use taut_tests::{Image, TIERS, bin_dir, built, image};

/// The parts of a host that not every host has.
#[derive(Debug, Clone, Copy)]
struct Host<'a> {
    /// Arguments for QEMU.
    hardware: &'a [&'a str],
    /// Modules of its kernel, beside those of a guest image. Without any, it has none.
    modules: &'a [&'a str],
    /// Programs of this system.
    programs: &'a [&'a str],
    /// Files that the script finds in `/files`.
    files: &'a [PathBuf],
    /// Words of the kernel's command line.
    kernel: &'a str,
    /// How QEMU emulates the CPUs: each by a thread (`multi`), or all by one (`single`).
    threads: &'a str,
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
const NUMA: Host<'_> =
    Host { hardware: &TWO_NODES, modules: &[], programs: &[], files: &[], kernel: "", threads: "multi" };

/// One thread for all CPUs. If each has its own, QEMU 10.0 sometimes ends by an assertion in
/// `iotlb_to_section` while devices come and go.
const ONE: &str = "single";

/// A network card with a cable, which the script removes.
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
    files: &[],
    kernel: "",
    threads: ONE,
};

/// Boots a host with the kernel of `image` that only runs a script, and checks that all its facts
/// come true.
fn check(image: &Path, host: &Host<'_>, script: &str) {
    let said = run(image, host, script);
    let is_fact = |line: &&str| line.starts_with("fact \"") || line.starts_with("once \"");
    let wanted = script.lines().filter(is_fact).count();
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
        .env("FILES", host.files.iter().map(|file| file.to_str().unwrap()).collect::<Vec<_>>().join(" "))
        .status()
        .unwrap();
    assert!(made.success());
    let output = Command::new("timeout")
        .args([
            // QEMU stays in the process group of this test: whoever ends the group ends QEMU, too.
            "--foreground",
            "--signal=KILL",
            // Only a host that hangs takes so long: on two idle cores it needs a small part of
            // that, and at idle priority it goes on when the host tier has ended.
            "1800",
            "qemu-system-x86_64",
            "-machine",
            "q35",
            "-accel",
            &format!("tcg,thread={}", host.threads),
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
    // Partitions below a VM's control group need Linux 6.11.
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

/// An igb (82576) with virtual functions behind an IOMMU, and its cable.
const FUNCTIONS: [&str; 12] = [
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
];

/// An e1000e at the other end of the cable.
const OTHER_END: [&str; 4] = ["-netdev", "hubport,id=end,hubid=0", "-device", "e1000e,netdev=end"];

#[test]
fn virtual_functions_of_an_emulated_card() {
    let Some(image) = image(Image::DebianFull) else { return };
    let host = Host {
        hardware: &FUNCTIONS,
        modules: &["igb", "igbvf", "vfio-pci", "vfio_iommu_type1"],
        programs: &["basename"],
        files: &[],
        kernel: "intel_iommu=on",
        threads: ONE,
    };
    check(&image, &host, include_str!("nested/functions.sh"));
}

#[test]
fn frames_of_a_virtual_function() {
    let Some(image) = image(Image::DebianFull) else { return };
    let host = Host {
        hardware: &[&FUNCTIONS[..], &OTHER_END].concat(),
        modules: &["e1000e", "igb", "igbvf", "vfio-pci", "vfio_iommu_type1"],
        programs: &["basename", "cpio", "ping", "seq"],
        files: &[image.join("vmlinuz"), image.join("initrd")],
        kernel: "intel_iommu=on",
        threads: ONE,
    };
    check(&image, &host, include_str!("nested/frames.sh"));
}

#[test]
fn uplinks_on_debian_12s_kernel() {
    let Some(image) = image(Image::Debian6_1) else { return };
    let tests = built(&TIERS).into_iter().find(|program| program["target"]["name"] == "host");
    let tests = tests.expect("cargo built it")["executable"].as_str().unwrap().to_owned();
    let dir = tempfile::tempdir().unwrap();
    let host = dir.path().join("host");
    let stripped = Command::new("strip").arg("--strip-debug").arg("-o").arg(&host).arg(tests).status();
    assert!(stripped.unwrap().success());
    let host = Host {
        hardware: &["-smp", "2", "-m", "1536M"],
        // A Debian host loads them as soon as they are needed.
        modules: &["veth", "tun", "bridge", "8021q", "macvlan", "sch_ingress", "cls_bpf"],
        programs: &["bridge", "iperf3", "ping", "ss", "tc", "umount", host.to_str().unwrap()],
        files: &[],
        kernel: "",
        threads: "multi",
    };
    check(&image, &host, include_str!("nested/uplinks.sh"));
}
