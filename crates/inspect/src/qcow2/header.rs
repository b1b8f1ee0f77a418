//! The fixed part of a qcow2 header. All numbers are big-endian.

use crate::image::{MAX_VIRTUAL_SIZE, SECTOR};
use crate::read_at::Bounded;
use crate::refusal::{Refusal, Table};

/// First bytes of every qcow2 image.
pub(crate) const MAGIC: [u8; 4] = *b"QFI\xfb";

/// Length of a header of version 2.
const V2_LENGTH: u32 = 72;

/// Least length of a header of version 3, which has no compression type yet.
const V3_LEAST_LENGTH: u32 = 104;

/// Length of a header of version 3 as QEMU 5.1 and newer write it.
pub(crate) const V3_LENGTH: u32 = 112;

/// Offsets of the fields.
pub(crate) mod at {
    pub(crate) const VERSION: usize = 4;
    pub(crate) const BACKING_OFFSET: usize = 8;
    pub(crate) const BACKING_LEN: usize = 16;
    pub(crate) const CLUSTER_BITS: usize = 20;
    pub(crate) const SIZE: usize = 24;
    pub(crate) const CRYPT_METHOD: usize = 32;
    pub(crate) const L1_ENTRIES: usize = 36;
    pub(crate) const L1_OFFSET: usize = 40;
    pub(crate) const REFCOUNT_OFFSET: usize = 48;
    pub(crate) const REFCOUNT_CLUSTERS: usize = 56;
    pub(crate) const SNAPSHOTS: usize = 60;
    pub(crate) const SNAPSHOTS_OFFSET: usize = 64;
    pub(crate) const INCOMPATIBLE: usize = 72;
    pub(crate) const REFCOUNT_ORDER: usize = 96;
    pub(crate) const LENGTH: usize = 100;
    pub(crate) const COMPRESSION: usize = 104;
}

/// Incompatible features. Unclean shutdown (bit 0) is no reason to refuse: QEMU repairs the
/// reference counts.
const DIRTY: u64 = 1 << 0;
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;

/// Compression by zlib, the default, and by zstd.
const ZLIB: u8 = 0;
const ZSTD: u8 = 1;

const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// Bytes of an entry of the L1 or L2 table.
const ENTRY: u64 = 8;
/// `QCOW_MAX_L1_SIZE`.
const MAX_L1_BYTES: u64 = 32 << 20;
/// `QCOW_MAX_REFTABLE_SIZE`.
const MAX_REFCOUNT_TABLE_BYTES: u64 = 8 << 20;
/// `QCOW_MAX_SNAPSHOTS`.
const MAX_SNAPSHOTS: u32 = 65536;
/// Least bytes of an entry of the snapshot table.
const SNAPSHOT_ENTRY: u64 = 40;
const MAX_REFCOUNT_ORDER: u32 = 6;
const V2_REFCOUNT_ORDER: u32 = 4;
/// Longest name of a backing file.
const MAX_BACKING_NAME: u32 = 1023;

/// The header's fields. Only magic and version are checked by [`Header::read`].
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) backing_offset: u64,
    pub(crate) backing_len: u32,
    pub(crate) cluster_bits: u32,
    pub(crate) size: u64,
    pub(crate) snapshots: u32,
    /// Where the extensions begin.
    pub(crate) length: u32,
    crypt_method: u32,
    l1_entries: u32,
    l1_offset: u64,
    refcount_offset: u64,
    refcount_clusters: u32,
    snapshots_offset: u64,
    incompatible: u64,
    refcount_order: u32,
    compression: u8,
}

impl Header {
    pub(crate) fn read(file: &Bounded<'_>) -> Result<Self, Refusal> {
        let magic = file.array(0)?;
        if magic != MAGIC {
            return Err(Refusal::NotQcow2 { magic });
        }
        let bytes = file.array::<{ V2_LENGTH as usize }>(0)?;
        let version = u32_at(&bytes, at::VERSION);
        let mut header = Self {
            version,
            backing_offset: u64_at(&bytes, at::BACKING_OFFSET),
            backing_len: u32_at(&bytes, at::BACKING_LEN),
            cluster_bits: u32_at(&bytes, at::CLUSTER_BITS),
            size: u64_at(&bytes, at::SIZE),
            snapshots: u32_at(&bytes, at::SNAPSHOTS),
            length: V2_LENGTH,
            crypt_method: u32_at(&bytes, at::CRYPT_METHOD),
            l1_entries: u32_at(&bytes, at::L1_ENTRIES),
            l1_offset: u64_at(&bytes, at::L1_OFFSET),
            refcount_offset: u64_at(&bytes, at::REFCOUNT_OFFSET),
            refcount_clusters: u32_at(&bytes, at::REFCOUNT_CLUSTERS),
            snapshots_offset: u64_at(&bytes, at::SNAPSHOTS_OFFSET),
            incompatible: 0,
            refcount_order: V2_REFCOUNT_ORDER,
            compression: ZLIB,
        };
        match version {
            2 => {}
            3 => {
                let bytes = file.array::<{ V3_LEAST_LENGTH as usize }>(0)?;
                header.incompatible = u64_at(&bytes, at::INCOMPATIBLE);
                header.refcount_order = u32_at(&bytes, at::REFCOUNT_ORDER);
                header.length = u32_at(&bytes, at::LENGTH);
                if header.length > V3_LEAST_LENGTH {
                    [header.compression] = file.array(at::COMPRESSION as u64)?;
                }
            }
            _ => return Err(Refusal::Qcow2Version { version }),
        }
        Ok(header)
    }

    /// Bytes of a cluster, once `cluster_bits` is checked.
    pub(crate) fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Checks everything but the extensions and the backing file's name.
    pub(crate) fn check(&self, file_size: u64) -> Result<(), Refusal> {
        if !CLUSTER_BITS.contains(&self.cluster_bits) {
            return Err(Refusal::ClusterBits { bits: self.cluster_bits });
        }
        let is_length = self.length >= V3_LEAST_LENGTH && self.length.is_multiple_of(8);
        if (self.version > 2 && !is_length) || u64::from(self.length) > self.cluster_size() {
            return Err(Refusal::HeaderLength { length: self.length, cluster_size: self.cluster_size() });
        }
        self.check_features()?;
        self.check_size()?;
        self.check_tables(file_size)?;
        self.check_backing_place()
    }

    fn check_features(&self) -> Result<(), Refusal> {
        if self.incompatible & DATA_FILE != 0 {
            return Err(Refusal::ExternalDataFile { sign: "incompatible feature bit 2" });
        }
        let unknown = self.incompatible & !(DIRTY | CORRUPT | DATA_FILE | COMPRESSION);
        if unknown != 0 {
            return Err(Refusal::UnknownFeatures { bits: unknown });
        }
        if self.incompatible & CORRUPT != 0 {
            return Err(Refusal::Corrupt);
        }
        let flagged = self.incompatible & COMPRESSION != 0;
        if !matches!((self.compression, flagged), (ZLIB, false) | (ZSTD, true)) {
            return Err(Refusal::Qcow2Compression { kind: self.compression, flagged });
        }
        if self.crypt_method != 0 {
            return Err(Refusal::Encrypted { method: self.crypt_method });
        }
        if self.refcount_order > MAX_REFCOUNT_ORDER {
            return Err(Refusal::RefcountOrder { order: self.refcount_order });
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), Refusal> {
        if self.size < SECTOR {
            return Err(Refusal::NoSize);
        }
        if self.size > MAX_VIRTUAL_SIZE {
            return Err(Refusal::TooLarge { size: self.size });
        }
        let limit = MAX_L1_BYTES / ENTRY;
        if u64::from(self.l1_entries) > limit {
            return Err(Refusal::L1TooLarge { entries: self.l1_entries, limit });
        }
        // An L2 table fills a cluster, and each of its entries is for one.
        let needed = self.size.div_ceil(self.cluster_size() / ENTRY * self.cluster_size());
        if u64::from(self.l1_entries) < needed {
            return Err(Refusal::L1TooSmall { entries: self.l1_entries, needed, size: self.size });
        }
        Ok(())
    }

    fn check_tables(&self, file_size: u64) -> Result<(), Refusal> {
        let limit = MAX_REFCOUNT_TABLE_BYTES / self.cluster_size();
        if self.refcount_clusters == 0 || u64::from(self.refcount_clusters) > limit {
            return Err(Refusal::RefcountTableSize { clusters: self.refcount_clusters, limit });
        }
        if self.snapshots > MAX_SNAPSHOTS {
            return Err(Refusal::TooManySnapshots { count: self.snapshots, limit: MAX_SNAPSHOTS });
        }
        let refcount_bytes = u64::from(self.refcount_clusters) * self.cluster_size();
        self.check_table(Table::Refcounts, self.refcount_offset, refcount_bytes, file_size)?;
        self.check_table(Table::L1, self.l1_offset, u64::from(self.l1_entries) * ENTRY, file_size)?;
        let snapshot_bytes = u64::from(self.snapshots) * SNAPSHOT_ENTRY;
        self.check_table(Table::Snapshots, self.snapshots_offset, snapshot_bytes, file_size)
    }

    /// Checks the place of a table. The last cluster of a file may be incomplete, and the place of
    /// an empty table is not used.
    fn check_table(&self, table: Table, offset: u64, bytes: u64, file_size: u64) -> Result<(), Refusal> {
        let cluster_size = self.cluster_size();
        if !offset.is_multiple_of(cluster_size) {
            return Err(Refusal::Unaligned { table, offset, cluster_size });
        }
        let room = file_size.div_ceil(cluster_size).saturating_mul(cluster_size);
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= room);
        // The first cluster has the header.
        if bytes > 0 && (offset == 0 || !fits) {
            return Err(Refusal::OutsideFile { table, offset, bytes, file_size });
        }
        Ok(())
    }

    /// Checks that the backing file's name is between header and end of the first cluster.
    fn check_backing_place(&self) -> Result<(), Refusal> {
        let (offset, len) = (self.backing_offset, self.backing_len);
        if offset == 0 {
            return Ok(());
        }
        if len > MAX_BACKING_NAME {
            return Err(Refusal::BackingNameLength { len, limit: MAX_BACKING_NAME });
        }
        let end = offset.checked_add(len.into());
        if offset < self.length.into() || end.is_none_or(|end| end > self.cluster_size()) {
            return Err(Refusal::BackingNamePlace { offset, len });
        }
        Ok(())
    }
}

/// Reads a number from a header. The offsets are constants inside it.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(number)
}
