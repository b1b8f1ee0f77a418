//! Small file systems of a lab's own, which can be filled and frozen.

use std::path::{Path, PathBuf};

use super::Lab;
use crate::machine::Command;
use crate::reason::{Measured, require};

/// Program that freezes and thaws.
const FREEZER: &str = "fsfreeze";
/// Name of the file that fills a file system.
const FILLER: &str = "filler";

/// A file system that is mounted for one row.
#[derive(Debug, Clone)]
pub struct FileSystem {
    /// Folder at which it is mounted.
    pub path: PathBuf,
}

/// Returns true for a command that thaws a file system. Such a command runs before all others that
/// a lab owes: whatever writes to a frozen file system cannot end.
pub(super) fn is_thaw(program: &str) -> bool {
    program == FREEZER
}

impl Lab<'_> {
    /// Mounts a file system in memory of `mib` MiB in this folder.
    pub fn mount_tmpfs(&mut self, path: &Path, mib: u32) -> Measured<FileSystem> {
        let options = format!("-t tmpfs -o size={mib}m,mode=0700 none");
        self.mount(path, Command::new("mount").args(options))
    }

    /// Makes an ext4 file system of `mib` MiB on a file, and mounts it in this folder.
    pub fn mount_ext4(&mut self, path: &Path, mib: u32) -> Measured<FileSystem> {
        let image = path.with_extension("ext4");
        if let Some(folder) = image.parent() {
            self.machine.make_folder(folder)?;
        }
        self.run(&Command::new("truncate").args(format!("-s {mib}M")).arg(&image))?;
        self.run(&Command::new("mkfs.ext4").args("-q -F").arg(&image))?;
        self.mount(path, Command::new("mount").args("-o loop").arg(&image))
    }

    fn mount(&mut self, path: &Path, command: Command) -> Measured<FileSystem> {
        self.machine.make_folder(path)?;
        self.owe(unmount(path))?;
        self.run(&command.arg(path))?;
        Ok(FileSystem { path: path.to_owned() })
    }

    /// Unmounts this lab's file systems in a folder, so that the folder can be removed.
    pub(super) fn unmount_in(&mut self, folder: &Path) {
        let is_in = |command: &Command| {
            let place = command.arguments.last().map(Path::new);
            command.program == "umount" && place.is_some_and(|place| place.starts_with(folder))
        };
        let mounted: Vec<Command> = self.owed.extract_if(.., |command| is_in(command)).collect();
        for command in mounted.iter().rev() {
            let _ = self.machine.run(command);
        }
    }

    /// Thaws what this lab froze.
    pub(super) fn thaw_all(&mut self) {
        for command in self.owed.clone().iter().filter(|command| is_thaw(&command.program)) {
            // The row has thawed it itself, as a rule.
            let _ = self.machine.run(command);
        }
    }
}

impl FileSystem {
    /// Writes a file until there is no room left, and requires that there is none.
    pub fn fill(&self, lab: &mut Lab) -> Measured<()> {
        let filler = self.path.join(FILLER);
        let fill = Command::new("dd").args("if=/dev/zero bs=64k status=none");
        let ended = lab.machine().run(&fill.arg(format!("of={}", filler.display())))?;
        require(
            !ended.is_success() || lab.machine().is_stand_in(),
            format!("{} did not become full", self.path.display()),
        )?;
        let left = self.left(lab)?;
        let is_granted = lab.machine().takes_for_granted();
        require(left < 1.0 || is_granted, format!("{} still has room for {left} blocks", self.path.display()))
    }

    /// Blocks that are left.
    pub fn left(&self, lab: &mut Lab) -> Measured<f64> {
        lab.run(&Command::new("stat").args("-f -c %a").arg(&self.path))?.stdout.number()
    }

    /// Removes what [`Self::fill`] wrote.
    pub fn free(&self, lab: &mut Lab) -> Measured<()> {
        lab.machine().remove(&self.path.join(FILLER))
    }

    /// Returns the command that freezes it. Thaws it with the lab at the latest.
    pub fn freeze_command(&self, lab: &mut Lab) -> Measured<Command> {
        lab.owe(self.thaw_command())?;
        Ok(Command::new(FREEZER).arg("-f").arg(&self.path))
    }

    /// Returns the command that thaws it. The command fails if it is not frozen.
    pub fn thaw_command(&self) -> Command {
        Command::new(FREEZER).arg("-u").arg(&self.path)
    }
}

/// Returns the command that unmounts a folder, also if a process still has files open there.
fn unmount(path: &Path) -> Command {
    Command::new("umount").arg("-l").arg(path)
}
