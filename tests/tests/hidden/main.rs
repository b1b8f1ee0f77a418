//! Hides each prerequisite in turn, by a namespace or a folder, from the programs under test as
//! from the tests. Tests that need the prerequisite must fail and name it, or leave themselves out
//! if `TAUT_ALLOW_SKIP` names it.
//!
//! `make test-hidden` runs this as root. `make test` does not: some of the tests boot VMs.

mod suite;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use suite::Suite;
use taut_tests::{Controller, Image, Prerequisite, any_image};

/// A way to hide a prerequisite from a program.
enum Hide {
    /// In a mount namespace, this shell command covers a file or folder.
    Mount(&'static str),
    /// In a network namespace with a loopback interface, this shell command changes a setting.
    Net(&'static str),
    /// The program may run on one pCPU only.
    OnePcpu,
    /// The folder of images lacks this one.
    Image(Image),
}

impl Hide {
    /// Returns a command that runs `program` without the prerequisite. `scratch` is a folder for
    /// files that it needs.
    fn command(&self, program: &Path, scratch: &Path) -> Command {
        let unshared = |namespace: &str, script: &str| {
            let mut command = Command::new("unshare");
            let script = format!("set -e; {script}; exec \"$@\"");
            command.args([namespace, "sh", "-c", &script, "sh"]).arg(program);
            command
        };
        match self {
            Self::Mount(script) => unshared("--mount", script),
            Self::Net(script) => unshared("--net", &format!("ip link set lo up; {script}")),
            Self::OnePcpu => {
                let mut command = Command::new("taskset");
                command.args(["--cpu-list", "0"]).arg(program);
                command
            }
            Self::Image(image) => {
                let mut command = Command::new(program);
                command.env("TAUT_IMAGES", images_without(*image, scratch));
                command
            }
        }
    }
}

/// Makes a folder with links to all images but one.
fn images_without(image: Image, scratch: &Path) -> std::path::PathBuf {
    let folder = scratch.join("images");
    fs::create_dir_all(&folder).unwrap();
    let found = any_image();
    for entry in fs::read_dir(found.parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        let link = folder.join(entry.file_name());
        if entry.file_name() != Prerequisite::Image(image).name() && !link.exists() {
            symlink(entry.path(), link).unwrap();
        }
    }
    folder
}

/// Runs tests whose path contains `tests`, without a prerequisite. They must fail and name it, and
/// leave themselves out if that is allowed.
fn check(prerequisite: Prerequisite, hide: &Hide, suite: Suite, tests: &str) {
    let scratch = tempfile::tempdir().unwrap();
    let program = suite.program();
    let others = std::env::var("TAUT_ALLOW_SKIP").unwrap_or_default();
    let others = others.split(',').map(str::trim);
    let others: Vec<&str> = others.filter(|name| !name.is_empty() && *name != prerequisite.name()).collect();
    let run = |allowed: &[&str]| -> (Output, String) {
        let mut command = hide.command(&program.path, scratch.path());
        command.args([tests, "--test-threads=1"]).current_dir(&program.folder);
        // The file of skips is below the target folder.
        command.env("CARGO_TARGET_DIR", scratch.path()).env("TAUT_ALLOW_SKIP", allowed.join(","));
        let output = command.output().unwrap();
        let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
        (output, said)
    };
    let name = prerequisite.name();

    let (output, said) = run(&others);
    let failed = said.lines().filter(|line| line.starts_with("test ") && line.ends_with("FAILED")).count();
    let named = said.matches(&format!("the prerequisite {name} is missing: ")).count();
    assert!(!output.status.success() && failed > 0, "nothing failed without {name}: {said}");
    assert_eq!(named, failed, "not every failed test names {name}: {said}");
    assert!(
        said.contains(&format!("TAUT_ALLOW_SKIP={}", [&others[..], &[name]].concat().join(","))),
        "{said}"
    );

    let (output, said) = run(&[&others[..], &[name]].concat());
    assert!(output.status.success(), "failed although {name} may be missing: {said}");
    let skips = fs::read_to_string(scratch.path().join("skips.txt")).unwrap();
    let left_out = skips.lines().filter(|line| line.starts_with(&format!("{name}: "))).count();
    assert!(left_out >= failed, "{failed} tests failed, {left_out} left themselves out: {skips}");
    assert!(skips.lines().all(|line| said.contains(&format!("left out: {line}"))), "{said}");
    println!("without {name}: {failed} of `{tests}` fail and name it; when allowed, {left_out} left out:");
    skips.lines().for_each(|line| println!("  {line}"));
}

const CGROUPS: Hide = Hide::Mount("[ ! -e /sys/fs/cgroup ] || mount -t tmpfs none /sys/fs/cgroup");

#[test]
fn kvm() {
    let hide = Hide::Mount("[ ! -e /dev/kvm ] || mount --bind /dev/null /dev/kvm");
    check(Prerequisite::Kvm, &hide, Suite::Guest, "firmware::everything");
}

#[test]
fn cgroup_v1() {
    let needs = |controller, suite, tests| check(Prerequisite::CgroupV1(controller), &CGROUPS, suite, tests);
    needs(Controller::Cpuset, Suite::Host, "latency::");
    needs(Controller::Cpuset, Suite::Host, "guide::latency");
    needs(Controller::Cpu, Suite::Host, "shares::");
    needs(Controller::Blkio, Suite::Guest, "firmware::disk_shares");
}

#[test]
fn real_time_groups() {
    check(Prerequisite::RealTimeGroups, &CGROUPS, Suite::Host, "bench::");
}

#[test]
fn huge_pages() {
    let hide = Hide::Mount("pools=/sys/kernel/mm/hugepages; [ ! -e $pools ] || mount -t tmpfs none $pools");
    check(Prerequisite::HugePages, &hide, Suite::Guest, "huge_pages::");
}

#[test]
fn debian_6_1() {
    let image = Image::Debian6_1;
    check(Prerequisite::Image(image), &Hide::Image(image), Suite::Guest, "boot::debian_kernels");
}

#[test]
fn debian_6_12() {
    let image = Image::Debian6_12;
    check(Prerequisite::Image(image), &Hide::Image(image), Suite::Guest, "nested::");
}

#[test]
fn debian_newest() {
    let image = Image::DebianNewest;
    check(Prerequisite::Image(image), &Hide::Image(image), Suite::Guest, "seqpacket::");
}

#[test]
fn debian_full() {
    let image = Image::DebianFull;
    check(Prerequisite::Image(image), &Hide::Image(image), Suite::Guest, "emulated::");
}

#[test]
fn ipv6() {
    let hide = Hide::Net("[ ! -e /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6");
    check(Prerequisite::Ipv6, &hide, Suite::Preload, "ipv6");
}

#[test]
fn ping() {
    let hide = Hide::Net("echo 1 >/proc/sys/net/ipv4/icmp_echo_ignore_all");
    check(Prerequisite::Ping, &hide, Suite::Bench, "pings_come_back");
}

#[test]
fn two_pcpus() {
    check(Prerequisite::TwoPcpus, &Hide::OnePcpu, Suite::Host, "latency::");
}
