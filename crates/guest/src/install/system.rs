//! Programs of the guest's system that an installation needs: for groups, services and devices.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::root::Root;

/// Calls of udevadm that apply the rules to devices that exist. `trigger --settle` would be
/// shorter, but eudev and older versions of systemd do not have it.
const UDEV_CALLS: [&[&str]; 3] =
    [&["control", "--reload"], &["trigger", "--action=change", "--subsystem-match=dax"], &["settle"]];

/// Files of which one exists in a system with systemd: with and without merged `/usr`.
const SYSTEMD: [&str; 2] = ["usr/lib/systemd/systemd", "lib/systemd/systemd"];
/// Files of which one exists in a system with udev.
const UDEV: [&str; 6] =
    ["usr/bin/udevadm", "bin/udevadm", "usr/sbin/udevadm", "sbin/udevadm", "usr/sbin/udevd", "sbin/udevd"];

/// Runs a program, and returns whether it succeeded.
type Run<'a> = &'a dyn Fn(&str, &[OsString]) -> io::Result<bool>;

/// The system below a root folder: the one that runs, or an image that is being made.
pub(super) struct System<'a> {
    pub(super) root: &'a Root,
    pub(super) run: Run<'a>,
    /// True if this is the system that runs.
    pub(super) runs: bool,
    /// True if the system has systemd.
    pub(super) has_systemd: bool,
    /// True if systemd manages this system now: not so in an image, nor below `chroot`.
    pub(super) systemd_runs: bool,
    /// True if udev applies rules: now, or when the image is started.
    pub(super) has_udev: bool,
}

impl<'a> System<'a> {
    /// Looks what a system has.
    pub(super) fn of(root: &'a Root) -> Self {
        let runs = root.runs();
        let systemd_runs = runs && Path::new("/run/systemd/system").exists();
        Self {
            root,
            run: &run,
            runs,
            has_systemd: systemd_runs || SYSTEMD.iter().any(|path| root.has(path)),
            systemd_runs,
            has_udev: if runs {
                root.has("run/udev/control")
            } else {
                UDEV.iter().any(|path| root.has(path))
            },
        }
    }

    /// Makes a system group unless it exists. Returns whether it was made.
    pub(super) fn make_group(&self, name: &str) -> Result<bool, String> {
        if self.group(name).is_some() {
            return Ok(false);
        }
        let mut words: Vec<OsString> = Vec::new();
        if !self.runs {
            // groupadd would follow a link out of the image.
            for file in ["etc/group", "etc/gshadow"] {
                if self.root.has(file) && !self.root.has_file(file) {
                    return Err(format!("the group {name} cannot be made: /{file} is a link"));
                }
            }
            words.extend([OsString::from("--prefix"), self.root.path().into()]);
        }
        words.extend(["--system", name].map(OsString::from));
        match (self.run)("groupadd", &words) {
            Ok(true) => Ok(true),
            Ok(false) => Err(format!("groupadd has not made the group {name}")),
            Err(error) => Err(format!("the group {name} cannot be made: groupadd: {error}")),
        }
    }

    /// Number of a group, if it exists.
    pub(super) fn group(&self, name: &str) -> Option<u32> {
        let groups = self.root.read("etc/group").ok()?;
        let groups = String::from_utf8_lossy(&groups);
        let mut lines = groups.lines().map(|line| line.split(':'));
        lines.find_map(
            |mut fields| if fields.next() == Some(name) { fields.nth(1)?.parse().ok() } else { None },
        )
    }

    /// Enables the agent's unit, and starts it anew if this system runs. Returns false if this
    /// system has no systemd.
    pub(super) fn enable(&self, unit: &str) -> Result<bool, String> {
        if !self.has_systemd {
            return Ok(false);
        }
        self.systemctl(&["enable", unit])?;
        if self.systemd_runs {
            self.systemctl(&["daemon-reload"])?;
            self.systemctl(&["restart", unit])?;
        }
        Ok(true)
    }

    /// Disables the agent's unit, and stops it if this system runs.
    pub(super) fn disable(&self, unit: &str) -> Result<(), String> {
        match (self.has_systemd, self.systemd_runs) {
            (false, _) => Ok(()),
            (true, true) => self.systemctl(&["disable", "--now", unit]),
            (true, false) => self.systemctl(&["disable", unit]),
        }
    }

    /// Has udev apply its rules to devices that exist. Does nothing for an image, or without udev.
    pub(super) fn apply_rules(&self) -> Result<(), String> {
        if !self.runs || !self.has_udev {
            return Ok(());
        }
        for call in UDEV_CALLS {
            let words: Vec<OsString> = call.iter().map(Into::into).collect();
            match (self.run)("udevadm", &words) {
                Ok(true) => {}
                Ok(false) => return Err(format!("udevadm {} failed", call.join(" "))),
                Err(error) => return Err(format!("udevadm: {error}")),
            }
        }
        Ok(())
    }

    fn systemctl(&self, words: &[&str]) -> Result<(), String> {
        let root = [OsString::from("--root"), self.root.path().into()];
        let root = if self.runs { None } else { Some(root) };
        let all: Vec<OsString> = root.into_iter().flatten().chain(words.iter().map(Into::into)).collect();
        match (self.run)("systemctl", &all) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("systemctl {} failed", words.join(" "))),
            Err(error) => Err(format!("systemctl: {error}")),
        }
    }
}

/// Runs a program, and returns whether it succeeded. Its errors go to standard error.
fn run(program: &str, words: &[OsString]) -> io::Result<bool> {
    let status = Command::new(program).args(words).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn systemd_is_found_without_merged_usr_and_udev_in_any_place() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        write("etc/group");
        let root = Root::open(folder.path()).unwrap();
        let found = || (System::of(&root).has_systemd, System::of(&root).has_udev);
        assert_eq!(found(), (false, false));
        write("lib/systemd/systemd");
        assert_eq!(found(), (true, false));
        write("sbin/udevadm");
        assert_eq!(found(), (true, true));
        fs::remove_file(folder.path().join("lib/systemd/systemd")).unwrap();
        write("usr/lib/systemd/systemd");
        assert_eq!(found(), (true, true));
    }

    #[test]
    fn udev_is_triggered_and_then_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("etc")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        let calls = RefCell::new(Vec::new());
        let run = |program: &str, words: &[OsString]| {
            let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            calls.borrow_mut().push(format!("{program} {}", words.join(" ")));
            // As eudev does.
            Ok(words[0] != "trigger" || !words.iter().any(|word| word == "--settle"))
        };
        let system = System { run: &run, runs: true, has_udev: true, ..System::of(&root) };
        system.apply_rules().unwrap();
        let expected = [
            "udevadm control --reload",
            "udevadm trigger --action=change --subsystem-match=dax",
            "udevadm settle",
        ];
        assert_eq!(*calls.borrow(), expected);
        System { has_udev: false, ..system }.apply_rules().unwrap();
        assert_eq!(calls.borrow().len(), 3, "without udev");
    }

    #[test]
    fn groupadd_does_not_follow_a_link_out_of_an_image() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("etc")).unwrap();
        fs::write(folder.path().join("elsewhere"), "root:x:0:\nweb:x:33:\n").unwrap();
        symlink("/elsewhere", folder.path().join("etc/group")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        let run = |_: &str, _: &[OsString]| -> io::Result<bool> { panic!("nothing may be run") };
        let system = System { run: &run, ..System::of(&root) };
        assert_eq!((system.group("web"), system.group("we")), (Some(33), None));
        assert!(system.make_group("taut-vmci").unwrap_err().contains("/etc/group is a link"));
    }
}
