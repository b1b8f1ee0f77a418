//! VMDK images in a single file.

use super::bytes::Bytes;
use super::{Hostile, Valid};
use crate::image::{Format, Image, Subformat};
use crate::read_at::ReadError;
use crate::refusal::{Refusal, Table};
use crate::vmdk::sparse::{GD_AT_END, LINE_ENDS, MAGIC, at};

const SECTOR: usize = 512;
const SECTORS: u64 = 4096;
const GRAIN: u64 = 128;

pub(super) const DESCRIPTOR: &str = "# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\n\
    createType=\"monolithicSparse\"\n\n# Extent description\nRW 4096 SPARSE \"disk.vmdk\"\n\n\
    # The Disk Data Base\nddb.adapterType = \"ide\"\n";

/// An empty disk of 2 MiB: header, descriptor in one sector, grain directory.
pub(super) fn with_descriptor(text: &str) -> Bytes {
    assert!(text.len() < SECTOR, "the descriptor has a sector");
    Bytes(Vec::new())
        .put(0, &MAGIC)
        .le32(at::VERSION, 1)
        .le32(at::FLAGS, 1)
        .le64(at::CAPACITY, SECTORS)
        .le64(at::GRAIN, GRAIN)
        .le64(at::DESCRIPTOR_OFFSET, 1)
        .le64(at::DESCRIPTOR_SIZE, 1)
        .le32(at::GRAIN_TABLE, 512)
        .le64(at::DIRECTORY, 2)
        .le64(at::OVERHEAD, 3)
        .put(at::LINE_ENDS, &LINE_ENDS)
        .put(SECTOR, text.as_bytes())
        .len(3 * SECTOR)
}

fn base() -> Bytes {
    with_descriptor(DESCRIPTOR)
}

/// Offset of the footer's copy of the header in [`stream`].
const FOOTER: usize = 4 * SECTOR;

/// The same, compressed, with a footer that places the grain directory.
fn stream() -> Bytes {
    let text = DESCRIPTOR.replace("monolithicSparse", "streamOptimized");
    let header = with_descriptor(&text).le32(at::FLAGS, 0x3_0001).le16(at::COMPRESSION, 1);
    let footer = header.0[..SECTOR].to_vec();
    // A marker has a number, a size and a kind, which is 3 for a footer.
    let marked = header.le64(at::DIRECTORY, GD_AT_END).le64(3 * SECTOR, 1).le32(3 * SECTOR + 12, 3);
    marked.put(FOOTER, &footer).len(6 * SECTOR)
}

pub(super) fn valid() -> Vec<Valid> {
    let image = |subformat| Image {
        subformat: Some(subformat),
        version: Some(1),
        cluster_bits: Some(16),
        ..Image::new(Format::Vmdk, SECTORS * 512)
    };
    let sparse = || image(Subformat::MonolithicSparse);
    let redundant = base().le32(at::FLAGS, 3).le64(at::REDUNDANT_DIRECTORY, 2);
    let cases = [
        ("a sparse disk", base(), sparse()),
        ("a redundant grain directory", redundant, sparse()),
        ("version 3", base().le32(at::VERSION, 3), Image { version: Some(3), ..sparse() }),
        ("a compressed disk with a footer", stream(), image(Subformat::StreamOptimized)),
        (
            "an extent that may only be read",
            with_descriptor(&DESCRIPTOR.replace("RW 4096", "RDONLY 4096")),
            sparse(),
        ),
    ];
    let all = cases.into_iter().map(|(name, image, answer)| Valid {
        name: format!("vmdk: {name}"),
        format: Format::Vmdk,
        image: image.0,
        answer,
    });
    all.collect()
}

pub(super) fn hostile() -> Vec<Hostile> {
    let all = [fields(), places(), footers()].into_iter().flatten().map(|(name, image, refusal)| Hostile {
        name: format!("vmdk: {name}"),
        format: Format::Vmdk,
        image: image.0,
        refusal,
    });
    all.collect()
}

type Case = (&'static str, Bytes, Refusal);

fn fields() -> Vec<Case> {
    let past_end = |offset, len, size| Refusal::Unreadable(ReadError::PastEnd { offset, len, size });
    let grain = |sectors| (base().le64(at::GRAIN, sectors), Refusal::GrainSize { sectors, limit: 4096 });
    let ((no_grain, is_no_grain), (odd, is_odd)) = (grain(0), grain(100));
    let ((large, is_large), (huge, is_huge)) = (grain(8192), grain(u64::MAX));
    let table =
        |entries| (base().le32(at::GRAIN_TABLE, entries), Refusal::GrainTableSize { entries, limit: 512 });
    let ((no_table, is_no_table), (long_table, is_long_table)) = (table(0), table(513));
    let outside = DESCRIPTOR.replace("SPARSE \"disk.vmdk\"", "FLAT \"/etc/shadow\" 0");
    vec![
        ("an empty file", base().len(0), past_end(0, 4, 0)),
        ("half a header", base().len(60), past_end(0, 79, 60)),
        ("zeros", base().put(0, &[0; 4]), Refusal::NotVmdk { magic: [0; 4] }),
        ("a sparse extent of ESX", base().put(0, b"COWD"), Refusal::EsxSparse),
        ("version 0", base().le32(at::VERSION, 0), Refusal::VmdkVersion { version: 0 }),
        ("version 4", base().le32(at::VERSION, 4), Refusal::VmdkVersion { version: 4 }),
        ("copied as text", base().put(at::LINE_ENDS, b"\n \n\n"), Refusal::LineEnds { bytes: *b"\n \n\n" }),
        (
            "an unknown compression",
            base().le16(at::COMPRESSION, 2),
            Refusal::VmdkCompression { algorithm: 2 },
        ),
        (
            "no capacity, so that the descriptor counts",
            with_descriptor(&outside).le64(at::CAPACITY, 0),
            Refusal::NoSize,
        ),
        ("most sectors", base().le64(at::CAPACITY, u64::MAX), Refusal::TooLarge { size: u64::MAX }),
        (
            "over 64 TiB",
            base().le64(at::CAPACITY, (1 << 37) + 1),
            Refusal::TooLarge { size: (64 << 40) + 512 },
        ),
        ("grains without sectors", no_grain, is_no_grain),
        ("grains of 100 sectors", odd, is_odd),
        ("grains of 4 MiB", large, is_large),
        ("grains of most sectors", huge, is_huge),
        ("grain tables without entries", no_table, is_no_table),
        ("grain tables of 513 entries", long_table, is_long_table),
        (
            "a grain directory of 64 GiB",
            base().le64(at::CAPACITY, 1 << 37).le64(at::GRAIN, 8).le32(at::GRAIN_TABLE, 1),
            Refusal::GrainDirectorySize { entries: 1 << 34, limit: 8 << 20 },
        ),
    ]
}

fn places() -> Vec<Case> {
    let file_size = base().0.len() as u64;
    let outside = |table, offset, bytes| Refusal::OutsideFile { table, offset, bytes, file_size };
    let directory = |sector| base().le64(at::DIRECTORY, sector);
    let descriptor =
        |sector, size| base().le64(at::DESCRIPTOR_OFFSET, sector).le64(at::DESCRIPTOR_SIZE, size);
    let too_long = |bytes| Refusal::DescriptorSize { bytes, limit: (1 << 20) - 1 };
    let past_end = ReadError::PastEnd { offset: 512, len: 1536, size: file_size };
    vec![
        ("a grain directory on the header", directory(0), outside(Table::GrainDirectory, 0, 4)),
        ("a grain directory behind the end", directory(3), outside(Table::GrainDirectory, 1536, 4)),
        (
            "a grain directory at the end of all addresses",
            directory(u64::MAX - 1),
            outside(Table::GrainDirectory, u64::MAX, 4),
        ),
        (
            "a redundant grain directory behind the end",
            base().le32(at::FLAGS, 3).le64(at::REDUNDANT_DIRECTORY, 1 << 40),
            outside(Table::RedundantGrainDirectory, 1 << 49, 4),
        ),
        ("grains behind the end", base().le64(at::OVERHEAD, 4), outside(Table::Overhead, 2048, 0)),
        ("no place of a descriptor", descriptor(0, 1), Refusal::DescriptorMissing),
        ("a descriptor without sectors", descriptor(1, 0), Refusal::DescriptorMissing),
        ("a descriptor that QEMU does not read", descriptor(2, 1), Refusal::DescriptorPlace { sector: 2 }),
        ("a descriptor of 1 MiB", descriptor(1, 2048), too_long(1 << 20)),
        ("a descriptor of most sectors", descriptor(1, u64::MAX), too_long(u64::MAX)),
        ("a descriptor across the end", descriptor(1, 3), Refusal::Unreadable(past_end)),
        (
            "a descriptor that goes on in the guest's data",
            base().put(SECTOR, "#".repeat(SECTOR).as_bytes()),
            Refusal::DescriptorEnd { bytes: 512 },
        ),
        (
            "a second text behind the descriptor",
            base().put(2 * SECTOR - 8, b"RW 1 \0"),
            Refusal::DescriptorEnd { bytes: 512 },
        ),
    ]
}

fn footers() -> Vec<Case> {
    let footer = |fault| Refusal::Footer { fault };
    let differs = |field, header, footer| Refusal::FooterDiffers { field, header, footer };
    let file_size = stream().0.len() as u64;
    vec![
        (
            "a footer in half a sector",
            stream().len(6 * SECTOR - 100),
            footer("the file does not end with a whole sector"),
        ),
        ("no room for a footer", stream().len(3 * SECTOR), footer("the file is too short for one")),
        ("no marker", stream().le32(3 * SECTOR + 12, 2), footer("its marker is missing")),
        ("a marker with data", stream().le32(3 * SECTOR + 8, 1), footer("its marker is missing")),
        ("no mark of the end", stream().le64(5 * SECTOR, 1), footer("the mark of the end is missing")),
        ("a footer of ESX", stream().put(FOOTER, b"COWD"), footer("it does not begin as a header")),
        (
            "a footer behind the footer",
            stream().le64(FOOTER + at::DIRECTORY, GD_AT_END),
            footer("it refers to a further footer"),
        ),
        (
            "a footer without capacity, so that its descriptor counts",
            stream().le64(FOOTER + at::CAPACITY, 0),
            differs("capacity", SECTORS, 0),
        ),
        (
            "a footer with another descriptor",
            stream().le64(FOOTER + at::DESCRIPTOR_OFFSET, 2),
            differs("place of the descriptor", 1, 2),
        ),
        (
            "a footer with other grains",
            stream().le64(FOOTER + at::GRAIN, 1 << 21),
            differs("grain size", GRAIN, 1 << 21),
        ),
        (
            "a footer with a directory behind the end",
            stream().le64(FOOTER + at::DIRECTORY, 6),
            Refusal::OutsideFile { table: Table::GrainDirectory, offset: 3072, bytes: 4, file_size },
        ),
    ]
}
