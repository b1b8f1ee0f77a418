//! The commit that the structure is compared with.

use std::path::PathBuf;

use crate::lab::Lab;
use crate::machine::Command;
use crate::reason::Measured;

const BEFORE: &str = "e2e8590";

/// Extracts the sources of that commit and returns their folder.
pub(super) fn tree(lab: &mut Lab) -> Measured<PathBuf> {
    let (folder, archive) = (lab.folder().join("before"), lab.folder().join("before.tar"));
    lab.machine().make_folder(&folder)?;
    let command = lab.in_checkout("git").args(["archive", "-o"]).arg(&archive).arg(BEFORE);
    lab.run(&command)?;
    lab.run(&Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&folder))?;
    Ok(folder)
}
