//! Identity of a machine, by its program and its command line.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use taut_api::printable::{MOST_NAME, printable};

use crate::kernel::shortage::unless_short;
use crate::kernel::task;

/// Most bytes that are read of a command line. libvirt's have 4 to 10 KiB.
const MOST_LINE: u64 = 64 << 10;

/// Identity of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// Start of its process, in clock ticks since the boot.
    pub(super) started: u64,
    /// Name by its command line.
    pub(super) name: Option<Arc<str>>,
    /// UUID by its command line.
    pub(super) uuid: Option<Arc<str>>,
}

impl Identity {
    /// Returns the identity of a process, if its program runs a machine: QEMU or a microguest.
    /// Fails only for want of descriptors or memory: a part of an identity would be that of another
    /// machine.
    pub(super) fn of(process: &Path) -> io::Result<Option<Self>> {
        let program = unless_short(fs::read_link(process.join("exe")))?.unwrap_or_default();
        let program = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // An upgrade of the package replaces the file of a machine that runs on.
        let program = program.strip_suffix(" (deleted)").unwrap_or(program);
        let is_machine =
            program.starts_with("qemu-system-") || ["kvm", "qemu-kvm", "taut-micro"].contains(&program);
        if !is_machine {
            return Ok(None);
        }
        let line = unless_short(command_line(process))?.unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let after = |option: &str| {
            let is_it = |word: &str| word.starts_with('-') && word.trim_start_matches('-') == option;
            let at = words.iter().position(|word| is_it(word))?;
            Some(&**words.get(at + 1)?)
        };
        let name = after("name").and_then(|value| {
            let part = value.split(',').find_map(|part| part.strip_prefix("guest="));
            part.or(value.split(',').next().filter(|first| !first.contains('=')))
        });
        Ok(Some(Self {
            started: unless_short(task::started(process))?.unwrap_or(0),
            name: name.filter(|name| !name.is_empty()).map(|name| printable(name, MOST_NAME).into()),
            uuid: after("uuid").and_then(canonical_uuid),
        }))
    }
}

/// Reads the command line of a process, with a zero byte behind each word.
fn command_line(process: &Path) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    File::open(process.join("cmdline"))?.take(MOST_LINE).read_to_end(&mut line)?;
    Ok(line)
}

/// Returns a UUID in small letters, or nothing if the text is no UUID in the usual form.
fn canonical_uuid(text: &str) -> Option<Arc<str>> {
    let fits = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    (text.len() == 36 && text.bytes().enumerate().all(fits)).then(|| text.to_ascii_lowercase().into())
}
