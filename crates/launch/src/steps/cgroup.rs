//! Joining control groups.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

use taut_launch::Step;

use crate::failure::{Failed, Within as _};

/// Moves this process into each group, so that the program is accounted from its first instruction.
pub(crate) fn join(folders: &[PathBuf]) -> Result<(), Failed> {
    for folder in folders {
        let file = folder.join("cgroup.procs");
        let joined = OpenOptions::new().write(true).open(&file);
        // 0 means the process that writes.
        let joined = joined.and_then(|mut file| file.write_all(b"0"));
        joined.within(Step::Cgroups, || format!("joining the control group {}", folder.display()))?;
    }
    Ok(())
}
