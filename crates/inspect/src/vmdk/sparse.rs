//! Sparse VMDK images with a binary header (VMware, Virtual Disk Format 5.0). All numbers are
//! little-endian, and places are in sectors.

use super::descriptor::{Descriptor, MAX_DESCRIPTOR};
use super::size_of;
use crate::image::{Format, Image, SECTOR};
use crate::read_at::Bounded;
use crate::refusal::{Refusal, Table};

/// First bytes of the header.
pub(crate) const MAGIC: [u8; 4] = *b"KDMV";

/// Place of a grain directory that only the footer knows.
pub(crate) const GD_AT_END: u64 = u64::MAX;

/// Characters that a copy in text mode would change.
pub(crate) const LINE_ENDS: [u8; 4] = *b"\n \r\n";

/// Offsets of the fields.
pub(crate) mod at {
    pub(crate) const VERSION: usize = 4;
    pub(crate) const FLAGS: usize = 8;
    pub(crate) const CAPACITY: usize = 12;
    pub(crate) const GRAIN: usize = 20;
    pub(crate) const DESCRIPTOR_OFFSET: usize = 28;
    pub(crate) const DESCRIPTOR_SIZE: usize = 36;
    pub(crate) const GRAIN_TABLE: usize = 44;
    pub(crate) const REDUNDANT_DIRECTORY: usize = 48;
    pub(crate) const DIRECTORY: usize = 56;
    pub(crate) const OVERHEAD: usize = 64;
    pub(crate) const LINE_ENDS: usize = 73;
    pub(crate) const COMPRESSION: usize = 77;
}

/// Flags of the header.
const FLAG_LINE_ENDS: u32 = 1 << 0;
const FLAG_REDUNDANT: u32 = 1 << 1;

/// Bytes of a header that are used.
const HEADER: usize = 79;

/// The last three sectors of an image with a footer: a marker, a copy of the header that knows the
/// grain directory, and a marker of the end.
const FOOTER: usize = 3 * SECTOR as usize;
const FOOTER_MARKER: u32 = 3;

/// QEMU reads the descriptor from here, whatever the header says.
const DESCRIPTOR_SECTOR: u64 = 1;

/// Grains in sectors. QEMU writes 128; it would accept 1 GiB, and allocates as much per request.
const LEAST_GRAIN: u64 = 8;
const MAX_GRAIN: u64 = 4096;
/// QEMU's limit.
const MAX_GRAIN_TABLE: u32 = 512;
/// 32 MiB of entries, as for qcow2.
const MAX_DIRECTORY: u64 = 8 << 20;
const DIRECTORY_ENTRY: u64 = 4;

/// The fields of a header.
#[derive(Debug)]
struct Header {
    version: u32,
    flags: u32,
    capacity: u64,
    grain: u64,
    descriptor_offset: u64,
    descriptor_size: u64,
    grain_table: u32,
    redundant_directory: u64,
    directory: u64,
    overhead: u64,
    line_ends: [u8; 4],
    compression: u16,
}

/// Inspects an image that begins with [`MAGIC`].
pub(super) fn inspect(file: &Bounded<'_>) -> Result<Image, Refusal> {
    let header = Header::parse(&file.array(0)?);
    let size = header.check()?;
    let subformat = header.descriptor(file)?.check_sparse()?;
    if header.directory == GD_AT_END {
        header.footer(file)?.check_places(file.size())?;
    } else {
        header.check_places(file.size())?;
    }
    Ok(Image {
        subformat: Some(subformat),
        version: Some(header.version),
        cluster_bits: Some((header.grain * SECTOR).ilog2()),
        ..Image::new(Format::Vmdk, size)
    })
}

impl Header {
    fn parse(bytes: &[u8; HEADER]) -> Self {
        Self {
            version: u32_at(bytes, at::VERSION),
            flags: u32_at(bytes, at::FLAGS),
            capacity: u64_at(bytes, at::CAPACITY),
            grain: u64_at(bytes, at::GRAIN),
            descriptor_offset: u64_at(bytes, at::DESCRIPTOR_OFFSET),
            descriptor_size: u64_at(bytes, at::DESCRIPTOR_SIZE),
            grain_table: u32_at(bytes, at::GRAIN_TABLE),
            redundant_directory: u64_at(bytes, at::REDUNDANT_DIRECTORY),
            directory: u64_at(bytes, at::DIRECTORY),
            overhead: u64_at(bytes, at::OVERHEAD),
            line_ends: field(bytes, at::LINE_ENDS),
            compression: u16::from_le_bytes(field(bytes, at::COMPRESSION)),
        }
    }

    /// Checks what does not depend on the rest of the file. Returns the virtual size.
    fn check(&self) -> Result<u64, Refusal> {
        if !(1..=3).contains(&self.version) {
            return Err(Refusal::VmdkVersion { version: self.version });
        }
        if self.flags & FLAG_LINE_ENDS != 0 && self.line_ends != LINE_ENDS {
            return Err(Refusal::LineEnds { bytes: self.line_ends });
        }
        if self.compression > 1 {
            return Err(Refusal::VmdkCompression { algorithm: self.compression });
        }
        // With a capacity of 0, QEMU would open the extents that the descriptor names.
        let size = size_of(self.capacity)?;
        if !(LEAST_GRAIN..=MAX_GRAIN).contains(&self.grain) || !self.grain.is_power_of_two() {
            return Err(Refusal::GrainSize { sectors: self.grain, limit: MAX_GRAIN });
        }
        if !(1..=MAX_GRAIN_TABLE).contains(&self.grain_table) {
            return Err(Refusal::GrainTableSize { entries: self.grain_table, limit: MAX_GRAIN_TABLE });
        }
        let entries = self.directory_entries();
        if entries > MAX_DIRECTORY {
            return Err(Refusal::GrainDirectorySize { entries, limit: MAX_DIRECTORY });
        }
        Ok(size)
    }

    fn directory_entries(&self) -> u64 {
        self.capacity.div_ceil(self.grain * u64::from(self.grain_table))
    }

    /// Reads the descriptor. QEMU takes it for a text that ends with a zero; without one, its
    /// search would go on in what the guest has written.
    fn descriptor(&self, file: &Bounded<'_>) -> Result<Descriptor, Refusal> {
        if self.descriptor_offset == 0 || self.descriptor_size == 0 {
            return Err(Refusal::DescriptorMissing);
        }
        if self.descriptor_offset != DESCRIPTOR_SECTOR {
            return Err(Refusal::DescriptorPlace { sector: self.descriptor_offset });
        }
        let len = self.descriptor_size.saturating_mul(SECTOR);
        if len > MAX_DESCRIPTOR {
            return Err(Refusal::DescriptorSize { bytes: len, limit: MAX_DESCRIPTOR });
        }
        let bytes = file.vec(DESCRIPTOR_SECTOR * SECTOR, len)?;
        if bytes.last() != Some(&0) {
            return Err(Refusal::DescriptorEnd { bytes: len });
        }
        Descriptor::parse(&bytes)
    }

    /// Reads the footer, which QEMU uses instead of the header. It may differ only in the place of
    /// the grain directories.
    fn footer(&self, file: &Bounded<'_>) -> Result<Self, Refusal> {
        let wrong = |fault| Refusal::Footer { fault };
        if !file.size().is_multiple_of(SECTOR) {
            return Err(wrong("the file does not end with a whole sector"));
        }
        let start = file.size().checked_sub(FOOTER as u64).filter(|start| *start >= SECTOR);
        let bytes: [u8; FOOTER] = file.array(start.ok_or(wrong("the file is too short for one"))?)?;
        let (marker, rest) = bytes.split_at(SECTOR as usize);
        let (header, end) = rest.split_at(SECTOR as usize);
        // A marker has a number (8 bytes), a size (4) and a kind (4).
        if u32_at(marker, 8) != 0 || u32_at(marker, 12) != FOOTER_MARKER {
            return Err(wrong("its marker is missing"));
        }
        if end[..16] != [0; 16] {
            return Err(wrong("the mark of the end is missing"));
        }
        if header[..MAGIC.len()] != MAGIC {
            return Err(wrong("it does not begin as a header"));
        }
        let footer = Self::parse(&field(header, 0));
        if footer.directory == GD_AT_END {
            return Err(wrong("it refers to a further footer"));
        }
        let compared = [
            ("version", u64::from(self.version), u64::from(footer.version)),
            ("flags", self.flags.into(), footer.flags.into()),
            ("capacity", self.capacity, footer.capacity),
            ("grain size", self.grain, footer.grain),
            ("place of the descriptor", self.descriptor_offset, footer.descriptor_offset),
            ("size of the descriptor", self.descriptor_size, footer.descriptor_size),
            ("grain table size", self.grain_table.into(), footer.grain_table.into()),
            ("overhead", self.overhead, footer.overhead),
            ("compression", self.compression.into(), footer.compression.into()),
        ];
        match compared.into_iter().find(|(_, header, footer)| header != footer) {
            Some((field, header, footer)) => Err(Refusal::FooterDiffers { field, header, footer }),
            None => Ok(footer),
        }
    }

    /// Checks the places of tables against the size of the file. Its last sector may be incomplete.
    fn check_places(&self, file_size: u64) -> Result<(), Refusal> {
        let bytes = self.directory_entries() * DIRECTORY_ENTRY;
        let check = |table, sector: u64, bytes: u64| {
            let offset = sector.saturating_mul(SECTOR);
            let room = file_size.div_ceil(SECTOR).saturating_mul(SECTOR);
            // The first sector has the header.
            if sector == 0 || offset.checked_add(bytes).is_none_or(|end| end > room) {
                return Err(Refusal::OutsideFile { table, offset, bytes, file_size });
            }
            Ok(())
        };
        check(Table::GrainDirectory, self.directory, bytes)?;
        if self.flags & FLAG_REDUNDANT != 0 {
            check(Table::RedundantGrainDirectory, self.redundant_directory, bytes)?;
        }
        check(Table::Overhead, self.overhead, 0)
    }
}

/// Copies a field out of a header. The offsets are constants inside it.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}
