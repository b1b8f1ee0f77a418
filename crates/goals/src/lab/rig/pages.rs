//! Huge pages of the rig.

use std::path::Path;

use crate::lab::Lab;
use crate::machine::Command;
use crate::reason::{Measured, require};

/// Number of huge pages, of 2 MiB each, that a rig needs.
const PAGES: f64 = 1280.0;
const COUNT: &str = "/proc/sys/vm/nr_hugepages";

/// Reserves huge pages and mounts a file system of them. Returns the number of pages before.
pub(super) fn mount(lab: &mut Lab, folder: &Path) -> Measured<f64> {
    let before = lab.read(COUNT)?.number()?;
    lab.owe(Command::new("sysctl").args("-q -w").arg(format!("vm.nr_hugepages={before}")))?;
    reserve(lab)?;
    lab.machine().make_folder(folder)?;
    lab.owe(Command::new("umount").arg(folder))?;
    lab.run(&Command::new("mount").args("-t hugetlbfs -o pagesize=2M none").arg(folder))?;
    Ok(before)
}

/// Reserves the pages unless they are there. Compacts memory and drops caches if that is necessary.
pub(super) fn reserve(lab: &mut Lab) -> Measured<()> {
    for remedy in [None, Some("compact_memory"), Some("drop_caches")] {
        if lab.read(COUNT)?.number()? >= PAGES {
            return Ok(());
        }
        if let Some(remedy) = remedy {
            lab.machine().write(&Path::new("/proc/sys/vm").join(remedy), "1")?;
        }
        lab.machine().write(Path::new(COUNT), &format!("{PAGES}"))?;
    }
    let got = lab.read(COUNT)?.number()?;
    let is_enough = got >= PAGES || lab.machine().takes_for_granted();
    require(is_enough, format!("only {got} of {PAGES} huge pages could be reserved"))
}

/// Gives the pages back.
pub(super) fn unmount(lab: &mut Lab, folder: &Path, before: f64) -> Measured<()> {
    let umount = Command::new("umount").arg(folder);
    if lab.run(&umount).is_err() {
        // A process that has just ended may hold pages for a moment.
        lab.sleep(1.0)?;
        lab.run(&umount)?;
    }
    lab.machine().write(Path::new(COUNT), &format!("{before}"))
}
