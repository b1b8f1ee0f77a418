//! Kernel modules of the initial RAM file system.

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::system::init_module;

const FOLDER: &str = "/modules";
/// Device by which the firmware tells of NVDIMMs.
const NVDIMMS: &str = "/sys/bus/acpi/devices/ACPI0012:00";

/// Loads every module that `/modules/order` names, in that order. Where there is an NVDIMM, loads
/// those of `/modules/order-nvdimm`, too.
pub(super) fn load() -> io::Result<()> {
    load_in_order("order")?;
    if Path::new(NVDIMMS).exists() { load_in_order("order-nvdimm") } else { Ok(()) }
}

/// Loads the modules that a file in the folder names. Does nothing without that file.
fn load_in_order(file: &str) -> io::Result<()> {
    let folder = Path::new(FOLDER);
    let order = match fs::read_to_string(folder.join(file)) {
        Ok(order) => order,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for name in order.lines() {
        match init_module(&fs::read(folder.join(name))?, c"") {
            // A driver without its device refuses to load, which is no error.
            Ok(()) | Err(Errno::EXIST | Errno::NODEV) => {}
            Err(error) => println!("taut guest: module {name}: {error}"),
        }
    }
    Ok(())
}
