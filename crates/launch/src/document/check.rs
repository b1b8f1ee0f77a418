//! Rules for the values of a document.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::{Document, DocumentError, FIRST_INHERITED, Limit, Root, Rule, Skeleton};

/// Largest number of a descriptor: `fs.nr_open` as the kernel has it at its start.
pub(super) const MAX_DESCRIPTOR: i32 = (1 << 20) - 1;

/// Most entries of a list.
pub(super) const MAX_ENTRIES: usize = 4096;

/// Longest path, in bytes: `PATH_MAX` with its zero byte.
pub(super) const MAX_PATH: usize = 4095;

/// Largest private `/tmp`: 16 GiB.
pub(super) const MAX_TMP: u64 = 16 << 30;

/// Longest value that an error repeats, in characters.
const SHOWN: usize = 100;

type Checked = Result<(), DocumentError>;

impl Document {
    /// Checks all values. [`Document::parse`] and [`Document::to_bytes`] do it too.
    pub fn check(&self) -> Checked {
        self.check_program()?;
        self.check_descriptors()?;
        for (field, number) in [("uid", self.uid), ("gid", self.gid)] {
            rule(field, number, number != 0 && number != u32::MAX, Rule::NotRoot)?;
        }
        if let Some(score) = self.oom_score_adj {
            rule("oom_score_adj", score, (-1000..=1000).contains(&score), Rule::OomScore)?;
        }
        self.check_limits()?;
        self.check_root()?;
        for (field, paths) in [
            ("landlock.read", &self.landlock.read),
            ("landlock.execute", &self.landlock.execute),
            ("landlock.write", &self.landlock.write),
            ("landlock.devices", &self.landlock.devices),
        ] {
            entries(field, paths)?;
            paths.iter().try_for_each(|path| path_or_root(field, path))?;
        }
        Ok(())
    }

    fn check_program(&self) -> Checked {
        descriptor("program", self.program)?;
        rule("args", "empty", !self.args.is_empty(), Rule::NotEmpty)?;
        entries("args", &self.args)?;
        entries("env", &self.env)?;
        for (field, texts) in [("args", &self.args), ("env", &self.env)] {
            for text in texts {
                rule(field, text.escape_debug(), !text.contains('\0'), Rule::NoZeroByte)?;
            }
        }
        for text in &self.env {
            let is_variable = text.find('=').is_some_and(|at| at > 0);
            rule("env", text.escape_debug(), is_variable, Rule::Variable)?;
        }
        Ok(())
    }

    fn check_descriptors(&self) -> Checked {
        entries("keep", &self.keep)?;
        let mut seen = BTreeSet::new();
        for &number in &self.keep {
            descriptor("keep", number)?;
            rule("keep", number, seen.insert(number), Rule::Once)?;
        }
        if let Some(number) = self.root.skeleton {
            descriptor("root.skeleton", number)?;
            let is_own = number != self.program && !seen.contains(&number);
            rule("root.skeleton", number, is_own, Rule::OwnDescriptor)?;
        }
        Ok(())
    }

    fn check_limits(&self) -> Checked {
        let largest = self.keep.iter().copied().chain([self.program]).max().unwrap_or(FIRST_INHERITED);
        if let Some(Limit::At(limit)) = self.limits.nofile {
            let is_above = limit >= 64 && u64::try_from(largest).is_ok_and(|largest| limit > largest);
            rule("limits.nofile", limit, is_above, Rule::AboveDescriptors)?;
        }
        for (field, limit) in [
            ("limits.cpu_seconds", self.limits.cpu_seconds),
            ("limits.address_space", self.limits.address_space),
        ] {
            rule(field, 0, limit != Some(Limit::At(0)), Rule::NotZero)?;
        }
        Ok(())
    }

    fn check_root(&self) -> Checked {
        let root = &self.root;
        if !self.namespaces.mount {
            rule("root", "not empty", *root == Root::default(), Rule::NeedsMountNamespace)?;
        }
        let mut seen = BTreeSet::new();
        for (field, paths) in [
            ("root.system", &root.system),
            ("root.read_only", &root.read_only),
            ("root.writable", &root.writable),
        ] {
            bound_paths(field, paths, &mut seen)?;
        }
        entries("root.devices", &root.devices)?;
        for device in &root.devices {
            let field = "root.devices";
            path(field, &device.path)?;
            let is_below = device.path.starts_with("/dev") && device.path != Path::new("/dev");
            rule(field, device.path.display(), is_below, Rule::BelowDev)?;
            rule(field, device.path.display(), seen.insert(&device.path), Rule::Once)?;
            let (major, minor) = (device.major, device.minor);
            let is_number = major < 1 << 12 && minor < 1 << 20;
            rule(field, format!("{major}:{minor}"), is_number, Rule::DeviceNumber)?;
            rule(field, format!("{:#o}", device.mode), device.mode & !0o666 == 0, Rule::Mode)?;
        }
        if let Some(size) = root.tmp {
            rule("root.tmp", size, (4096..=MAX_TMP).contains(&size), Rule::TmpSize)?;
        }
        Ok(())
    }
}

impl Skeleton {
    /// Checks all values. [`Skeleton::parse`] and [`Skeleton::to_bytes`] do it too.
    pub fn check(&self) -> Checked {
        bound_paths("system", &self.system, &mut BTreeSet::new())
    }
}

/// Checks paths that become part of the root.
fn bound_paths<'a>(field: &'static str, paths: &'a [PathBuf], seen: &mut BTreeSet<&'a PathBuf>) -> Checked {
    entries(field, paths)?;
    for bound in paths {
        path(field, bound)?;
        let is_private =
            bound == Path::new("/tmp") || bound.starts_with("/dev") || bound.starts_with("/proc");
        rule(field, bound.display(), !is_private, Rule::NotPrivate)?;
        rule(field, bound.display(), seen.insert(bound), Rule::Once)?;
    }
    Ok(())
}

fn descriptor(field: &'static str, number: i32) -> Checked {
    rule(field, number, (FIRST_INHERITED..=MAX_DESCRIPTOR).contains(&number), Rule::Descriptor)
}

fn path(field: &'static str, path: &Path) -> Checked {
    let bytes = path.as_os_str().as_bytes();
    rule(field, path.display().to_string().escape_debug(), !bytes.contains(&0), Rule::NoZeroByte)?;
    let is_plain = bytes.strip_prefix(b"/").is_some_and(|rest| {
        bytes.len() <= MAX_PATH
            && rest.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."))
    });
    rule(field, path.display(), is_plain, Rule::Path)
}

fn path_or_root(field: &'static str, whole: &Path) -> Checked {
    if whole == Path::new("/") && whole.as_os_str().len() == 1 { Ok(()) } else { path(field, whole) }
}

fn entries<T>(field: &'static str, list: &[T]) -> Checked {
    rule(field, format!("a list of {}", list.len()), list.len() <= MAX_ENTRIES, Rule::Entries)
}

/// Returns an error with the value unless the rule holds.
fn rule(field: &'static str, value: impl Display, holds: bool, rule: Rule) -> Checked {
    if holds {
        return Ok(());
    }
    let value = value.to_string();
    let mut shown: String = value.chars().take(SHOWN).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    Err(DocumentError::Value { field, value: shown, rule })
}
