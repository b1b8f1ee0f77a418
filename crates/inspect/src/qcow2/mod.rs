//! Inspects qcow2 images (QEMU, docs/interop/qcow2.rst). Limits are those of QEMU's driver.

pub(crate) mod extensions;
pub(crate) mod header;

use header::Header;

use crate::image::{Backing, Format, Image, SECTOR};
use crate::name::{NameFault, plain_name};
use crate::read_at::Bounded;
use crate::refusal::Refusal;

/// Inspects a qcow2 image.
pub(crate) fn inspect(file: &Bounded<'_>) -> Result<Image, Refusal> {
    let header = Header::read(file)?;
    header.check(file.size())?;
    let extensions_end = match header.backing_offset {
        0 => header.cluster_size(),
        offset => offset,
    };
    let format = extensions::backing_format(file, header.length.into(), extensions_end)?;
    let backing = backing(file, &header, format)?;
    Ok(Image {
        stated_size: header.size,
        backing,
        version: Some(header.version),
        cluster_bits: Some(header.cluster_bits),
        snapshots: header.snapshots,
        ..Image::new(Format::Qcow2, header.size / SECTOR * SECTOR)
    })
}

/// Reads the name of the backing file. An image that was rebased to nothing has a name of no bytes,
/// and may still have a format.
fn backing(file: &Bounded<'_>, header: &Header, format: Option<String>) -> Result<Option<Backing>, Refusal> {
    if header.backing_offset == 0 || header.backing_len == 0 {
        return Ok(None);
    }
    let bytes = file.vec(header.backing_offset, header.backing_len.into())?;
    let name = String::from_utf8(bytes).map_err(|error| Refusal::BackingName {
        name: String::from_utf8_lossy(error.as_bytes()).into_owned(),
        fault: NameFault::Encoding,
    })?;
    if let Err(fault) = plain_name(&name) {
        return Err(Refusal::BackingName { name, fault });
    }
    match format {
        None => Err(Refusal::BackingFormatMissing { name }),
        Some(format) => match format.parse() {
            Ok(format) => Ok(Some(Backing { name, format })),
            Err(_) => Err(Refusal::BackingFormatUnknown { format }),
        },
    }
}
