//! Makes empty qcow2 images, as overlays whose writes are thrown away.
//!
//! The image names no backing file: QEMU gets that as a node (`"backing": "NODE"`), so no name in a
//! file decides what QEMU opens.

use crate::image::{MAX_VIRTUAL_SIZE, SECTOR};
use crate::qcow2::header::{MAGIC, V3_LENGTH, at};

/// Binary logarithm of the cluster size, 64 KiB: QEMU's default.
const CLUSTER_BITS: u32 = 16;

/// Reference counts of 2^4 bits: QEMU's default.
const REFCOUNT_ORDER: u32 = 4;
const REFCOUNT_BYTES: usize = 2;

/// Bytes of an entry of a table.
const ENTRY: usize = 8;

/// Clusters before the L1 table: header, reference count table, reference count block.
const FIRST: usize = 3;

/// A virtual size for which there is no overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an overlay of {size} bytes is not possible: multiples of 512 up to {MAX_VIRTUAL_SIZE} are")]
pub struct OverlaySizeError {
    /// The size in bytes.
    pub size: u64,
}

/// Returns the bytes of an empty qcow2 image of version 3, without a backing file's name: 192 KiB,
/// and 8 bytes for each 512 MiB of virtual size. The caller writes them from offset 0 of an empty
/// file, such as an unnamed one (`O_TMPFILE`). [`crate::Image::virtual_size`] of the image below is
/// the size to pass.
///
/// # Errors
/// Fails if the size is 0, no multiple of 512, or larger than [`MAX_VIRTUAL_SIZE`].
pub fn empty_qcow2(virtual_size: u64) -> Result<Vec<u8>, OverlaySizeError> {
    if !(SECTOR..=MAX_VIRTUAL_SIZE).contains(&virtual_size) || !virtual_size.is_multiple_of(SECTOR) {
        return Err(OverlaySizeError { size: virtual_size });
    }
    Ok(with_clusters(virtual_size, CLUSTER_BITS))
}

/// The same with clusters of another size. One block of reference counts has to cover the image.
pub(crate) fn with_clusters(virtual_size: u64, cluster_bits: u32) -> Vec<u8> {
    let cluster = 1_usize << cluster_bits;
    let per_l1_entry = (cluster * (cluster / ENTRY)) as u64;
    let l1_entries = virtual_size.div_ceil(per_l1_entry) as usize;
    let clusters = FIRST + (l1_entries * ENTRY).div_ceil(cluster);
    assert!(clusters * REFCOUNT_BYTES <= cluster, "one block covers {clusters} clusters");

    let [refcounts, block, l1] = [1, 2, FIRST].map(|number| number * cluster);
    let mut image = vec![0; l1 + l1_entries * ENTRY];
    let mut put = |offset: usize, bytes: &[u8]| image[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC);
    put(at::VERSION, &3_u32.to_be_bytes());
    put(at::CLUSTER_BITS, &cluster_bits.to_be_bytes());
    put(at::SIZE, &virtual_size.to_be_bytes());
    put(at::L1_ENTRIES, &(l1_entries as u32).to_be_bytes());
    put(at::L1_OFFSET, &(l1 as u64).to_be_bytes());
    put(at::REFCOUNT_OFFSET, &(refcounts as u64).to_be_bytes());
    put(at::REFCOUNT_CLUSTERS, &1_u32.to_be_bytes());
    put(at::REFCOUNT_ORDER, &REFCOUNT_ORDER.to_be_bytes());
    put(at::LENGTH, &V3_LENGTH.to_be_bytes());
    // The list of extensions behind the header is empty: its end is all zeros.
    put(refcounts, &(block as u64).to_be_bytes());
    for number in 0..clusters {
        put(block + number * REFCOUNT_BYTES, &1_u16.to_be_bytes());
    }
    image
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, inspect};

    #[test]
    fn an_overlay_passes_the_inspection_of_its_kind() {
        for size in [512, 1 << 20, (10 << 30) + 512, MAX_VIRTUAL_SIZE] {
            let image = inspect(&empty_qcow2(size).unwrap(), Format::Qcow2).unwrap();
            assert_eq!((image.virtual_size, image.stated_size), (size, size));
            assert_eq!((image.version, image.cluster_bits, image.backing), (Some(3), Some(16), None));
        }
    }

    #[test]
    fn sizes_without_an_overlay_are_refused() {
        for size in [0, 511, 513, MAX_VIRTUAL_SIZE + 512, u64::MAX] {
            assert_eq!(empty_qcow2(size), Err(OverlaySizeError { size }));
        }
    }

    #[test]
    fn an_overlay_is_small() {
        assert_eq!(empty_qcow2(10 << 30).unwrap().len(), (192 << 10) + 8 * 20);
        assert_eq!(empty_qcow2(MAX_VIRTUAL_SIZE).unwrap().len(), (192 << 10) + (1 << 20));
    }
}
