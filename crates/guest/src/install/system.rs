//! Programs of the guest's system that an installation needs: for groups, services and devices.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// The system below a root folder: the one that runs, or an image that is being made.
#[derive(Debug)]
pub(super) struct System<'a> {
    pub(super) root: &'a Path,
}

impl System<'_> {
    /// Tells whether this is the system that runs.
    pub(super) fn runs(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Makes a system group unless it exists. Returns whether it was made.
    pub(super) fn make_group(&self, name: &str) -> Result<bool, String> {
        let groups = std::fs::read_to_string(self.root.join("etc/group")).unwrap_or_default();
        if groups.lines().any(|line| line.split(':').next() == Some(name)) {
            return Ok(false);
        }
        let prefix = if self.runs() { None } else { Some(["--prefix".as_ref(), self.root.as_os_str()]) };
        let words = ["--system".as_ref(), name.as_ref()];
        match run("groupadd", prefix.into_iter().flatten().chain(words)) {
            Ok(true) => Ok(true),
            Ok(false) => Err(format!("groupadd has not made the group {name}")),
            Err(error) => Err(format!("the group {name} cannot be made: groupadd: {error}")),
        }
    }

    /// Enables the agent's unit, and starts it anew if this system runs. Returns false if this
    /// system has no systemd.
    pub(super) fn enable(&self, unit: &str) -> Result<bool, String> {
        if !self.has_systemd() {
            return Ok(false);
        }
        self.systemctl(["enable", unit])?;
        if self.systemd_runs() {
            self.systemctl(["daemon-reload"])?;
            self.systemctl(["restart", unit])?;
        }
        Ok(true)
    }

    /// Disables the agent's unit, and stops it if this system runs.
    pub(super) fn disable(&self, unit: &str) -> Result<(), String> {
        match (self.has_systemd(), self.systemd_runs()) {
            (false, _) => Ok(()),
            (true, true) => self.systemctl(["disable", "--now", unit]),
            (true, false) => self.systemctl(["disable", unit]),
        }
    }

    /// Has udev apply its rules to devices that exist. Does nothing for an image, or without udev.
    pub(super) fn apply_rules(&self) -> Result<(), String> {
        if !self.runs() || !Path::new("/run/udev/control").exists() {
            return Ok(());
        }
        let calls: [&[&str]; 2] =
            [&["control", "--reload"], &["trigger", "--action=change", "--subsystem-match=dax", "--settle"]];
        for call in calls {
            match run("udevadm", call.iter().map(OsStr::new)) {
                Ok(true) => {}
                Ok(false) => return Err(format!("udevadm {} failed", call.join(" "))),
                Err(error) => return Err(format!("udevadm: {error}")),
            }
        }
        Ok(())
    }

    fn has_systemd(&self) -> bool {
        self.root.join("usr/lib/systemd/systemd").exists()
    }

    /// Tells whether systemd manages this system now: not so in an image, nor below `chroot`.
    fn systemd_runs(&self) -> bool {
        self.runs() && Path::new("/run/systemd/system").exists()
    }

    fn systemctl<const N: usize>(&self, words: [&str; N]) -> Result<(), String> {
        let root = if self.runs() { None } else { Some(["--root".as_ref(), self.root.as_os_str()]) };
        let words_of_call = root.into_iter().flatten().chain(words.iter().map(OsStr::new));
        match run("systemctl", words_of_call) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("systemctl {} failed", words.join(" "))),
            Err(error) => Err(format!("systemctl: {error}")),
        }
    }
}

/// Runs a program, and returns whether it succeeded. Its errors go to standard error.
fn run<'a>(program: &str, words: impl IntoIterator<Item = &'a OsStr>) -> io::Result<bool> {
    let status = Command::new(program).args(words).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    Ok(status.success())
}
