//! Reasons why an image is refused. Text from the image is escaped in messages.

use std::error::Error as _;
use std::fmt::{self, Write as _};

use crate::image::MAX_VIRTUAL_SIZE;
use crate::name::NameFault;
use crate::read_at::ReadError;

/// A part of an image with a place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// qcow2: where the reference counts are.
    Refcounts,
    /// qcow2: where the second-level tables are.
    L1,
    /// qcow2: the snapshots inside the image.
    Snapshots,
    /// VMDK: where the grain tables are.
    GrainDirectory,
    /// VMDK: a copy of the grain directory.
    RedundantGrainDirectory,
    /// VMDK: all that comes before the first grain.
    Overhead,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refcounts => "reference count table",
            Self::L1 => "L1 table",
            Self::Snapshots => "snapshot table",
            Self::GrainDirectory => "grain directory",
            Self::RedundantGrainDirectory => "redundant grain directory",
            Self::Overhead => "part before the first grain",
        })
    }
}

/// Why an image is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages explain variants and fields")]
pub enum Refusal {
    #[error("the image cannot be read")]
    Unreadable(#[from] ReadError),
    #[error("the virtual size is less than a sector of 512 bytes")]
    NoSize,
    #[error("the virtual size is {size} bytes, more than {MAX_VIRTUAL_SIZE} (64 TiB)")]
    TooLarge { size: u64 },
    #[error("the {table} ({bytes} bytes at {offset}) is not inside the file of {file_size} bytes")]
    OutsideFile { table: Table, offset: u64, bytes: u64, file_size: u64 },

    // qcow2
    #[error("this is no qcow2 image: the file begins with {magic:02x?} instead of [51, 46, 49, fb]")]
    NotQcow2 { magic: [u8; 4] },
    #[error("the image has version {version} of qcow2; only 2 and 3 are supported")]
    Qcow2Version { version: u32 },
    #[error("the cluster size is 2^{bits} bytes; it must be 2^9 to 2^21")]
    ClusterBits { bits: u32 },
    #[error("the header states {length} bytes; multiples of 8 from 104 to {cluster_size} are valid")]
    HeaderLength { length: u32, cluster_size: u64 },
    #[error("the image is marked as corrupt")]
    Corrupt,
    #[error("the image keeps its data in another file ({sign})")]
    ExternalDataFile { sign: &'static str },
    #[error("the image uses features that are not supported: bits {bits:#x} (0x10: extended L2 entries)")]
    UnknownFeatures { bits: u64 },
    #[error("compression type {kind} is not valid with its feature bit {}", set_or_not(*flagged))]
    Qcow2Compression { kind: u8, flagged: bool },
    #[error("the image is encrypted (method {method})")]
    Encrypted { method: u32 },
    #[error("reference counts have 2^{order} bits; at most 2^6 are valid")]
    RefcountOrder { order: u32 },
    #[error("the reference count table has {clusters} clusters; 1 to {limit} are valid")]
    RefcountTableSize { clusters: u32, limit: u64 },
    #[error("the L1 table has {entries} entries; at most {limit} are valid")]
    L1TooLarge { entries: u32, limit: u64 },
    #[error("the L1 table has {entries} entries; the virtual size of {size} bytes needs {needed}")]
    L1TooSmall { entries: u32, needed: u64, size: u64 },
    #[error("the image states {count} snapshots; at most {limit} are valid")]
    TooManySnapshots { count: u32, limit: u32 },
    #[error("the {table} begins at {offset}, which is no multiple of the cluster size {cluster_size}")]
    Unaligned { table: Table, offset: u64, cluster_size: u64 },
    #[error("header extension {kind:#010x} at {offset} has {len} bytes; the header ends at {end}")]
    ExtensionTooLong { kind: u32, offset: u64, len: u32, end: u64 },
    #[error("the header has more than {limit} extensions")]
    TooManyExtensions { limit: usize },
    #[error("the header names the format of the backing file twice")]
    BackingFormatTwice,
    #[error("the name of the backing file's format has {len} bytes; at most {limit} are valid")]
    BackingFormatLength { len: u32, limit: u32 },
    #[error("the format of the backing file is {format:?}; only raw, qcow2 and vmdk are supported")]
    BackingFormatUnknown { format: String },
    #[error("the image does not record the format of its backing file {name:?}")]
    BackingFormatMissing { name: String },
    #[error(
        "the backing file's name ({len} bytes at {offset}) is not between the header and the cluster's end"
    )]
    BackingNamePlace { offset: u64, len: u32 },
    #[error("the name of the backing file has {len} bytes; at most {limit} are valid")]
    BackingNameLength { len: u32, limit: u32 },
    #[error("the name of the backing file, {name:?}, is not accepted")]
    BackingName {
        name: String,
        #[source]
        fault: NameFault,
    },

    // VMDK
    #[error("this is no VMDK image: the file begins with {magic:02x?}")]
    NotVmdk { magic: [u8; 4] },
    #[error("this is a sparse extent of ESX (COWD)")]
    EsxSparse,
    #[error("the image has version {version} of VMDK; only 1 to 3 are supported")]
    VmdkVersion { version: u32 },
    #[error("line ends in the header were changed ({bytes:02x?}): the image was copied as text")]
    LineEnds { bytes: [u8; 4] },
    #[error("compression algorithm {algorithm} is unknown; 0 and 1 are valid")]
    VmdkCompression { algorithm: u16 },
    #[error("a grain has {sectors} sectors; powers of two from 8 to {limit} are valid")]
    GrainSize { sectors: u64, limit: u64 },
    #[error("a grain table has {entries} entries; 1 to {limit} are valid")]
    GrainTableSize { entries: u32, limit: u32 },
    #[error("the grain directory needs {entries} entries; at most {limit} are valid")]
    GrainDirectorySize { entries: u64, limit: u64 },
    #[error("the footer is invalid: {fault}")]
    Footer { fault: &'static str },
    #[error("header and footer differ in {field}: {header} and {footer}")]
    FooterDiffers { field: &'static str, header: u64, footer: u64 },
    #[error("the image has no descriptor of its own")]
    DescriptorMissing,
    #[error("the descriptor is at sector {sector}; QEMU reads it from sector 1")]
    DescriptorPlace { sector: u64 },
    #[error("the descriptor has {bytes} bytes; at most {limit} are valid")]
    DescriptorSize { bytes: u64, limit: u64 },
    #[error("the descriptor of {bytes} bytes does not end in zeros")]
    DescriptorEnd { bytes: u64 },
    #[error("the descriptor is not UTF-8 at byte {at}")]
    DescriptorEncoding { at: u64 },
    #[error("line {number} of the descriptor is not understood: {line:?}")]
    DescriptorLine { number: usize, line: String },
    #[error("line {number} of the descriptor sets {key} again")]
    DescriptorRepeats { number: usize, key: &'static str },
    #[error("the descriptor lacks {key}")]
    DescriptorLacks { key: &'static str },
    #[error("the type {create_type:?} is not supported in a {place}")]
    CreateType { create_type: String, place: Place },
    #[error("the image is a difference to a parent (parentCID {cid:?})")]
    Parent { cid: String },
    #[error("the descriptor names a parent (parentFileNameHint)")]
    ParentName,
    #[error("the descriptor has {count} extents; exactly one is supported")]
    ExtentCount { count: usize },
    #[error("the extent is of kind {kind:?} with access {access}; {expected} is supported")]
    ExtentKind { kind: String, access: &'static str, expected: &'static str },
    #[error("the name of the extent, {name:?}, is not accepted")]
    ExtentName {
        name: String,
        #[source]
        fault: NameFault,
    },
}

fn set_or_not(flag: bool) -> &'static str {
    if flag { "set" } else { "not set" }
}

/// Where a VMDK descriptor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Inside an image with a binary header.
    Image,
    /// In a text file of its own.
    File,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Image => "single file",
            Self::File => "descriptor file",
        })
    }
}

const CONVERT_QCOW2: &str =
    "if you trust its origin, convert it: qemu-img convert -f qcow2 -O qcow2 IMAGE COPY.qcow2";
const CONVERT_VMDK: &str =
    "if you trust its origin, convert it: qemu-img convert -f vmdk -O qcow2 IMAGE.vmdk COPY.qcow2";
const CHECK_FORMAT: &str = "name the format that the image really has (`format` in the VM file)";
const CHECK_QCOW2: &str = "the image is damaged or was made to deceive: copy it again from its origin, or \
                           try to repair a copy: qemu-img check -f qcow2 -r all IMAGE";
const CHECK_VMDK: &str = "the image is damaged or was made to deceive: copy or export it again";

impl Refusal {
    /// Returns the reason with its causes, in one line.
    pub fn message(&self) -> String {
        let mut message = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            let _ = write!(message, ": {error}");
            cause = error.source();
        }
        message
    }

    /// Returns what the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable(ReadError::PastEnd { .. }) | Self::OutsideFile { .. } => {
                "the file is shorter than its header says: copy it again from its origin".to_owned()
            }
            Self::Unreadable(_) => "name a regular file or a block device that can be read".to_owned(),
            Self::NoSize => "give the image a size: qemu-img resize -f FORMAT IMAGE 10G".to_owned(),
            Self::TooLarge { .. } => "use an image of at most 64 TiB".to_owned(),
            Self::NotQcow2 { .. } | Self::NotVmdk { .. } => CHECK_FORMAT.to_owned(),
            Self::Corrupt => "repair it, best a copy: qemu-img check -f qcow2 -r all IMAGE".to_owned(),
            Self::Qcow2Version { .. }
            | Self::ExternalDataFile { .. }
            | Self::UnknownFeatures { .. }
            | Self::Encrypted { .. } => CONVERT_QCOW2.to_owned(),
            Self::ClusterBits { .. }
            | Self::HeaderLength { .. }
            | Self::Qcow2Compression { .. }
            | Self::RefcountOrder { .. }
            | Self::RefcountTableSize { .. }
            | Self::L1TooLarge { .. }
            | Self::L1TooSmall { .. }
            | Self::TooManySnapshots { .. }
            | Self::Unaligned { .. }
            | Self::ExtensionTooLong { .. }
            | Self::TooManyExtensions { .. }
            | Self::BackingFormatTwice
            | Self::BackingFormatLength { .. }
            | Self::BackingNamePlace { .. }
            | Self::BackingNameLength { .. } => CHECK_QCOW2.to_owned(),
            Self::BackingFormatUnknown { .. } => format!(
                "convert the backing file to qcow2, then record it: {}",
                rebase("BASE.qcow2", "qcow2")
            ),
            Self::BackingFormatMissing { name } => {
                format!("record the format that it really has: {}", rebase(name, "FORMAT"))
            }
            Self::BackingName { .. } => format!(
                "move the backing file into the folder of the image or below it, and record its relative \
                 path: {}; or make one image of both: qemu-img convert -f qcow2 -O qcow2 IMAGE COPY.qcow2",
                rebase("./BASE", "FORMAT")
            ),
            Self::EsxSparse => esx_delta(),
            Self::LineEnds { .. } => "copy it again in binary mode".to_owned(),
            Self::VmdkVersion { .. }
            | Self::GrainSize { .. }
            | Self::GrainTableSize { .. }
            | Self::DescriptorMissing
            | Self::DescriptorPlace { .. }
            | Self::ExtentCount { .. }
            | Self::ExtentKind { .. } => CONVERT_VMDK.to_owned(),
            Self::VmdkCompression { .. }
            | Self::GrainDirectorySize { .. }
            | Self::Footer { .. }
            | Self::FooterDiffers { .. }
            | Self::DescriptorSize { .. }
            | Self::DescriptorEnd { .. }
            | Self::DescriptorRepeats { .. }
            | Self::DescriptorLacks { .. } => CHECK_VMDK.to_owned(),
            Self::DescriptorEncoding { .. } => {
                "write the descriptor in UTF-8, and rename files accordingly".to_owned()
            }
            Self::DescriptorLine { .. } => {
                format!("remove the line if it only describes the disk; otherwise, {CONVERT_VMDK}")
            }
            Self::CreateType { create_type, .. } => create_type_hint(create_type),
            Self::Parent { .. } | Self::ParentName => format!(
                "delete the snapshots in VMware, which merges the disk with its parents; or, {CONVERT_VMDK}"
            ),
            Self::ExtentName { .. } => {
                "move the extent beside the descriptor, and write its bare name into the descriptor"
                    .to_owned()
            }
        }
    }
}

/// The command that records a backing file and its format.
fn rebase(name: &str, format: &str) -> String {
    format!("qemu-img rebase -u -f qcow2 -b {} -F {format} IMAGE", quoted(name))
}

/// Quotes a word for a shell. Names have no control characters by then.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/+@".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

fn esx_delta() -> String {
    format!("delete the snapshots on ESX, which merges the disk with its parents; or, {CONVERT_VMDK}")
}

/// Says what to do with a type of VMDK that is not supported.
fn create_type_hint(create_type: &str) -> String {
    match create_type {
        "vmfs" | "twoGbMaxExtentFlat" | "monolithicFlat" => format!(
            "if the disk has only one data file (…-flat.vmdk), use that file with format `raw`; otherwise, \
             {CONVERT_VMDK}"
        ),
        "vmfsSparse" | "seSparse" | "vmfsThin" => esx_delta(),
        "fullDevice"
        | "partitionedDevice"
        | "vmfsRDM"
        | "vmfsRawDeviceMap"
        | "vmfsRDMP"
        | "vmfsPassthroughRawDeviceMap" => {
            "name the device itself as the disk, with format `raw`, or copy it into an image".to_owned()
        }
        _ => CONVERT_VMDK.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_causes_and_escapes_names() {
        let refusal =
            Refusal::BackingName { name: "../a\u{1b}[2Jb\u{202e}".to_owned(), fault: NameFault::Parent };
        assert_eq!(
            refusal.message(),
            "the name of the backing file, \"../a\\u{1b}[2Jb\\u{202e}\", is not accepted: it leads out of \
             its folder by `..`"
        );
        let refusal = Refusal::from(ReadError::PastEnd { offset: 0, len: 72, size: 10 });
        assert_eq!(
            refusal.message(),
            "the image cannot be read: it has 10 bytes, and bytes 0 to 72 are needed"
        );
    }

    #[test]
    fn a_name_in_a_command_is_quoted() {
        let hint = |name: &str| Refusal::BackingFormatMissing { name: name.to_owned() }.hint();
        assert!(hint("pool/base.img").contains(" -b pool/base.img -F FORMAT IMAGE"));
        assert!(hint("a; rm -rf ~").contains(" -b 'a; rm -rf ~' -F"));
        assert!(hint("it's").contains(r" -b 'it'\''s' -F"));
    }

    #[test]
    fn a_flat_disk_of_esx_needs_no_conversion() {
        let hint = |create_type: &str| {
            Refusal::CreateType { create_type: create_type.to_owned(), place: Place::File }.hint()
        };
        assert!(hint("vmfs").contains("use that file with format `raw`"));
        assert!(hint("twoGbMaxExtentSparse").contains("qemu-img convert -f vmdk -O qcow2"));
        assert!(hint("vmfsSparse").contains("delete the snapshots on ESX"));
        assert!(hint("fullDevice").contains("name the device itself"));
    }
}
