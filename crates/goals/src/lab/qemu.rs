//! QEMU of other versions than the one that is installed.

use std::path::PathBuf;

use super::Lab;
use crate::machine::Command;
use crate::reason::{Context as _, Measured, require};

const UNPACK: &str = include_str!("qemu_7_2.sh");

impl Lab<'_> {
    /// Unpacks Debian's QEMU 7.2 below the target folder, and returns the folder of its program.
    pub fn qemu_7_2(&mut self) -> Measured<PathBuf> {
        let folder = self.target().join("qemu-7.2");
        let unpack = Command::new("sh").args(["-c", UNPACK, "qemu_7_2.sh"]).arg(&folder);
        self.run(&unpack).when("QEMU 7.2")?;
        let bin = folder.join("usr/bin");
        let said = self.run(&Command::new(bin.join("qemu-system-x86_64")).arg("--version"))?.stdout;
        require(said.contains("version 7.2."), format!("QEMU 7.2 says `{}`", said.trimmed()))?;
        Ok(bin)
    }
}
