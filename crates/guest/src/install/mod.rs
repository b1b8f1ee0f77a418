//! `taut-guest install`: the agent, the preload library with its map, and the permission for queue
//! pairs, in a VM of a user's own.

mod files;
mod place;
mod system;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

pub(crate) use files::UNIT;
use place::{Placed, place, remove};
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
    if args.remove { take_back(args) } else { install(args, &own) }
}

fn install(args: &InstallArgs, own: &Path) -> io::Result<()> {
    let system = System { root: &args.root };
    let put = |to: &str, content: &[u8], mode| put(&args.root, to, content, mode);
    // What the user named is read first, so that a wrong name changes nothing.
    let map = args.map.as_deref().map(read).transpose()?;
    let library = match (&args.library, own.with_file_name(LIBRARY_NAME)) {
        (Some(named), _) => Some(read(named)?),
        (None, beside) if beside.exists() => Some(read(&beside)?),
        (None, _) => None,
    };
    put(files::PROGRAM, &read(own)?, 0o755)?;
    put(files::UNIT_FILE, UNIT.as_bytes(), 0o644)?;
    match library {
        Some(library) => put(files::LIBRARY, &library, 0o755)?,
        None => println!("left out   {LIBRARY_NAME}: it is not beside this program; name it by --library"),
    }
    match map {
        Some(map) => put(files::MAP, &map, 0o644)?,
        None if args.root.join(files::MAP).exists() => println!("kept       /{}", files::MAP),
        None => put(files::MAP, files::EMPTY_MAP.as_bytes(), 0o644)?,
    }
    let made = system.make_group(&args.group).map_err(|error| {
        failed(error, &format!("make the group {} yourself, and install again", args.group))
    })?;
    println!("{} the group {}", if made { "made      " } else { "kept      " }, args.group);
    put(files::RULE, files::rule(&args.group).as_bytes(), 0o644)?;
    let applied = system.apply_rules();
    applied.map_err(|error| failed(error, "start the VM anew, which applies the rule"))?;
    let enabled = system.enable(UNIT_NAME);
    let enabled = enabled.map_err(|error| failed(error, "see `journalctl -u taut-guest`"))?;
    if !enabled {
        println!("left out   the service: without systemd, start `taut-guest agent` with the VM");
    }
    println!("next       LD_PRELOAD=/{} PROGRAM, as root or in the group {}", files::LIBRARY, args.group);
    Ok(())
}

fn take_back(args: &InstallArgs) -> io::Result<()> {
    let system = System { root: &args.root };
    if args.root.join(files::UNIT_FILE).exists() {
        let disabled = system.disable(UNIT_NAME);
        disabled.map_err(|error| failed(error, "see `systemctl status taut-guest`"))?;
    }
    for file in [files::RULE, files::UNIT_FILE, files::LIBRARY, files::PROGRAM] {
        let path = args.root.join(file);
        let was_there = remove(&path).map_err(|error| named(&path, &error))?;
        println!("{} /{file}", if was_there { "removed   " } else { "not there " });
    }
    let applied = system.apply_rules();
    applied.map_err(|error| failed(error, "start the VM anew, which applies the rules"))?;
    println!("kept       /{} and the group {}", files::MAP, args.group);
    Ok(())
}

/// Puts one file into place, and says so.
fn put(root: &Path, to: &str, content: &[u8], mode: u32) -> io::Result<()> {
    let path = root.join(to);
    let placed = place(&path, content, mode).map_err(|error| named(&path, &error))?;
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
    io::Error::other(format!("{what}\nhint: {hint}"))
}

#[cfg(test)]
mod tests;
