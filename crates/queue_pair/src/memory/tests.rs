//! Copies in shared memory, and regions in it.

use std::num::NonZeroU8;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;
use crate::layout::{Direction, Geometry, HeaderError, PAGE, Word};

const LEN: usize = 4 << 20;

fn file() -> OwnedFd {
    let file = memfd_create("region", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 2 * LEN as u64).unwrap();
    file
}

/// Two rings of `len` bytes each, in channels of their own of one region.
fn rings(len: u32, copying: Copying) -> [RingBytes; 2] {
    let geometry = Geometry::small(2, len);
    let memory = Arc::new(Memory::anonymous(geometry.end() as usize).unwrap());
    let region = Region::new(memory, geometry).unwrap();
    [0, 1].map(|index| region.channel(index).unwrap().ring(Direction::Out, copying))
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|number| (number % 251 + 1) as u8).collect()
}

fn read(ring: &RingBytes, position: u32, count: usize) -> Vec<u8> {
    let mut out = vec![0; count];
    ring.copy_out(position, as_uninit(&mut out));
    out
}

#[test]
fn two_mappings_of_a_file_share_its_bytes() {
    let file = file();
    let [one, two] = [0, 0].map(|_| Arc::new(Memory::map(file.as_fd(), LEN as u64, LEN).unwrap()));
    one.write_header(&Geometry::of(LEN as u64).unwrap().header());
    let fabric = Region::new(one, Geometry::of(LEN as u64).unwrap()).unwrap();
    let guest = Region::open(two).unwrap();
    assert_eq!(guest.geometry(), fabric.geometry());
    for index in [0, guest.geometry().channels() - 1] {
        let [ours, theirs] = [&fabric, &guest].map(|region| region.channel(index).unwrap());
        assert_eq!((ours.index(), ours.ring_len()), (index, guest.geometry().ring_len()));
        for (number, word) in (1..).zip(Word::ALL) {
            ours.store(word, number);
        }
        assert_eq!(Word::ALL.map(|word| theirs.load(word)), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let [sent, received] = [&ours, &theirs].map(|channel| channel.ring(Direction::In, Copying::Library));
        sent.copy_in(u32::MAX, b"across the end");
        assert_eq!(read(&received, u32::MAX, 14), b"across the end");
        theirs.clear();
        assert_eq!(Word::ALL.map(|word| ours.load(word)), [0; 10]);
        assert_eq!(read(&sent, u32::MAX, 14), b"across the end");
    }
    assert!(guest.channel(guest.geometry().channels()).is_none());
    // In the file, the header is where the mapping begins.
    let mut magic = [0; 8];
    rustix::io::pread(&file, &mut magic, LEN as u64).unwrap();
    assert_eq!(magic, crate::layout::MAGIC);
}

#[test]
fn a_region_needs_all_of_its_memory() {
    let [geometry, larger] = [16 << 20, 32 << 20].map(|len| Geometry::of(len).unwrap());
    let mapped = geometry.end();
    let memory = Arc::new(Memory::anonymous(mapped as usize).unwrap());
    Region::new(Arc::clone(&memory), geometry).unwrap();
    let short = RegionError::Short { mapped, needed: larger.end() };
    assert_eq!(Region::new(Arc::clone(&memory), larger).unwrap_err(), short);
    memory.write_header(&larger.header());
    let error = Region::open(Arc::clone(&memory)).unwrap_err();
    assert!(matches!(error, RegionError::Header(HeaderError::Outside { .. })), "{error}");
    memory.write_header(&geometry.header());
    assert_eq!(Region::open(memory).unwrap().geometry(), geometry);
    let page_less = Memory::anonymous((mapped - PAGE) as usize).unwrap();
    assert!(Region::new(Arc::new(page_less), geometry).is_err());
}

#[test]
fn a_file_that_cannot_be_mapped_is_an_error() {
    let file = file();
    assert!(Memory::map(file.as_fd(), 1, LEN).is_err());
    assert!(Memory::map(file.as_fd(), 0, 0).is_err());
}

#[test]
#[should_panic(expected = "more bytes than the ring has")]
fn a_copy_does_not_leave_its_ring() {
    rings(64, Copying::Library)[0].copy_in(0, &[0; 65]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_copy_is_exact_and_touches_nothing_else(
        shift in 0_u32..12,
        position in any::<u32>(),
        other in any::<u32>(),
        count in any::<proptest::sample::Index>(),
        copying in prop_oneof![Just(Copying::Library), Just(Copying::Words)],
        fill in any::<NonZeroU8>(),
    ) {
        let len = 1_u32 << shift;
        let [ring, second] = rings(len, copying);
        let (count, fill) = (count.index(len as usize + 1), fill.get());
        let rest = len as usize - count;
        for ring in [&ring, &second] {
            ring.copy_in(0, &vec![fill; len as usize]);
        }
        ring.copy_in(position, &bytes(count));
        prop_assert_eq!(read(&ring, position, count), bytes(count));
        prop_assert_eq!(read(&ring, position.wrapping_add(count as u32), rest), vec![fill; rest]);

        second.copy_from(other, &ring, position, count);
        prop_assert_eq!(read(&second, other, count), bytes(count));
        prop_assert_eq!(read(&second, other.wrapping_add(count as u32), rest), vec![fill; rest]);
        prop_assert_eq!(read(&ring, position, count), bytes(count));
    }
}
