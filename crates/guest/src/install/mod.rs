//! `taut-guest install`: the agent, the preload library with its map, and the permission for queue
//! pairs, in a VM of a user's own.

mod device;
mod files;
mod place;
mod root;
mod system;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use device::take_back_devices;
pub(crate) use files::UNIT;
use place::{Owner, Placed, place};
use root::Root;
use system::System;

/// Name of the agent's unit.
const UNIT_NAME: &str = "taut-guest.service";
/// Name of the library beside this program, as a build leaves both.
const LIBRARY_NAME: &str = "libtaut_vmci.so";

/// Arguments of `taut-guest install`.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// The preload library; by default libtaut_vmci.so beside this program, if it is there.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// A map for the preload library. Without one, an existing map stays as it is.
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Group whose programs may use queue pairs. It is made if it does not exist.
    #[arg(long, default_value = "taut-vmci", value_name = "NAME", value_parser = group_name)]
    group: String,
    /// Root of the system to install in, such as the mounted image of a VM.
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
    /// Take back what was installed. Map and group stay.
    #[arg(long, conflicts_with_all = ["library", "map"])]
    remove: bool,
}

/// Accepts what `groupadd` accepts, so that the name cannot say anything else in a rule.
fn group_name(text: &str) -> Result<String, String> {
    let begins = text.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    if begins && text.len() <= 32 && text.bytes().all(rest) {
        Ok(text.to_owned())
    } else {
        Err("a group has up to 32 lower-case letters, digits, `_` and `-`, and begins with a letter".into())
    }
}

/// Installs, or takes back. Prints a line for each file.
pub(crate) fn run(args: &InstallArgs) -> io::Result<()> {
    let own = std::env::current_exe()?;
    let root = Root::open(&args.root).map_err(|error| {
        let hint = "name the folder where the VM's root file system is mounted";
        failed(format!("{} is not the root of a system: {error}", args.root.display()), hint)
    })?;
    let system = System::of(&root);
    if args.remove {
        take_back(args, &system, Owner::ROOT)
    } else {
        install(args, &own, &system, Owner::ROOT)
    }
}

/// Failures of steps after which the other steps go on.
#[derive(Debug, Default)]
struct Failures(Vec<String>);

impl Failures {
    /// Keeps a failure with its hint, and returns the result of a step without one.
    fn keep<T>(&mut self, outcome: Result<T, impl std::fmt::Display>, hint: &str) -> Option<T> {
        outcome.map_err(|error| self.0.push(with_hint(error, hint))).ok()
    }

    /// Keeps the failure of a step whose error has its hint already.
    fn keep_io<T>(&mut self, outcome: io::Result<T>) -> Option<T> {
        outcome.map_err(|error| self.0.push(error.to_string())).ok()
    }

    /// Returns all failures as one error.
    fn check(self) -> io::Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(io::Error::other(self.0.join("\nerror: "))) }
    }
}

/// Installs. A step that fails does not keep independent ones from being done.
fn install(args: &InstallArgs, own: &Path, system: &System<'_>, owner: Owner) -> io::Result<()> {
    // What the user named is read first, so that a wrong name changes nothing.
    let map = args.map.as_deref().map(read).transpose()?;
    let library = match (&args.library, own.with_file_name(LIBRARY_NAME)) {
        (Some(named), _) => Some(read(named)?),
        (None, beside) if beside.exists() => Some(read(&beside)?),
        (None, _) => None,
    };
    let program = read(own)?;
    let put = |to: &str, content: &[u8], mode| put(system.root, to, content, mode, owner);
    let mut failures = Failures::default();

    let made = system.make_group(&args.group);
    let made = failures.keep(made, &format!("make the group {} yourself, and install again", args.group));
    if let Some(made) = made {
        println!("{} the group {}", if made { "made      " } else { "kept      " }, args.group);
    }
    let has_agent = [put(files::PROGRAM, &program, 0o755), put(files::UNIT_FILE, UNIT.as_bytes(), 0o644)]
        .map(|outcome| failures.keep_io(outcome).is_some());
    let has_library = if let Some(library) = library {
        failures.keep_io(put(files::LIBRARY, &library, 0o755)).is_some()
    } else {
        let is_there = system.root.has(files::LIBRARY);
        println!("{}", without_library(is_there));
        is_there
    };
    match map {
        Some(map) => _ = failures.keep_io(put(files::MAP, &map, 0o644)),
        None if system.root.has(files::MAP) => println!("kept       /{}", files::MAP),
        None => _ = failures.keep_io(put(files::MAP, files::EMPTY_MAP.as_bytes(), 0o644)),
    }
    // A rule for a group that does not exist would give the device to nobody.
    let has_rule = made.is_some()
        && failures.keep_io(put(files::RULE, files::rule(&args.group).as_bytes(), 0o644)).is_some();
    let is_given = has_rule
        && failures.keep(system.apply_rules(), "start the VM anew, which applies the rule").is_some()
        && system.has_udev;
    if has_agent == [true; 2] {
        let enabled = failures.keep(system.enable(UNIT_NAME), "see `journalctl -u taut-guest`");
        if enabled == Some(false) {
            println!("left out   the service: without systemd, start `taut-guest agent` with the VM");
        }
    }
    if has_library {
        println!("{}", next_step(&args.group, is_given, system.has_udev));
    }
    failures.check()
}

/// Says what becomes of the library if none is beside this program, as when this program is the one
/// that was installed.
fn without_library(is_there: bool) -> String {
    if is_there {
        format!("kept       /{}", files::LIBRARY)
    } else {
        format!("left out   {LIBRARY_NAME}: it is not beside this program; name it by --library")
    }
}

/// Says how programs get queue pairs now.
fn next_step(group: &str, is_given: bool, has_udev: bool) -> String {
    let command = format!("next       LD_PRELOAD=/{} PROGRAM, as root", files::LIBRARY);
    match (is_given, has_udev) {
        (true, _) => format!("{command} or in the group {group}"),
        (false, true) => command,
        (false, false) => {
            format!(
                "{command}; there is no udev: give /dev/dax0.0 to the group {group} at each start of the VM"
            )
        }
    }
}

fn take_back(args: &InstallArgs, system: &System<'_>, owner: Owner) -> io::Result<()> {
    let mut failures = Failures::default();
    if system.root.has(files::UNIT_FILE) {
        failures.keep(system.disable(UNIT_NAME), "see `systemctl status taut-guest`");
    }
    let rule = system.root.read(files::RULE).unwrap_or_default();
    let group = files::group_of_rule(&String::from_utf8_lossy(&rule)).unwrap_or(&args.group).to_owned();
    for file in [files::RULE, files::UNIT_FILE, files::LIBRARY, files::PROGRAM] {
        let removed = system.root.entry(file).and_then(|entry| entry.remove());
        let removed = match removed {
            // Its folder is not there either.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map_err(|error| named(&Path::new("/").join(file), &error)),
        };
        if let Some(was_there) = failures.keep_io(removed) {
            println!("{} /{file}", if was_there { "removed   " } else { "not there " });
        }
    }
    failures.keep(system.apply_rules(), "start the VM anew, which applies the rules");
    if let Some(number) = system.group(&group).filter(|_| system.runs) {
        // udev changes nothing about a device for which no rule is left.
        let devices = take_back_devices(Path::new("/dev"), number, owner);
        for path in
            failures.keep(devices, "start the VM anew, which makes the device anew").unwrap_or_default()
        {
            println!("taken back {} from the group {group}", path.display());
        }
    }
    println!("kept       /{} and the group {group}", files::MAP);
    failures.check()
}

/// Puts one file into place, and says so.
fn put(root: &Root, to: &str, content: &[u8], mode: u32, owner: Owner) -> io::Result<()> {
    let placed = place(root, to, content, mode, owner);
    let placed = placed.map_err(|error| named(&Path::new("/").join(to), &error))?;
    println!("{} /{to}", if placed == Placed::Written { "installed " } else { "unchanged " });
    Ok(())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|error| named(path, &error))
}

/// Names the file that an error is about.
fn named(path: &Path, error: &io::Error) -> io::Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "install as root",
        io::ErrorKind::NotFound => "name a file that exists",
        _ => "see whether the file system is writable and has room",
    };
    failed(format!("{}: {error}", path.display()), hint)
}

fn failed(what: impl std::fmt::Display, hint: &str) -> io::Error {
    io::Error::other(with_hint(what, hint))
}

fn with_hint(what: impl std::fmt::Display, hint: &str) -> String {
    format!("{what}\nhint: {hint}")
}

#[cfg(test)]
mod tests;
