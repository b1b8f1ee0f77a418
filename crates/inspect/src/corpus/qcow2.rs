//! qcow2 images.

use super::bytes::Bytes;
use super::{Hostile, Valid};
use crate::image::{Backing, Format, Image};
use crate::name::NameFault;
use crate::overlay;
use crate::qcow2::extensions::{BACKING_FORMAT, DATA_FILE, MAX_EXTENSIONS};
use crate::qcow2::header::{V3_LENGTH, at};
use crate::read_at::ReadError;
use crate::refusal::{Refusal, Table};

const CLUSTER: u64 = 512;
const SIZE: u64 = 2 << 20;
/// Bytes of the file: header, reference counts in two clusters, L1 table.
const FILE: u64 = 4 * CLUSTER;
/// An extension that nobody knows.
const UNKNOWN: u32 = 0x7461_7574;

/// An empty disk of 2 MiB with clusters of 512 bytes.
fn base() -> Bytes {
    Bytes(overlay::with_clusters(SIZE, CLUSTER.ilog2()))
}

/// The same with version 2.
fn version_2() -> Bytes {
    base().be32(at::VERSION, 2).put(at::INCOMPATIBLE, &[0; 40])
}

/// Writes header extensions from an offset, then the name of a backing file.
fn extend(image: Bytes, header: usize, extensions: &[(u32, &[u8])], name: &[u8]) -> Bytes {
    let mut offset = header;
    let mut image = image;
    for (kind, data) in extensions {
        image = image.be32(offset, *kind).be32(offset + 4, data.len() as u32).put(offset + 8, data);
        offset += 8 + data.len().next_multiple_of(8);
    }
    // The end of the list has 8 zeros.
    offset += 8;
    image.put(offset, name).be64(at::BACKING_OFFSET, offset as u64).be32(at::BACKING_LEN, name.len() as u32)
}

/// An overlay with extensions and the name of a backing file.
fn with(extensions: &[(u32, &[u8])], name: &[u8]) -> Bytes {
    extend(base(), V3_LENGTH as usize, extensions, name)
}

/// An overlay of a raw backing file.
fn named(name: &[u8]) -> Bytes {
    with(&[(BACKING_FORMAT, b"raw")], name)
}

pub(super) fn valid() -> Vec<Valid> {
    let image = || Image { version: Some(3), cluster_bits: Some(9), ..Image::new(Format::Qcow2, SIZE) };
    let backing = |name: &str, format| Some(Backing { name: name.to_owned(), format });
    let qcow2: &[(u32, &[u8])] = &[(BACKING_FORMAT, b"qcow2")];
    let unknown: &[(u32, &[u8])] = &[(UNKNOWN, b"12345"), (BACKING_FORMAT, b"vmdk"), (UNKNOWN, b"")];
    let cases = [
        ("an empty disk", base(), image()),
        ("version 2", version_2(), Image { version: Some(2), ..image() }),
        (
            "version 2 with a backing file",
            extend(version_2(), 72, qcow2, b"base.qcow2"),
            Image { version: Some(2), backing: backing("base.qcow2", Format::Qcow2), ..image() },
        ),
        ("a header without compression type", base().be32(at::LENGTH, 104), image()),
        (
            "a raw backing file",
            named(b"base.img"),
            Image { backing: backing("base.img", Format::Raw), ..image() },
        ),
        (
            "a backing file in a folder below, and unknown extensions",
            with(unknown, b"pool/a b.vmdk"),
            Image { backing: backing("pool/a b.vmdk", Format::Vmdk), ..image() },
        ),
        ("a format without a backing file", with(qcow2, b""), image()),
        ("not closed cleanly", base().be64(at::INCOMPATIBLE, 1), image()),
        ("zstd", base().be64(at::INCOMPATIBLE, 8).put(at::COMPRESSION, &[1]), image()),
        (
            "snapshots",
            base().be32(at::SNAPSHOTS, 2).be64(at::SNAPSHOTS_OFFSET, FILE).len(FILE as usize + 80),
            Image { snapshots: 2, ..image() },
        ),
        (
            "a size of no whole sector",
            base().be64(at::SIZE, SIZE - 1),
            Image { stated_size: SIZE - 1, virtual_size: SIZE - 512, ..image() },
        ),
        ("an incomplete last cluster", base().len(FILE as usize - 100), image()),
    ];
    let all = cases.into_iter().map(|(name, image, answer)| Valid {
        name: format!("qcow2: {name}"),
        format: Format::Qcow2,
        image: image.0,
        answer,
    });
    all.collect()
}

pub(super) fn hostile() -> Vec<Hostile> {
    let cases = [fields(), tables(), extensions(), backing_files()].into_iter().flatten();
    let all = cases.map(|(name, image, refusal)| Hostile {
        name: format!("qcow2: {name}"),
        format: Format::Qcow2,
        image: image.0,
        refusal,
    });
    all.collect()
}

type Case = (&'static str, Bytes, Refusal);

fn past_end(offset: u64, len: u64, size: u64) -> Refusal {
    ReadError::PastEnd { offset, len, size }.into()
}

fn fields() -> Vec<Case> {
    let features = |bits| base().be64(at::INCOMPATIBLE, bits);
    let length = |length| {
        let refusal = Refusal::HeaderLength { length, cluster_size: CLUSTER };
        (base().be32(at::LENGTH, length), refusal)
    };
    let ((short, too_short), (odd, too_odd), (long, too_long)) = (length(96), length(109), length(520));
    let huge = u32::MAX;
    vec![
        ("an empty file", base().len(0), past_end(0, 4, 0)),
        ("half a header", base().len(71), past_end(0, 72, 71)),
        ("half a header of version 3", base().len(103), past_end(0, 104, 103)),
        ("a header that ends at its length", base().len(104), past_end(104, 1, 104)),
        ("the magic of QED", base().put(0, b"QED\0"), Refusal::NotQcow2 { magic: *b"QED\0" }),
        ("version 1", base().be32(at::VERSION, 1), Refusal::Qcow2Version { version: 1 }),
        ("version 4", base().be32(at::VERSION, 4), Refusal::Qcow2Version { version: 4 }),
        ("clusters of 256 bytes", base().be32(at::CLUSTER_BITS, 8), Refusal::ClusterBits { bits: 8 }),
        ("clusters of 4 MiB", base().be32(at::CLUSTER_BITS, 22), Refusal::ClusterBits { bits: 22 }),
        ("clusters that overflow", base().be32(at::CLUSTER_BITS, 64), Refusal::ClusterBits { bits: 64 }),
        ("most cluster bits", base().be32(at::CLUSTER_BITS, huge), Refusal::ClusterBits { bits: huge }),
        ("a short header", short, too_short),
        ("a header of an odd length", odd, too_odd),
        ("a header longer than its cluster", long, too_long),
        (
            "an external data file (CVE-2024-32498)",
            features(4),
            Refusal::ExternalDataFile { sign: "incompatible feature bit 2" },
        ),
        ("marked as corrupt", features(2), Refusal::Corrupt),
        ("extended L2 entries", features(16), Refusal::UnknownFeatures { bits: 16 }),
        ("an unknown feature", features(1 << 63), Refusal::UnknownFeatures { bits: 1 << 63 }),
        ("zlib as a feature", features(8), Refusal::Qcow2Compression { kind: 0, flagged: true }),
        (
            "zstd without the feature",
            base().put(at::COMPRESSION, &[1]),
            Refusal::Qcow2Compression { kind: 1, flagged: false },
        ),
        (
            "an unknown compression",
            features(8).put(at::COMPRESSION, &[7]),
            Refusal::Qcow2Compression { kind: 7, flagged: true },
        ),
        ("encrypted with AES", base().be32(at::CRYPT_METHOD, 1), Refusal::Encrypted { method: 1 }),
        ("encrypted with LUKS", base().be32(at::CRYPT_METHOD, 2), Refusal::Encrypted { method: 2 }),
        (
            "reference counts of 128 bits",
            base().be32(at::REFCOUNT_ORDER, 7),
            Refusal::RefcountOrder { order: 7 },
        ),
        ("most bits", base().be32(at::REFCOUNT_ORDER, huge), Refusal::RefcountOrder { order: huge }),
        ("no size", base().be64(at::SIZE, 0), Refusal::NoSize),
        ("less than a sector", base().be64(at::SIZE, 511), Refusal::NoSize),
        ("over 64 TiB", base().be64(at::SIZE, (64 << 40) + 1), Refusal::TooLarge { size: (64 << 40) + 1 }),
        ("most bytes", base().be64(at::SIZE, u64::MAX), Refusal::TooLarge { size: u64::MAX }),
    ]
}

fn tables() -> Vec<Case> {
    let unaligned = |table, offset| Refusal::Unaligned { table, offset, cluster_size: CLUSTER };
    let outside = |table, offset, bytes| Refusal::OutsideFile { table, offset, bytes, file_size: FILE };
    let limit = (32 << 20) / 8;
    let l1 = |offset| base().be64(at::L1_OFFSET, offset);
    let refcounts = |offset| base().be64(at::REFCOUNT_OFFSET, offset);
    let clusters = |clusters| base().be32(at::REFCOUNT_CLUSTERS, clusters);
    let snapshots = |count, offset| base().be32(at::SNAPSHOTS, count).be64(at::SNAPSHOTS_OFFSET, offset);
    let last = u64::MAX - CLUSTER + 1;
    vec![
        (
            "an L1 table over 32 MiB",
            base().be32(at::L1_ENTRIES, (32 << 17) + 1),
            Refusal::L1TooLarge { entries: (32 << 17) + 1, limit },
        ),
        (
            "most L1 entries",
            base().be32(at::L1_ENTRIES, u32::MAX),
            Refusal::L1TooLarge { entries: u32::MAX, limit },
        ),
        (
            "an L1 table for half the disk",
            base().be32(at::L1_ENTRIES, 32),
            Refusal::L1TooSmall { entries: 32, needed: 64, size: SIZE },
        ),
        (
            "a disk beyond any L1 table",
            base().be64(at::SIZE, 64 << 40),
            Refusal::L1TooSmall { entries: 64, needed: 2 << 30, size: 64 << 40 },
        ),
        ("an L1 table between clusters", l1(1540), unaligned(Table::L1, 1540)),
        ("an L1 table behind the end", l1(FILE), outside(Table::L1, FILE, 512)),
        ("an L1 table at the end of all addresses", l1(last), outside(Table::L1, last, 512)),
        ("an L1 table on the header", l1(0), outside(Table::L1, 0, 512)),
        (
            "an L1 table that is larger than the file",
            base().be32(at::L1_ENTRIES, 1 << 22),
            outside(Table::L1, 1536, 32 << 20),
        ),
        ("no reference counts", clusters(0), Refusal::RefcountTableSize { clusters: 0, limit: 16384 }),
        (
            "a reference count table over 8 MiB",
            clusters(16385),
            Refusal::RefcountTableSize { clusters: 16385, limit: 16384 },
        ),
        (
            "most clusters of reference counts",
            clusters(u32::MAX),
            Refusal::RefcountTableSize { clusters: u32::MAX, limit: 16384 },
        ),
        (
            "a reference count table that is larger than the file",
            clusters(4),
            outside(Table::Refcounts, 512, 2048),
        ),
        ("reference counts between clusters", refcounts(513), unaligned(Table::Refcounts, 513)),
        ("reference counts behind the end", refcounts(1 << 40), outside(Table::Refcounts, 1 << 40, 512)),
        ("reference counts on the header", refcounts(0), outside(Table::Refcounts, 0, 512)),
        ("65537 snapshots", snapshots(65537, 512), Refusal::TooManySnapshots { count: 65537, limit: 65536 }),
        ("snapshots between clusters", snapshots(1, 8), unaligned(Table::Snapshots, 8)),
        ("snapshots behind the end", snapshots(2, FILE), outside(Table::Snapshots, FILE, 80)),
        ("snapshots on the header", snapshots(1, 0), outside(Table::Snapshots, 0, 40)),
    ]
}

fn extensions() -> Vec<Case> {
    let header = u64::from(V3_LENGTH);
    let stated = |len| with(&[(UNKNOWN, b"")], b"base.img").be32(V3_LENGTH as usize + 4, len);
    let too_long = |len, end| Refusal::ExtensionTooLong { kind: UNKNOWN, offset: header, len, end };
    let name_at = header + 16;
    let endless = [(UNKNOWN, &b""[..]); MAX_EXTENSIONS + 1];
    vec![
        (
            "an external data file by name",
            with(&[(DATA_FILE, b"/etc/shadow")], b""),
            Refusal::ExternalDataFile { sign: "a header extension names it" },
        ),
        ("an extension into the backing file's name", stated(9), too_long(9, name_at)),
        ("an extension of 4 GiB", stated(u32::MAX), too_long(u32::MAX, name_at)),
        (
            "an extension beyond the first cluster",
            base().be32(V3_LENGTH as usize, UNKNOWN).be32(V3_LENGTH as usize + 4, 400),
            too_long(400, CLUSTER),
        ),
        (
            "extensions without end",
            extend(Bytes(overlay::with_clusters(SIZE, 10)), V3_LENGTH as usize, &endless, b""),
            Refusal::TooManyExtensions { limit: MAX_EXTENSIONS },
        ),
        (
            "two formats of the backing file",
            with(&[(BACKING_FORMAT, b"qcow2"), (BACKING_FORMAT, b"raw")], b"base.img"),
            Refusal::BackingFormatTwice,
        ),
        (
            "a format with a long name",
            with(&[(BACKING_FORMAT, b"rawrawrawrawrawr")], b"base.img"),
            Refusal::BackingFormatLength { len: 16, limit: 15 },
        ),
    ]
}

fn backing_files() -> Vec<Case> {
    let name = |name: &str, fault| Refusal::BackingName { name: name.to_owned(), fault };
    let place = |offset: u64, len: u32| {
        let image = named(b"base.img").be64(at::BACKING_OFFSET, offset).be32(at::BACKING_LEN, len);
        (image, Refusal::BackingNamePlace { offset, len })
    };
    let ((low, in_header), (high, in_next), (far, nowhere)) =
        (place(104, 8), place(508, 8), place(u64::MAX, 8));
    let json = r#"json:{"driver":"file","filename":"/etc/shadow"}"#;
    let format = |format: &str| {
        let refusal = Refusal::BackingFormatUnknown { format: format.to_owned() };
        (with(&[(BACKING_FORMAT, format.as_bytes())], b"base.img"), refusal)
    };
    let ((device, of_device), (luks, of_luks), (upper, of_upper)) =
        (format("host_device"), format("luks"), format("RAW"));
    vec![
        ("an absolute backing file", named(b"/etc/shadow"), name("/etc/shadow", NameFault::Absolute)),
        ("a backing file above", named(b"../../etc/shadow"), name("../../etc/shadow", NameFault::Parent)),
        ("a backing file by a detour", named(b"a/../../b"), name("a/../../b", NameFault::Parent)),
        ("a backing file in JSON (CVE-2024-4467)", named(json.as_bytes()), name(json, NameFault::Scheme)),
        (
            "a backing file on a server",
            named(b"nbd://10.0.0.1/x"),
            name("nbd://10.0.0.1/x", NameFault::Scheme),
        ),
        ("a backing file by a driver", named(b"fat:rw:disk"), name("fat:rw:disk", NameFault::Scheme)),
        ("a backing file with a zero", named(b"base\0.img"), name("base\0.img", NameFault::Control)),
        ("a backing file in two lines", named(b"a\nb"), name("a\nb", NameFault::Control)),
        ("a backing file that is not UTF-8", named(b"a\xff"), name("a\u{fffd}", NameFault::Encoding)),
        (
            "a backing file with a long name",
            named(b"base.img").be32(at::BACKING_LEN, 1024),
            Refusal::BackingNameLength { len: 1024, limit: 1023 },
        ),
        ("a backing file's name in the header", low, in_header),
        ("a backing file's name across clusters", high, in_next),
        ("a backing file's name nowhere", far, nowhere),
        (
            "a backing file without format",
            with(&[], b"base.img"),
            Refusal::BackingFormatMissing { name: "base.img".to_owned() },
        ),
        (
            "a backing file with an empty format",
            with(&[(BACKING_FORMAT, b"")], b"base.img"),
            Refusal::BackingFormatMissing { name: "base.img".to_owned() },
        ),
        ("a device as backing file", device, of_device),
        ("an encrypted backing file", luks, of_luks),
        ("a format in capitals", upper, of_upper),
    ]
}
