//! The block of information from which Linux makes a device-DAX device of an NVDIMM.
//!
//! Linux looks for the block 4 KiB behind the begin of the NVDIMM. If the block is valid, it
//! creates `/dev/dax0.0` for the bytes from [`DATA_OFFSET`] on, without any configuration in the
//! guest. The layout is that of `struct nd_pfn_sb` in Linux's `drivers/nvdimm/pfn.h`.
//!
//! Linux 6.1 and 6.12 check these fields (`nd_pfn_validate` in `drivers/nvdimm/pfn_devs.c`):
//!
//! * The signature and the checksum.
//! * The UUID of the parent, which is the namespace. A namespace of an NVDIMM without labels has no
//!   UUID, and the field is compared with zeros. The block's own UUID may be any.
//! * The minor version, which says how many of the later fields are valid. The major version is not
//!   read.
//! * The mode. In [`MODE_RAM`] the number of pages and the sizes of a page and of `struct page` are
//!   not compared with anything. The data begins at least 8 KiB behind the begin.
//! * The alignment: a page or, on x86 with transparent huge pages, 2 MiB or 1 GiB. The data begins
//!   at a multiple of it in the guest's address space, so the NVDIMM begins at one of 2 MiB.
//! * Begin and end of the NVDIMM, without the bytes that the block leaves out: multiples of 2 MiB.
//!
//! A mapping of the device is shared, and begins and ends at multiples of the alignment
//! (`check_vma` in `drivers/dax/device.c`).

use thiserror::Error;

/// Offset of the block in the memory of the NVDIMM, in bytes.
pub const BLOCK_OFFSET: u64 = 4096;
/// Length of the block in bytes.
pub const BLOCK_LEN: usize = 4096;
/// Offset of the region in the memory of the NVDIMM, in bytes. It is also the unit of the device's
/// length and of mappings of it.
pub const DATA_OFFSET: u64 = 2 << 20;

/// Version of the block, which tells Linux which fields are valid.
const VERSION_MAJOR: u16 = 1;
const VERSION_MINOR: u16 = 4;
/// Linux keeps its information about pages (`struct page`) in ordinary memory of the guest.
const MODE_RAM: u32 = 1;
/// Length of a page of the guest, in bytes.
const PAGE_SIZE: u32 = 4096;
/// Length of Linux's `struct page`, in bytes, for which space would be reserved in another mode.
const PAGE_STRUCT_SIZE: u16 = 64;
/// Identifies the device to the guest. The NVDIMM of each VM has only this one.
const UUID: [u8; 16] = *b"taut queue pairs";

/// The memory is not a multiple of [`DATA_OFFSET`], or has no room behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "{0} bytes of memory cannot be a device: \
     the length is a multiple of {DATA_OFFSET} and at least twice that"
)]
pub struct MemoryLenError(pub u64);

/// Length of the NVDIMM's memory for a region of `region_len` bytes.
pub const fn memory_len(region_len: u64) -> u64 {
    DATA_OFFSET + region_len
}

/// Returns the block for an NVDIMM of `memory_len` bytes.
pub fn block(memory_len: u64) -> Result<[u8; BLOCK_LEN], MemoryLenError> {
    if !memory_len.is_multiple_of(DATA_OFFSET) || memory_len < 2 * DATA_OFFSET {
        return Err(MemoryLenError(memory_len));
    }
    let pages = (memory_len - DATA_OFFSET) / u64::from(PAGE_SIZE);
    let mut block = [0; BLOCK_LEN];
    let mut put = |at: usize, value: &[u8]| block[at..at + value.len()].copy_from_slice(value);
    put(0, b"NVDIMM_DAX_INFO\0");
    put(16, &UUID);
    // The parent's UUID at 32 and the flags at 48 are zero.
    put(52, &VERSION_MAJOR.to_le_bytes());
    put(54, &VERSION_MINOR.to_le_bytes());
    put(56, &DATA_OFFSET.to_le_bytes());
    put(64, &pages.to_le_bytes());
    put(72, &MODE_RAM.to_le_bytes());
    // Nothing is left out at the begin (76) and at the end (80).
    put(84, &(DATA_OFFSET as u32).to_le_bytes());
    put(88, &PAGE_SIZE.to_le_bytes());
    put(92, &PAGE_STRUCT_SIZE.to_le_bytes());
    let checksum = fletcher64(&block);
    block[BLOCK_LEN - 8..].copy_from_slice(&checksum.to_le_bytes());
    Ok(block)
}

/// Fletcher's checksum of little-endian words of 32 bits, the sums modulo 2^32.
fn fletcher64(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<4>();
    let sums = words.iter().fold((0_u32, 0_u32), |(sum, sum_of_sums), word| {
        let sum = sum.wrapping_add(u32::from_le_bytes(*word));
        (sum, sum_of_sums.wrapping_add(sum))
    });
    u64::from(sums.1) << 32 | u64::from(sums.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn u16_at(block: &[u8], at: usize) -> u16 {
        u16::from_le_bytes(block[at..at + 2].try_into().unwrap())
    }

    fn u32_at(block: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(block[at..at + 4].try_into().unwrap())
    }

    fn u64_at(block: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(block[at..at + 8].try_into().unwrap())
    }

    /// The checksum as a sum over positions: a word counts once in the first sum, and in the second
    /// as often as there are words from it on.
    fn checksum(block: &[u8]) -> u64 {
        let words = block.len() as u128 / 4;
        let (mut sum, mut weighted) = (0_u128, 0_u128);
        for number in 0..words {
            let word = u128::from(u32_at(block, 4 * number as usize));
            sum += word;
            weighted += word * (words - number);
        }
        (((weighted % (1 << 32)) << 32) | (sum % (1 << 32))) as u64
    }

    #[test]
    fn a_block_passes_what_linux_checks() {
        for region_len in (22..=30).map(|shift| 1_u64 << shift) {
            let memory_len = memory_len(region_len);
            let mut block = block(memory_len).unwrap();
            let stored = u64_at(&block, 4088);
            block[4088..].fill(0);
            assert_eq!(stored, checksum(&block));
            assert_eq!(&block[..16], b"NVDIMM_DAX_INFO\0");
            assert_ne!(block[16..32], [0; 16], "the block has a UUID");
            assert_eq!(block[32..48], [0; 16], "the namespace has none");
            assert_eq!(u32_at(&block, 48), 0, "flags");
            assert_eq!((u16_at(&block, 52), u16_at(&block, 54)), (1, 4));
            let offset = u64_at(&block, 56);
            assert_eq!(offset, 2 << 20);
            assert!(offset < memory_len && offset >= 8192 && memory_len.is_multiple_of(2 << 20));
            assert_eq!(u64_at(&block, 64) * 4096, region_len);
            assert_eq!(u32_at(&block, 72), 1, "mode");
            assert_eq!((u32_at(&block, 76), u32_at(&block, 80)), (0, 0), "nothing is left out");
            assert_eq!(u64::from(u32_at(&block, 84)), offset, "alignment");
            assert_eq!((u32_at(&block, 88), u16_at(&block, 92)), (4096, 64));
            assert!(block[94..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn the_checksum_is_that_of_fletcher() {
        assert_eq!(fletcher64(&[]), 0);
        assert_eq!(fletcher64(&[1, 0, 0, 0, 2, 0, 0, 0]), 4 << 32 | 3);
        // Both sums exceed 32 bits.
        assert_eq!(fletcher64(&[0xff; 12]), 0xffff_fffa_ffff_fffd);
    }

    #[test]
    fn memory_that_cannot_be_a_device_is_refused() {
        for len in [0, 4096, 2 << 20, (4 << 20) - 4096, (4 << 20) + 4096] {
            assert_eq!(block(len), Err(MemoryLenError(len)));
        }
        assert!(block(4 << 20).is_ok());
    }
}
