//! Inspects VMDK images: single sparse files, compressed or not, and descriptors of one flat file.
//!
//! QEMU searches a descriptor for words, wherever they stand. This parser knows every line instead,
//! and refuses an image in which both could see different things.

pub(crate) mod descriptor;
pub(crate) mod sparse;

use descriptor::{Descriptor, FIRST_LINE, MAX_DESCRIPTOR};
use sparse::MAGIC;

use crate::image::{Extent, Format, Image, MAX_VIRTUAL_SIZE, SECTOR, Subformat};
use crate::read_at::Bounded;
use crate::refusal::Refusal;

/// First bytes of a sparse extent of ESX.
const ESX_MAGIC: [u8; 4] = *b"COWD";

/// Inspects a VMDK image.
pub(crate) fn inspect(file: &Bounded<'_>) -> Result<Image, Refusal> {
    let magic: [u8; 4] = file.array(0)?;
    match magic {
        MAGIC => sparse::inspect(file),
        ESX_MAGIC => Err(Refusal::EsxSparse),
        _ if file.array(0).is_ok_and(|line: [u8; FIRST_LINE.len()]| line == FIRST_LINE.as_bytes()) => {
            inspect_descriptor(file)
        }
        _ => Err(Refusal::NotVmdk { magic }),
    }
}

/// Inspects a descriptor in a text file of its own.
fn inspect_descriptor(file: &Bounded<'_>) -> Result<Image, Refusal> {
    if file.size() > MAX_DESCRIPTOR {
        return Err(Refusal::DescriptorSize { bytes: file.size(), limit: MAX_DESCRIPTOR });
    }
    let bytes = file.vec(0, file.size())?;
    let flat = Descriptor::parse(&bytes)?.into_flat()?;
    let size = size_of(flat.sectors)?;
    let offset = flat.offset.checked_mul(SECTOR).filter(|offset| offset.checked_add(size).is_some());
    let offset = offset.ok_or(Refusal::TooLarge { size: u64::MAX })?;
    let extent = Extent { name: flat.name, offset, size };
    Ok(Image {
        extents: vec![extent],
        subformat: Some(Subformat::MonolithicFlat),
        ..Image::new(Format::Vmdk, size)
    })
}

/// Returns the size in bytes of a disk with this number of sectors.
fn size_of(sectors: u64) -> Result<u64, Refusal> {
    match sectors.saturating_mul(SECTOR) {
        0 => Err(Refusal::NoSize),
        size if size > MAX_VIRTUAL_SIZE => Err(Refusal::TooLarge { size }),
        size => Ok(size),
    }
}
