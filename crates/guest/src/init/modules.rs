//! Kernel modules of the initial RAM file system.

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::system::init_module;

const FOLDER: &str = "/modules";

/// Loads every module that `/modules/order` names, in that order. Does nothing without that file.
pub(super) fn load() -> io::Result<()> {
    let folder = Path::new(FOLDER);
    let order = match fs::read_to_string(folder.join("order")) {
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
