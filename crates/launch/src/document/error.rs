//! Why a document is refused.

use super::{FIRST_INHERITED, MAX_DOCUMENT};

/// A document that is refused.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The document is too long.
    #[error("the document has {size} bytes; the limit is {MAX_DOCUMENT}")]
    TooLong {
        /// Size in bytes.
        size: usize,
    },
    /// The bytes are not a document.
    #[error("the document has another form")]
    Form(#[source] serde_json::Error),
    /// A field has a value that it may not have.
    #[error("the field `{field}` of the document is {value}, but it {rule}")]
    Value {
        /// Name of the field, such as `root.devices`.
        field: &'static str,
        /// The value, shortened.
        value: String,
        /// The rule that it breaks.
        rule: Rule,
    },
}

/// A rule for the value of a field. Its text continues a sentence that begins with the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// For numbers of descriptors.
    #[error("must be a descriptor's number from {FIRST_INHERITED} to {}", super::check::MAX_DESCRIPTOR)]
    Descriptor,
    /// For lists.
    #[error("must have at most {} entries", super::check::MAX_ENTRIES)]
    Entries,
    /// For `args`.
    #[error("must have at least the program's name")]
    NotEmpty,
    /// For texts that the kernel ends by a zero byte.
    #[error("must not contain a zero byte")]
    NoZeroByte,
    /// For `env`.
    #[error("must have the form NAME=value")]
    Variable,
    /// For `uid` and `gid`. The largest number means "unchanged" to the kernel.
    #[error("must be from 1 to {}", u32::MAX - 1)]
    NotRoot,
    /// For `oom_score_adj`.
    #[error("must be from -1000 to 1000")]
    OomScore,
    /// For paths.
    #[error(
        "must be an absolute path below `/` without `.`, `..` and doubled slashes, of at most {} bytes",
        super::check::MAX_PATH
    )]
    Path,
    /// For paths of devices.
    #[error("must be below /dev")]
    BelowDev,
    /// For paths of files and folders, among them the private folders of the root.
    #[error("must not be /tmp, nor /dev or /proc or below them: the root has folders of its own there")]
    NotPrivate,
    /// For paths and numbers that may occur once.
    #[error("must not occur twice")]
    Once,
    /// For numbers of devices, which have 12 and 20 bits.
    #[error("must be a device's number: at most 4095 and 1048575")]
    DeviceNumber,
    /// For modes of devices.
    #[error("must have permission bits for reading and writing only")]
    Mode,
    /// For `limits.nofile`.
    #[error("must be unlimited, or at least 64 and larger than each descriptor's number")]
    AboveDescriptors,
    /// For `limits.cpu_seconds` and `limits.address_space`.
    #[error("must not be 0")]
    NotZero,
    /// For `root.tmp`.
    #[error("must be from 4096 to {}", super::check::MAX_TMP)]
    TmpSize,
    /// For the skeleton's descriptor.
    #[error("must not be a descriptor that the program inherits or is read from")]
    OwnDescriptor,
    /// For parts of the root.
    #[error("needs the mount namespace, which is turned off")]
    NeedsMountNamespace,
}
