//! Properties of the host that some tests need.
//!
//! A test whose prerequisite is missing fails. If `TAUT_ALLOW_SKIP` names the prerequisite, the
//! test leaves itself out instead, says so on standard error, and adds a line to a file below the
//! target folder. `make test` prints this file at its end.

mod allowed;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use allowed::Allowed;
use rustix::fs::{major, minor};

use crate::checkout;

/// Major and minor number of `/dev/kvm`: a misc device, `KVM_MINOR` in linux/miscdevice.h.
const KVM_NUMBER: (u32, u32) = (10, 232);

/// A property of the host that some tests need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prerequisite {
    /// The user root.
    Root,
    /// The node of KVM.
    Kvm,
    /// A controller of cgroup v1.
    CgroupV1(Controller),
    /// The controllers of memory and of processes, of cgroup v1 or v2.
    LimitGroups,
    /// A pool of huge pages that can grow to the size of a small VM.
    HugePages,
    /// Two pCPUs: one for a VM, one for the host.
    TwoPcpus,
    /// Control groups with a real-time budget each (`CONFIG_RT_GROUP_SCHED`).
    RealTimeGroups,
    /// The kernel's report of where memory is (`CONFIG_NUMA`).
    NumaMaps,
    /// IPv6 on the loopback interface.
    Ipv6,
    /// Echo requests, which this host answers and this process may send.
    Ping,
    /// The kernel's netlink family `ethtool` (Linux 5.6).
    EthtoolNetlink,
    /// A guest image.
    Image(Image),
}

/// A controller of cgroup v1 that tests use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Shares and limits of CPU time.
    Cpu,
    /// The pCPUs that tasks may run on.
    Cpuset,
    /// Weights of disks.
    Blkio,
}

/// A guest image that `make images` makes if the Debian release has its kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// Linux 6.1, cloud flavour.
    Debian6_1,
    /// Linux 6.12, cloud flavour.
    Debian6_12,
    /// The newest kernel of the backports for Debian 13, cloud flavour.
    DebianNewest,
    /// The newest kernel of this Debian release with all drivers.
    DebianFull,
}

/// Finds out whether the host has a prerequisite. If it is missing, returns `false` if the test may
/// leave itself out, and panics otherwise.
#[must_use = "the test returns if the prerequisite is missing"]
pub fn require(prerequisite: Prerequisite) -> bool {
    require_found(prerequisite, prerequisite.check()).is_some()
}

/// The same for a prerequisite that the test itself looks for: an error says what is missing.
#[must_use = "the test returns if the prerequisite is missing"]
pub fn require_found<T>(prerequisite: Prerequisite, found: Result<T, String>) -> Option<T> {
    // An unknown name in the list is an error even if nothing is missing.
    let allowed = Allowed::of_environment().unwrap_or_else(|error| panic!("{error}"));
    match found {
        Ok(found) => Some(found),
        Err(reason) if allowed.names(prerequisite) => {
            record(&format!("{}: {}: {reason}", prerequisite.name(), this_test()));
            None
        }
        Err(reason) => panic!("{}", allowed.refusal(prerequisite, &reason)),
    }
}

/// Returns the folder of a guest image. If it is missing, does as [`require`].
pub fn image(image: Image) -> Option<PathBuf> {
    require(Prerequisite::Image(image)).then(|| image.folder())
}

/// Returns the image with the oldest cloud kernel. There must be one: most tests with VMs need it.
pub fn any_image() -> PathBuf {
    let found = Image::CLOUD.into_iter().find(|image| Prerequisite::Image(*image).check().is_ok());
    let names = Image::CLOUD.map(Image::name).join(" nor ");
    found.unwrap_or_else(|| panic!("there is no image {names}\nhint: make images")).folder()
}

impl Prerequisite {
    /// All prerequisites, one of each name.
    pub const ALL: [Self; 15] = [
        Self::Root,
        Self::Kvm,
        Self::CgroupV1(Controller::Cpu),
        Self::LimitGroups,
        Self::HugePages,
        Self::TwoPcpus,
        Self::RealTimeGroups,
        Self::NumaMaps,
        Self::Ipv6,
        Self::Ping,
        Self::EthtoolNetlink,
        Self::Image(Image::Debian6_1),
        Self::Image(Image::Debian6_12),
        Self::Image(Image::DebianNewest),
        Self::Image(Image::DebianFull),
    ];

    /// The name in `TAUT_ALLOW_SKIP`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Kvm => "kvm",
            Self::CgroupV1(_) => "cgroup-v1",
            Self::LimitGroups => "limit-groups",
            Self::HugePages => "huge-pages",
            Self::TwoPcpus => "two-pcpus",
            Self::RealTimeGroups => "real-time-groups",
            Self::NumaMaps => "numa-maps",
            Self::Ipv6 => "ipv6",
            Self::Ping => "ping",
            Self::EthtoolNetlink => "ethtool-netlink",
            Self::Image(image) => image.name(),
        }
    }

    /// A way to provide it.
    fn advice(self) -> &'static str {
        match self {
            Self::Root => "run the test as root",
            Self::Kvm => "load kvm_intel or kvm_amd, and run the test as root",
            Self::CgroupV1(_) => "boot with systemd.unified_cgroup_hierarchy=0, or mount the controller",
            Self::LimitGroups => "boot with cgroup_enable=memory, or mount the controllers memory and pids",
            Self::HugePages => "free memory, or reserve it: sysctl vm.nr_hugepages=64",
            Self::TwoPcpus => "use a host with two pCPUs",
            Self::RealTimeGroups => "use a kernel with CONFIG_RT_GROUP_SCHED",
            Self::NumaMaps => "use a kernel with CONFIG_NUMA",
            Self::Ipv6 => "sysctl net.ipv6.conf.all.disable_ipv6=0",
            Self::Ping => "sysctl net.ipv4.icmp_echo_ignore_all=0, and run the test as root",
            Self::EthtoolNetlink => "use Linux 5.6 or newer with CONFIG_ETHTOOL_NETLINK",
            Self::Image(_) => "make images, on a Debian release whose mirror has this kernel",
        }
    }

    /// Looks for it on this host, as far as that is possible without the test. An error says what
    /// is missing.
    fn check(self) -> Result<(), String> {
        match self {
            Self::Root if rustix::process::geteuid().is_root() => Ok(()),
            Self::Root => Err(format!("this is user {}", rustix::process::geteuid().as_raw())),
            Self::Kvm => check_kvm(Path::new("/dev/kvm")),
            Self::CgroupV1(controller) => exists(Path::new(controller.file())),
            Self::LimitGroups => check_limit_groups(Path::new("/sys/fs/cgroup")),
            Self::HugePages => exists(Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB")),
            Self::TwoPcpus => match std::thread::available_parallelism() {
                Ok(pcpus) if pcpus.get() >= 2 => Ok(()),
                Ok(pcpus) => Err(format!("this process may use {pcpus} pCPU")),
                Err(error) => Err(error.to_string()),
            },
            Self::RealTimeGroups => exists(Path::new("/sys/fs/cgroup/cpu/cpu.rt_runtime_us")),
            Self::NumaMaps => exists(Path::new("/proc/self/numa_maps")),
            Self::Ipv6 => TcpListener::bind("[::1]:0").map(drop).map_err(|error| format!("[::1]: {error}")),
            Self::Ping => check_ping(Path::new("/proc/sys/net/ipv4/icmp_echo_ignore_all")),
            Self::EthtoolNetlink => Ok(()),
            Self::Image(image) => exists(&image.folder().join("info.json")),
        }
    }
}

impl Controller {
    /// A file that only this controller of cgroup v1 has.
    fn file(self) -> &'static str {
        match self {
            Self::Cpu => "/sys/fs/cgroup/cpu/cpu.shares",
            Self::Cpuset => "/sys/fs/cgroup/cpuset/cpuset.cpus",
            Self::Blkio => "/sys/fs/cgroup/blkio/blkio.reset_stats",
        }
    }
}

impl Image {
    /// The images with a cloud kernel, the oldest first.
    pub const CLOUD: [Self; 3] = [Self::Debian6_1, Self::Debian6_12, Self::DebianNewest];

    /// The name of its folder.
    fn name(self) -> &'static str {
        match self {
            Self::Debian6_1 => "debian-6.1",
            Self::Debian6_12 => "debian-6.12",
            Self::DebianNewest => "debian-newest",
            Self::DebianFull => "debian-full",
        }
    }

    fn folder(self) -> PathBuf {
        let images = std::env::var_os("TAUT_IMAGES");
        images.map_or_else(|| checkout().join("target/images"), PathBuf::from).join(self.name())
    }
}

/// A node that was replaced by something else, or that this process may not open, is not KVM.
fn check_kvm(node: &Path) -> Result<(), String> {
    let problem = |error: io::Error| format!("{}: {error}", node.display());
    let found = fs::metadata(node).map_err(problem)?;
    if !found.file_type().is_char_device() || (major(found.rdev()), minor(found.rdev())) != KVM_NUMBER {
        return Err(format!("{} is not the device of KVM", node.display()));
    }
    OpenOptions::new().read(true).write(true).open(node).map(drop).map_err(problem)
}

/// Looks for two hierarchies of cgroup v1, or for two controllers of cgroup v2.
fn check_limit_groups(groups: &Path) -> Result<(), String> {
    let v2 = fs::read_to_string(groups.join("cgroup.controllers")).unwrap_or_default();
    for (name, file) in [("memory", "memory/memory.limit_in_bytes"), ("pids", "pids/cgroup.procs")] {
        if !v2.split_whitespace().any(|found| found == name) {
            exists(&groups.join(file))?;
        }
    }
    Ok(())
}

fn check_ping(file: &Path) -> Result<(), String> {
    match fs::read_to_string(file) {
        Ok(set) if set.trim() != "0" => Err(format!("{} is {}", file.display(), set.trim())),
        // Without the file the kernel answers.
        _ => Ok(()),
    }
}

fn exists(path: &Path) -> Result<(), String> {
    fs::metadata(path).map(drop).map_err(|error| format!("{}: {error}", path.display()))
}

/// Names the running test by its program and its path in it.
fn this_test() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // Cargo appends a hash to the name.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name).to_owned();
    format!("{program} {}", std::thread::current().name().unwrap_or("in a thread without a name"))
}

/// Prints a line past the test harness, which hides the output of tests that pass, and adds it to
/// the file of skips.
fn record(line: &str) {
    let _ = writeln!(io::stderr(), "left out: {line}");
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let file = target.map_or_else(|| checkout().join("target"), PathBuf::from).join("skips.txt");
    let opened = OpenOptions::new().create(true).append(true).open(&file);
    let written = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_device_of_kvm_counts_as_its_node() {
        assert!(check_kvm(Path::new("/nowhere/kvm")).unwrap_err().contains("No such file"));
        let other = check_kvm(Path::new("/dev/null")).unwrap_err();
        assert_eq!(other, "/dev/null is not the device of KVM");
    }

    #[test]
    fn limits_need_controllers_of_either_version() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_limit_groups(folder.path()).unwrap_err().contains("memory.limit_in_bytes"));
        for file in ["memory/memory.limit_in_bytes", "pids/cgroup.procs"] {
            fs::create_dir_all(folder.path().join(file).parent().unwrap()).unwrap();
            fs::write(folder.path().join(file), "").unwrap();
        }
        assert_eq!(check_limit_groups(folder.path()), Ok(()));
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        assert_eq!(check_limit_groups(folder.path()), Ok(()));
    }

    #[test]
    fn a_host_that_answers_no_ping_is_told_by_its_setting() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ignore");
        assert_eq!(check_ping(&file), Ok(()));
        fs::write(&file, "0\n").unwrap();
        assert_eq!(check_ping(&file), Ok(()));
        fs::write(&file, "1\n").unwrap();
        assert_eq!(check_ping(&file), Err(format!("{} is 1", file.display())));
    }

    #[test]
    fn a_test_is_named_by_its_program_and_path() {
        let name = this_test();
        assert!(name.starts_with("taut_tests "), "{name}");
        assert!(name.ends_with("a_test_is_named_by_its_program_and_path"), "{name}");
    }
}
