//! What an image consists of, as far as its header says.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Largest virtual size in bytes: 64 TiB.
pub const MAX_VIRTUAL_SIZE: u64 = 64 << 40;

/// Bytes of a sector, the unit of every disk.
pub(crate) const SECTOR: u64 = 512;

/// Format of an image, under QEMU's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// The disk's bytes and nothing else.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
    /// VMware's format.
    Vmdk,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Raw, Self::Qcow2, Self::Vmdk];

    /// QEMU's name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is none of [`Format::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no format of images; there are raw, qcow2 and vmdk")]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

/// What an image consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Format that the caller named.
    pub format: Format,
    /// Size in bytes of the disk that the guest sees: whole sectors, as QEMU rounds it.
    pub virtual_size: u64,
    /// Size in bytes as the image states it. It differs from `virtual_size` by less than a sector:
    /// QEMU rounds a raw image up and a qcow2 image down.
    pub stated_size: u64,
    /// Image below this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing: Option<Backing>,
    /// Files with the disk's bytes, if they are not in the image itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extents: Vec<Extent>,
    /// Variant of VMDK.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subformat: Option<Subformat>,
    /// Version that the header states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Binary logarithm of the size in bytes of a cluster (qcow2) or grain (VMDK).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_bits: Option<u32>,
    /// Number of snapshots inside the image.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snapshots: u32,
}

/// Name and format of a backing file, both as recorded in the overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backing {
    /// Path relative to the folder of the overlay. It obeys [`crate::plain_name`].
    pub name: String,
    /// Recorded format. An overlay without it is refused.
    pub format: Format,
}

/// A part of a raw file that holds the bytes of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extent {
    /// Name of a file in the folder of the descriptor. It obeys [`crate::bare_name`].
    pub name: String,
    /// First byte of the part. The caller checks that the file is large enough.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
}

/// Variant of VMDK, under VMware's name (`createType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subformat {
    /// One file that grows.
    MonolithicSparse,
    /// One compressed file, as in OVA archives. QEMU cannot write to what is allocated in it.
    StreamOptimized,
    /// A descriptor beside one raw file.
    MonolithicFlat,
}

impl Image {
    /// An image of this size without any other part.
    pub(crate) fn new(format: Format, virtual_size: u64) -> Self {
        Self {
            format,
            virtual_size,
            stated_size: virtual_size,
            backing: None,
            extents: Vec::new(),
            subformat: None,
            version: None,
            cluster_bits: None,
            snapshots: 0,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_formats_are_read_as_they_are_written() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
            assert_eq!(serde_json::to_string(&format).unwrap(), format!("\"{format}\""));
        }
        for unknown in ["", "RAW", "qcow", "vmdk ", "luks"] {
            assert_eq!(unknown.parse::<Format>(), Err(UnknownFormat(unknown.to_owned())));
        }
    }
}
