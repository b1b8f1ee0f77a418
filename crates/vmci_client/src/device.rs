//! Finds the memory for queue pairs, and maps it once for the whole process.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{FileType, fstat, major, minor};
use taut_queue_pair::layout::{HeaderError, MOST_REGION};
use taut_queue_pair::memory::RegionError;
use taut_queue_pair::{Memory, Region};

use crate::reason::NotAttached;

/// Folder of the kernel's devices.
const DEVICES: &str = "/dev";
/// Begin of the names of DAX devices, such as `dax0.0`.
const DAX: &str = "dax";
/// What the kernel lists here exists in the machine, whether it has a driver or not. Without the
/// module `nfit` the folder is missing or empty.
const NVDIMMS: &str = "/sys/bus/nd/devices";
/// Table by which the firmware tells of the memory, with any modules.
const TABLE: &str = "/sys/firmware/acpi/tables/NFIT";

/// Where to search: devices, and what tells of memory without a driver.
const PLACES: [&str; 3] = [DEVICES, NVDIMMS, TABLE];

/// Identity of a file: device and number of its folder entry, and device number.
type Identity = (u64, u64, u64);

/// The memory that this process has mapped and still uses.
static MAPPED: Mutex<Vec<(Identity, Weak<Memory>)>> = Mutex::new(Vec::new());

/// A device with memory for queue pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its path, such as `/dev/dax0.0`.
    pub path: PathBuf,
    /// Number of its channels: each serves one connection.
    pub channels: u32,
    /// Bytes of each of a channel's two rings.
    pub ring_len: u32,
}

/// Finds the memory for queue pairs of this machine, or looks whether `device` is that.
pub fn find_device(device: Option<&Path>) -> Result<Device, NotAttached> {
    let (path, region) = found(device)?;
    let geometry = region.geometry();
    Ok(Device { path, channels: geometry.channels(), ring_len: geometry.ring_len() })
}

/// Returns the region of this device, or that of the first DAX device which has one.
pub fn region(device: Option<&Path>) -> Result<Region, NotAttached> {
    Ok(found(device)?.1)
}

fn found(device: Option<&Path>) -> Result<(PathBuf, Region), NotAttached> {
    let Some(device) = device else { return search(&PLACES.map(Path::new)) };
    Ok((device.to_owned(), open(device)?))
}

/// Searches a folder of devices. The most telling error of all devices counts; of several ones, the
/// first.
fn search(&[devices, nvdimms, table]: &[&Path; 3]) -> Result<(PathBuf, Region), NotAttached> {
    let names = fs::read_dir(devices).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut paths: Vec<PathBuf> = names
        .filter(|name| name.to_str().is_some_and(|name| name.starts_with(DAX)))
        .map(|name| devices.join(name))
        .collect();
    paths.sort();
    let has_memory = table.exists() || fs::read_dir(nvdimms).is_ok_and(|mut list| list.next().is_some());
    let mut worst =
        if paths.is_empty() && has_memory { NotAttached::NoDriver } else { NotAttached::NoDevice };
    for path in paths {
        match open(&path) {
            Ok(region) => return Ok((path, region)),
            // The memory of something else.
            Err(NotAttached::Region { source: RegionError::Header(HeaderError::Magic(_)), .. }) => {}
            Err(error) if rank(&error) > rank(&worst) => worst = error,
            Err(_) => {}
        }
    }
    Err(worst)
}

/// How telling the error of a device is. What the program may not open is most probably the memory
/// for queue pairs; what was opened and has another header is something else's.
fn rank(error: &NotAttached) -> u32 {
    match error {
        NotAttached::NotPermitted { .. } => 4,
        NotAttached::Region { .. } => 3,
        NotAttached::Device { .. } => 2,
        NotAttached::NoDriver => 1,
        _ => 0,
    }
}

/// Opens one device.
fn open(path: &Path) -> Result<Region, NotAttached> {
    let device = |source: io::Error| NotAttached::Device { path: path.to_owned(), source };
    let file =
        OpenOptions::new().read(true).write(true).custom_flags(flags()).open(path).map_err(|source| {
            match source.kind() {
                io::ErrorKind::NotFound => NotAttached::NoDevice,
                io::ErrorKind::PermissionDenied => {
                    NotAttached::NotPermitted { path: path.to_owned(), source }
                }
                _ => device(source),
            }
        })?;
    let memory = mapped(&file).map_err(device)?;
    Region::open(memory).map_err(|source| NotAttached::Region { path: path.to_owned(), source })
}

/// Flags for opening: the device must not become a terminal, and opening must not wait.
fn flags() -> i32 {
    (rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::NONBLOCK).bits().cast_signed()
}

/// Maps a file, or returns the mapping that another connection uses.
fn mapped(file: &File) -> io::Result<Arc<Memory>> {
    let stat = fstat(file)?;
    let identity = (stat.st_dev, stat.st_ino, stat.st_rdev);
    let len = if FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice {
        size_of_device(major(stat.st_rdev), minor(stat.st_rdev))?
    } else {
        stat.st_size.cast_unsigned()
    };
    if len == 0 || len > MOST_REGION {
        return Err(io::Error::other(format!("it has {len} bytes, but at most {MOST_REGION} are possible")));
    }
    let len = usize::try_from(len).map_err(io::Error::other)?;
    let mut all = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(_, memory)| memory.strong_count() > 0);
    let known = all.iter().find(|(known, _)| *known == identity).and_then(|(_, memory)| memory.upgrade());
    if let Some(known) = known.filter(|known| known.len() == len) {
        return Ok(known);
    }
    let memory = Arc::new(Memory::map(file.as_fd(), 0, len)?);
    all.push((identity, Arc::downgrade(&memory)));
    Ok(memory)
}

/// Reads the size of a device in bytes. A device has no length as a file, and an access behind its
/// end would be a fault.
fn size_of_device(major: u32, minor: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/size"))?;
    text.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use taut_queue_pair::Geometry;

    const LEN: u64 = 4 << 20;

    /// A file that stands for a device.
    fn device(folder: &Path, name: &str, header: &[u8]) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, header).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(LEN).unwrap();
        path
    }

    fn header() -> Vec<u8> {
        Geometry::of(LEN).unwrap().header().to_vec()
    }

    fn searched(folder: &tempfile::TempDir) -> Result<(PathBuf, Region), NotAttached> {
        let none = Path::new("/nonexistent");
        search(&[folder.path(), none, none])
    }

    #[test]
    fn the_device_with_the_magic_is_found_among_others() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(searched(&folder), Err(NotAttached::NoDevice)));
        device(folder.path(), "dax0.0", b"something else");
        device(folder.path(), "sda", &header());
        assert!(matches!(searched(&folder), Err(NotAttached::NoDevice)));
        let path = device(folder.path(), "dax1.0", &header());
        let (found, region) = searched(&folder).unwrap();
        let geometry = Geometry::of(LEN).unwrap();
        assert_eq!((&found, region.geometry()), (&path, geometry));
        let device = Device { path, channels: geometry.channels(), ring_len: geometry.ring_len() };
        assert_eq!(find_device(Some(&found)).unwrap(), device);
    }

    #[test]
    fn memory_without_a_driver_is_told_from_no_memory() {
        let (folder, nvdimms) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let table = folder.path().join("NFIT");
        let search = || search(&[folder.path(), nvdimms.path(), &table]);
        assert!(matches!(search(), Err(NotAttached::NoDevice)));
        fs::write(nvdimms.path().join("region0"), "").unwrap();
        assert!(matches!(search(), Err(NotAttached::NoDriver)));
        // Without the module `nfit`, only the firmware's table tells of the memory.
        fs::remove_file(nvdimms.path().join("region0")).unwrap();
        fs::write(&table, "").unwrap();
        assert!(matches!(search(), Err(NotAttached::NoDriver)));
    }

    #[test]
    fn the_most_telling_error_counts_whatever_the_order() {
        let path = || PathBuf::from("/dev/dax0.0");
        let error = || io::Error::from_raw_os_error(5);
        let not_permitted = NotAttached::NotPermitted { path: path(), source: error() };
        let device = NotAttached::Device { path: path(), source: error() };
        assert!(rank(&not_permitted) > rank(&device) && rank(&device) > rank(&NotAttached::NoDriver));
        assert!(rank(&NotAttached::NoDriver) > rank(&NotAttached::NoDevice));
        // The device with a header of another version comes first, one without a size after it.
        let folder = tempfile::tempdir().unwrap();
        let mut later = header();
        later[8] = 9;
        super::tests::device(folder.path(), "dax0.0", &later);
        fs::write(folder.path().join("dax1.0"), "").unwrap();
        assert!(matches!(searched(&folder), Err(NotAttached::Region { .. })));
        assert!(rank(&not_permitted) > rank(&searched(&folder).unwrap_err()));
    }

    #[test]
    fn a_device_is_mapped_once_and_unmapped_after_the_last_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = device(folder.path(), "dax0.0", &header());
        let first = region(Some(&path)).unwrap();
        let second = region(Some(&path)).unwrap();
        assert!(Arc::ptr_eq(first.memory(), second.memory()));
        let memory = Arc::downgrade(first.memory());
        drop((first, second));
        assert!(memory.upgrade().is_none());
        region(Some(&path)).unwrap();
    }

    #[test]
    fn headers_that_are_not_accepted_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut later = header();
        later[8] = 9;
        device(folder.path(), "dax0.0", &later);
        let error = searched(&folder).unwrap_err();
        assert!(
            matches!(error, NotAttached::Region { source: RegionError::Header(HeaderError::Version(9)), .. }),
            "{error:?}"
        );
        let mut long = header();
        long[0x0c..0x10].copy_from_slice(&1000u32.to_le_bytes());
        let path = device(folder.path(), "dax0.0", &long);
        assert!(matches!(region(Some(&path)), Err(NotAttached::Region { .. })));
        let path = folder.path().join("dax1.0");
        fs::write(&path, "").unwrap();
        assert!(matches!(region(Some(&path)), Err(NotAttached::Device { .. })));
    }

    #[test]
    fn a_device_that_may_not_be_opened_is_not_permitted() {
        let folder = tempfile::tempdir().unwrap();
        let path = device(folder.path(), "dax0.0", &header());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        // Root may open everything.
        if !rustix::process::geteuid().is_root() {
            assert!(matches!(region(Some(&path)), Err(NotAttached::NotPermitted { .. })));
        }
        assert!(matches!(region(Some(&folder.path().join("none"))), Err(NotAttached::NoDevice)));
    }
}
