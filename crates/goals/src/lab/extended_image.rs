//! Guest images with programs of this system.

use std::path::{Path, PathBuf};

use super::Lab;
use crate::reason::{Measured, NotMeasured};

/// Contents that an image gets besides Redis, a shell and the preload library.
#[derive(Debug, Clone, Default)]
pub struct Contents<'a> {
    /// Map of the preload library.
    pub map: &'a str,
    /// Script that the guest's shell runs when the guest has come up.
    pub script: &'a str,
    /// Further programs, by name or path. Their libraries are added by themselves.
    pub programs: Vec<PathBuf>,
}

impl Lab<'_> {
    /// Returns the path of a program of this system. Fails if it is not installed.
    pub fn tool(&mut self, name: &str) -> Measured<PathBuf> {
        let missing = || NotMeasured::because(format!("{name} is not installed: tools/setup.sh run test"));
        self.machine.program(name).ok_or_else(missing)
    }

    /// Makes an image of a guest image and these contents, in the folder `name` of the lab. Returns
    /// the lines of a VM's file that boot it directly.
    pub fn extend_image(&mut self, image: &str, name: &str, contents: &Contents) -> Measured<String> {
        // Debian's package of Redis' tools has the server under this name.
        self.tool("redis-check-rdb")?;
        self.boot_of(image)?;
        let folder = self.folder.join(name);
        self.machine.make_folder(&folder)?;
        self.machine.write(&folder.join("map"), contents.map)?;
        self.machine.write(&folder.join("script"), contents.script)?;
        let library = self.preload_library()?;
        let make = self
            .in_checkout(self.setup.checkout.join("tools/make-redis.sh"))
            .arg(&self.setup.images)
            .arg(image)
            .arg(library)
            .arg(folder.join("map"))
            .arg(folder.join("script"))
            .arg(&folder)
            .args(contents.programs.iter().map(|path| path.display().to_string()).collect::<Vec<_>>())
            .record("image");
        self.run(&make)?;
        Ok(boot_lines(&folder))
    }

    /// Returns the path of the library that turns TCP into vsock. Builds it if it is missing.
    fn preload_library(&mut self) -> Measured<PathBuf> {
        let library = self.program("libtaut_vmci.so");
        if !self.machine.exists(&library) {
            let build = self.in_checkout("cargo").args("build -q --release -p taut-preload --lib");
            self.run(&build)?;
        }
        Ok(library)
    }
}

/// Lines of a VM's file that boot the image in a folder directly.
pub(super) fn boot_lines(folder: &Path) -> String {
    let folder = folder.display();
    format!("[boot]\nkernel = \"{folder}/vmlinuz\"\ninitrd = \"{folder}/initrd\"\n")
}
