//! What each kind of program may see, use and call.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use taut_api::passthrough::PciAddress;
use taut_launch::{Device, Document, Filter, Landlock, Limit, Limits, Root, Skeleton, Wall};

use super::{Devices, Program, Walls};

/// Folders with the programs and libraries of a system, as far as there are.
const SYSTEM: [&str; 6] = ["/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin"];
/// Devices that every program may use.
const COMMON_DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];
/// Beginnings of the names of variables that programs get from the daemon's environment.
const VARIABLES: [&str; 3] = ["TAUT_", "RUST_", "LD_LIBRARY_PATH"];
/// Maximum number of descriptors of a VM's process.
const VM_FILES: u64 = 4096;
/// Maximum address space of the inspector, in bytes.
const INSPECTOR_MEMORY: u64 = 64 << 20;
/// Maximum CPU time of the inspector, in seconds.
const INSPECTOR_SECONDS: u64 = 1;

/// Returns the mounts that all programs share.
pub(super) fn skeleton() -> Skeleton {
    Skeleton { system: system() }
}

/// Returns the launcher's document for a program. Its file is the descriptor `program_at`, and the
/// skeleton's namespace the descriptor `skeleton_at`.
pub(super) fn document(program: &Program<'_>, program_at: i32, skeleton_at: Option<i32>) -> Document {
    let name = program.path.display().to_string();
    let args = [name].into_iter().chain(program.args.iter().cloned()).collect();
    let filter = match program.walls {
        Walls::Vm | Walls::Console => Filter::Vm,
        Walls::Fabric => Filter::None,
        Walls::Inspector => Filter::Inspector,
    };
    let own = own_folder(program.path);
    let devices = devices(&program.devices);
    let read = if program.devices.passed.is_empty() { None } else { Some(PathBuf::from("/sys")) };
    let mut document = Document::new(program_at, args, program.user, program.user, filter);
    document.env = environment(program.run_dir);
    document.keep = program.descriptors.iter().map(|(_, number)| *number).collect();
    document.limits = limits(program);
    document.oom_score_adj = Some(program.oom.value());
    document.landlock = Landlock {
        read: [PathBuf::from("/proc")].into_iter().chain(read.clone()).collect(),
        execute: system().into_iter().chain(own.clone()).collect(),
        write: Vec::new(),
        devices: devices.iter().map(|device| device.path.clone()).collect(),
    };
    document.root = Root {
        skeleton: skeleton_at,
        system: system(),
        read_only: own.into_iter().chain(read).collect(),
        devices,
        proc: program.walls != Walls::Inspector,
        ..Root::default()
    };
    if program.walls == Walls::Inspector {
        document.landlock.read.clear();
    }
    // A program may start without a wall that the host lacks; its user is told which. But sockets
    // of cards in the network namespace must not be reachable from elsewhere.
    document.may_lack = BTreeSet::from(Wall::ALL);
    document.may_lack.remove(&Wall::NetNamespace);
    // Processes of a VM end together only if they share a process namespace.
    document.may_lack.remove(&Wall::PidNamespace);
    document
}

fn limits(program: &Program<'_>) -> Limits {
    let memlock = if program.locks_memory { Some(Limit::Unlimited) } else { None };
    match program.walls {
        Walls::Vm => Limits {
            nofile: Some(Limit::At(VM_FILES.min(own_files()))),
            nproc: Some(Limit::At(program.threads)),
            memlock,
            ..Limits::default()
        },
        // Both have the daemon's limit of descriptors: each port takes a dozen, each VM some. Their
        // memory is not limited: the fabric touches that of all guests.
        Walls::Fabric | Walls::Console => {
            Limits { nproc: Some(Limit::At(program.threads)), ..Limits::default() }
        }
        Walls::Inspector => Limits {
            nofile: Some(Limit::At(64)),
            nproc: Some(Limit::At(program.threads)),
            address_space: Some(Limit::At(INSPECTOR_MEMORY)),
            cpu_seconds: Some(Limit::At(INSPECTOR_SECONDS)),
            ..Limits::default()
        },
    }
}

/// Returns this daemon's limit of descriptors, which it may not be able to raise.
fn own_files() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Returns the folders of the system that this host has.
fn system() -> Vec<PathBuf> {
    SYSTEM.iter().map(PathBuf::from).filter(|folder| folder.symlink_metadata().is_ok()).collect()
}

/// Returns the folder of a program that is not among those of the system, for its libraries and
/// files: `/opt/qemu` for `/opt/qemu/bin/qemu-system-x86_64`. Programs in other folders, such as
/// taut's own, need nothing besides the system.
fn own_folder(program: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(program).ok()?;
    if SYSTEM.iter().any(|folder| real.starts_with(folder)) {
        return None;
    }
    let folder = real.parent().filter(|folder| folder.ends_with("bin"))?.parent()?;
    (folder != Path::new("/")).then(|| folder.to_owned())
}

fn environment(run_dir: &Path) -> Vec<String> {
    // A variable that is no text is none of taut's.
    let texts = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let inherited = texts
        .filter(|(name, _)| VARIABLES.iter().any(|beginning| name.starts_with(beginning)))
        .map(|(name, value)| format!("{name}={value}"));
    let own =
        ["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned(), format!("TAUT_RUN_DIR={}", run_dir.display())];
    inherited.filter(|variable| !variable.starts_with("TAUT_RUN_DIR=")).chain(own).collect()
}

fn devices(wanted: &Devices) -> Vec<Device> {
    let common = COMMON_DEVICES.iter().map(|path| PathBuf::from(*path));
    let kvm = wanted.kvm.then(|| PathBuf::from("/dev/kvm"));
    let vfio = (!wanted.passed.is_empty()).then(|| PathBuf::from("/dev/vfio/vfio"));
    let groups: BTreeSet<PathBuf> = wanted.passed.iter().copied().filter_map(vfio_group).collect();
    common.chain(kvm).chain(vfio).chain(groups).filter_map(|path| device(&path)).collect()
}

/// Returns a device of the host with its numbers; `None` if the host does not have it.
fn device(path: &Path) -> Option<Device> {
    let found = path.metadata().ok().filter(|found| found.file_type().is_char_device())?;
    let number = found.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    Some(Device { path: path.to_owned(), major, minor, mode: 0o600 })
}

/// Returns the device of the IOMMU group that a PCI device is in.
fn vfio_group(address: PciAddress) -> Option<PathBuf> {
    let group = fs::read_link(format!("/sys/bus/pci/devices/{address}/iommu_group")).ok()?;
    Some(Path::new("/dev/vfio").join(group.file_name()?))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::process::OomScore;

    fn of(walls: Walls, devices: Devices) -> Document {
        let output = File::open("/dev/null").unwrap();
        let program = Program {
            path: Path::new("/usr/bin/qemu-system-x86_64"),
            args: &["-nodefaults".to_owned()],
            descriptors: Vec::new(),
            input: None,
            output: &output,
            errors: &output,
            user: 0x7000_0010,
            oom: OomScore::VM,
            devices,
            locks_memory: true,
            threads: 100,
            walls,
            run_dir: Path::new("/run/taut/vms/db1"),
        };
        document(&program, 10, Some(11))
    }

    #[test]
    fn every_document_keeps_the_launchers_rules() {
        for walls in [Walls::Vm, Walls::Fabric, Walls::Console, Walls::Inspector] {
            let document = of(walls, Devices::default());
            document.check().unwrap();
            assert_eq!((document.uid, document.gid), (0x7000_0010, 0x7000_0010));
            assert!(document.env.contains(&"TAUT_RUN_DIR=/run/taut/vms/db1".to_owned()));
            assert!(document.root.writable.is_empty() && document.landlock.write.is_empty());
        }
        skeleton().check().unwrap();
    }

    #[test]
    fn only_a_vm_that_uses_kvm_gets_its_device() {
        let has_kvm = |devices| {
            let document = of(Walls::Vm, devices);
            document.root.devices.iter().any(|device| device.path == Path::new("/dev/kvm"))
        };
        assert!(!has_kvm(Devices::default()));
        let there = Path::new("/dev/kvm").exists();
        assert_eq!(has_kvm(Devices { kvm: true, ..Devices::default() }), there);
    }

    #[test]
    fn a_program_outside_the_systems_folders_brings_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(dir.join("bin")).unwrap();
        for (file, own) in [("taut-micro", None), ("bin/qemu", Some(dir.clone()))] {
            fs::write(dir.join(file), "").unwrap();
            assert_eq!(own_folder(&dir.join(file)), own);
        }
        assert_eq!(own_folder(Path::new("/usr/bin/env")), None);
    }
}
