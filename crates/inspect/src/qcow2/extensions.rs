//! Header extensions of qcow2: kind, length and data, padded to 8 bytes.

use crate::read_at::Bounded;
use crate::refusal::Refusal;

/// End of the list.
const END: u32 = 0;
/// Name of the backing file's format.
pub(crate) const BACKING_FORMAT: u32 = 0xe279_2aca;
/// Name of an external data file.
pub(crate) const DATA_FILE: u32 = 0x4441_5441;

/// Bytes of kind and length.
const EXTENSION_HEADER: u64 = 8;
/// Most extensions before the end of the list. QEMU knows five kinds.
pub(crate) const MAX_EXTENSIONS: usize = 64;
/// Longest name of a format (QEMU's `backing_format` has 16 bytes with its NUL).
const MAX_FORMAT: u32 = 15;

/// Walks through the extensions from `start` to `end` and returns the name of the backing file's
/// format. Both are inside the first cluster. The data of other kinds are not read.
pub(super) fn backing_format(file: &Bounded<'_>, start: u64, end: u64) -> Result<Option<String>, Refusal> {
    let mut format = None;
    let mut offset = start;
    for _ in 0..=MAX_EXTENSIONS {
        if offset >= end {
            return Ok(format);
        }
        let header = u64::from_be_bytes(file.array(offset)?);
        let (kind, len) = ((header >> 32) as u32, header as u32);
        let data = offset + EXTENSION_HEADER;
        if data + u64::from(len) > end {
            return Err(Refusal::ExtensionTooLong { kind, offset, len, end });
        }
        match kind {
            END => return Ok(format),
            DATA_FILE => return Err(Refusal::ExternalDataFile { sign: "a header extension names it" }),
            BACKING_FORMAT if format.is_some() => return Err(Refusal::BackingFormatTwice),
            BACKING_FORMAT if len > MAX_FORMAT => {
                return Err(Refusal::BackingFormatLength { len, limit: MAX_FORMAT });
            }
            BACKING_FORMAT if len > 0 => {
                let name = file.vec(data, len.into())?;
                format = Some(String::from_utf8_lossy(&name).into_owned());
            }
            _ => {}
        }
        offset = data + u64::from(len).next_multiple_of(8);
    }
    Err(Refusal::TooManyExtensions { limit: MAX_EXTENSIONS })
}
