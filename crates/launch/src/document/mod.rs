//! The document: what the launcher has to do for one process.

mod check;
mod error;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::wall::Wall;
pub use error::{DocumentError, Rule};

/// Number of the descriptor from which the launcher reads the document.
pub const DOCUMENT_FD: i32 = 3;

/// Number of the descriptor to which the launcher writes its report.
pub const REPORT_FD: i32 = 4;

/// Number of the descriptor on which the launcher waits until the caller confirms the start.
pub const CONFIRM_FD: i32 = 5;

/// Smallest number of a descriptor that a document may name.
pub const FIRST_INHERITED: i32 = 10;

/// Size limit of a document, in bytes.
pub const MAX_DOCUMENT: usize = 256 << 10;

/// What the launcher has to do for one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Number of the descriptor of the program's file. It is closed when the program starts, unless
    /// [`Document::keep`] has it. A script needs it then, to read itself.
    pub program: i32,
    /// Arguments of the program. The first one is its name.
    pub args: Vec<String>,
    /// Environment of the program, as `NAME=value`.
    #[serde(default)]
    pub env: Vec<String>,
    /// Numbers of the descriptors that the program inherits besides the standard streams.
    #[serde(default)]
    pub keep: Vec<i32>,
    /// User of the process. Not root.
    pub uid: u32,
    /// Group of the process, its only one. Not root.
    pub gid: u32,
    /// Resource limits. Core dumps and message queues are always forbidden.
    #[serde(default)]
    pub limits: Limits,
    /// `oom_score_adj` of the process, from -1000 to 1000. Without it, that of the caller.
    #[serde(default)]
    pub oom_score_adj: Option<i16>,
    /// Namespaces of the process's own.
    #[serde(default)]
    pub namespaces: Namespaces,
    /// Files and folders that the process sees.
    #[serde(default)]
    pub root: Root,
    /// What Landlock leaves reachable of them.
    #[serde(default)]
    pub landlock: Landlock,
    /// System call filter.
    pub filter: Filter,
    /// Walls without which the program may start.
    #[serde(default)]
    pub may_lack: BTreeSet<Wall>,
}

/// Resource limits. A limit that is not stated remains that of the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Number of the first descriptor that the process cannot open.
    pub nofile: Option<Limit>,
    /// Threads and processes of the user.
    pub nproc: Option<Limit>,
    /// Locked memory, in bytes. A launcher that may not raise the limit to [`Limit::Unlimited`]
    /// leaves the program a capability instead, if [`Wall::Capabilities`] may be missing.
    pub memlock: Option<Limit>,
    /// Address space, in bytes.
    pub address_space: Option<Limit>,
    /// CPU time, in seconds. The kernel then kills the process.
    pub cpu_seconds: Option<Limit>,
}

/// A resource limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// As much as the kernel has.
    Unlimited,
    /// This amount.
    At(u64),
}

/// Namespaces of the process's own. The report names those that are turned off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Namespaces {
    /// Mounts. Without it there is no private root either.
    pub mount: bool,
    /// Network.
    pub net: bool,
    /// System V IPC and POSIX message queues.
    pub ipc: bool,
    /// Host name.
    pub uts: bool,
    /// Process numbers.
    pub pid: bool,
    /// Control groups.
    pub cgroup: bool,
}

impl Default for Namespaces {
    fn default() -> Self {
        Self { mount: true, net: true, ipc: true, uts: true, pid: true, cgroup: true }
    }
}

/// Files and folders that the process sees. Everything else is absent. The root itself is an empty
/// file system in memory that nobody can write to, with empty folders `/dev`, `/proc` and `/tmp`.
///
/// All paths are absolute and are the same inside and on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Root {
    /// Number of the descriptor of a skeleton's mount namespace. Without it, the launcher copies
    /// the mounts of the host.
    pub skeleton: Option<i32>,
    /// Folders of the system, such as `/usr` and `/lib`, read-only. A symbolic link remains one.
    /// With a skeleton they come from there, and the skeleton must have them.
    pub system: Vec<PathBuf>,
    /// Files and folders of the host, read-only.
    pub read_only: Vec<PathBuf>,
    /// Files and folders of the host that remain writable for those whom their modes permit it.
    /// Programs and device nodes in them have no effect.
    pub writable: Vec<PathBuf>,
    /// Character devices in the private `/dev`.
    pub devices: Vec<Device>,
    /// Mounts a `/proc` that shows processes only, and only those of the namespace.
    pub proc: bool,
    /// Size of a private, writable `/tmp`, in bytes. Without it the folder is read-only.
    pub tmp: Option<u64>,
}

/// A character device. Its node belongs to the process's user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Path below `/dev`.
    pub path: PathBuf,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits, at most `0o666`.
    pub mode: u32,
}

/// Paths that Landlock leaves reachable, as the process sees them; `/` is the whole root. The
/// program's file is always among them. Rights of files and users apply besides.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Landlock {
    /// Files and folders to read.
    pub read: Vec<PathBuf>,
    /// Files and folders to read and execute.
    pub execute: Vec<PathBuf>,
    /// Files and folders to read and write, and to create files in.
    pub write: Vec<PathBuf>,
    /// Device nodes to read, write and control.
    pub devices: Vec<PathBuf>,
}

/// The system call filter of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// No filter, for a program that installs its own.
    None,
    /// Refuses calls that a VM does not need and an attacker does: they fail with `EPERM`.
    Vm,
    /// Permits what it takes to read descriptors and to answer. Any other call ends the process.
    Inspector,
}

/// What `taut-launch --skeleton` has to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skeleton {
    /// Folders of the system, as [`Root::system`].
    pub system: Vec<PathBuf>,
}

impl Document {
    /// Creates the document of a program that gets nothing but its walls.
    pub fn new(program: i32, args: Vec<String>, uid: u32, gid: u32, filter: Filter) -> Self {
        Self {
            program,
            args,
            env: Vec::new(),
            keep: Vec::new(),
            uid,
            gid,
            limits: Limits::default(),
            oom_score_adj: None,
            namespaces: Namespaces::default(),
            root: Root::default(),
            landlock: Landlock::default(),
            filter,
            may_lack: BTreeSet::new(),
        }
    }

    /// Parses and checks a document.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let document: Self = parse(bytes)?;
        document.check()?;
        Ok(document)
    }

    /// Checks the document and returns its bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, DocumentError> {
        self.check()?;
        to_bytes(self)
    }
}

impl Skeleton {
    /// Parses and checks a skeleton.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let skeleton: Self = parse(bytes)?;
        skeleton.check()?;
        Ok(skeleton)
    }

    /// Checks the skeleton and returns its bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, DocumentError> {
        self.check()?;
        to_bytes(self)
    }
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DocumentError> {
    if bytes.len() > MAX_DOCUMENT {
        return Err(DocumentError::TooLong { size: bytes.len() });
    }
    serde_json::from_slice(bytes).map_err(DocumentError::Form)
}

fn to_bytes<T: Serialize>(document: &T) -> Result<Vec<u8>, DocumentError> {
    let bytes = serde_json::to_vec(document).map_err(DocumentError::Form)?;
    if bytes.len() > MAX_DOCUMENT {
        return Err(DocumentError::TooLong { size: bytes.len() });
    }
    Ok(bytes)
}
