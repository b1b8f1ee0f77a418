use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;

fn file(len: u64) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, len).unwrap();
    file
}

fn spec(guest_addr: u64, size: u64, file_offset: u64) -> RegionSpec {
    RegionSpec { guest_addr, user_addr: guest_addr + 0x7000_0000_0000, size, file_offset }
}

fn map(specs: &[RegionSpec], file: &OwnedFd) -> Result<Arc<GuestMemory>, MemoryError> {
    GuestMemory::map(specs, &vec![file.as_fd(); specs.len()]).map(Arc::new)
}

#[test]
fn bytes_go_to_the_region_with_their_address() {
    let file = file(0x6000);
    let memory = map(&[spec(0x10_0000, 0x2000, 0x1800), spec(0, 0x1000, 0)], &file).unwrap();
    assert_eq!(memory.size(), 0x3000);
    memory.write(0x10_1ff0, b"end of the upper").unwrap();
    let mut found = [0; 16];
    rustix::io::pread(&file, &mut found, 0x1800 + 0x1ff0).unwrap();
    assert_eq!(&found, b"end of the upper");
    rustix::io::pwrite(&file, b"low", 5).unwrap();
    let mut found = [0; 3];
    memory.read(5, &mut found).unwrap();
    assert_eq!(&found, b"low");
}

#[test]
fn adjoining_regions_are_one_range_and_a_gap_is_not() {
    let file = file(0x4000);
    let memory =
        map(&[spec(0x1000, 0x1000, 0x2000), spec(0x2000, 0x1000, 0), spec(0x4000, 0x1000, 0x1000)], &file);
    let memory = memory.unwrap();
    memory.write(0x1ffe, b"four").unwrap();
    let mut found = [0; 4];
    memory.read(0x1ffe, &mut found).unwrap();
    assert_eq!(&found, b"four");
    for (addr, len) in [(0xfff, 2), (0x2fff, 2), (0x3000, 1), (0x4fff, 2), (u64::MAX, 2), (0, 1)] {
        assert!(
            matches!(memory.read(addr, &mut vec![0; len]), Err(MemoryError::Outside { .. })),
            "{addr:#x}"
        );
    }
}

#[test]
fn invalid_regions_are_refused() {
    let file = file(0x4000);
    let refused = |specs: &[RegionSpec]| map(specs, &file).unwrap_err();
    assert!(matches!(refused(&[]), MemoryError::Count { .. }));
    assert!(matches!(refused(&vec![spec(0, 0x1000, 0); MAX_REGIONS + 1]), MemoryError::Count { .. }));
    assert!(matches!(refused(&[spec(0, 0, 0)]), MemoryError::Extent { .. }));
    assert!(matches!(refused(&[spec(0, u64::MAX, 1)]), MemoryError::Extent { .. }));
    assert!(matches!(
        refused(&[RegionSpec { user_addr: u64::MAX, ..spec(0, 2, 0) }]),
        MemoryError::Extent { .. }
    ));
    let overlap = refused(&[spec(0x1000, 0x2000, 0), spec(0x2fff, 0x1000, 0)]);
    assert!(matches!(overlap, MemoryError::Overlap { first: 0x1000, second: 0x2fff }));
    let user_overlap = RegionSpec { user_addr: 0x7000_0000_0fff, ..spec(0x8000, 0x1000, 0) };
    assert!(matches!(refused(&[spec(0, 0x1000, 0), user_overlap]), MemoryError::Overlap { .. }));
    let short = refused(&[spec(0, 0x1001, 0x3000)]);
    assert!(matches!(short, MemoryError::FileTooShort { needed: 0x4001, actual: 0x4000, .. }));
}

#[test]
fn a_descriptor_that_is_not_a_file_is_refused() {
    let (read, _write) = rustix::pipe::pipe().unwrap();
    let refused = GuestMemory::map(&[spec(0, 0x1000, 0)], &[read.as_fd()]).unwrap_err();
    assert!(matches!(refused, MemoryError::NotAFile { .. }));
}

#[test]
fn memory_whose_pages_vanish_reads_as_zeros_and_other_memory_stays() {
    let alarm = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    survive_lost_pages(alarm.try_clone().unwrap()).unwrap();
    let files = [file(0x4000), file(0x4000)];
    let [shortened, whole] = [0, 1].map(|index| map(&[spec(0, 0x4000, 0)], &files[index]).unwrap());
    for memory in [&shortened, &whole] {
        memory.write(0x3000, b"page").unwrap();
    }
    ftruncate(&files[0], 0x1000).unwrap();
    let mut found = [1; 4];
    shortened.read(0x3000, &mut found).unwrap();
    assert_eq!(found, [0; 4]);
    assert!(shortened.has_lost_pages() && !whole.has_lost_pages());
    assert_eq!(rustix::io::read(&alarm, &mut [0; 8]), Ok(8));
    shortened.write(0x3000, b"lost").unwrap();
    whole.read(0x3000, &mut found).unwrap();
    assert_eq!(&found, b"page");
    drop(shortened);
    let again = map(&[spec(0, 0x4000, 0)], &files[1]).unwrap();
    assert!(!again.has_lost_pages(), "another mapping has the entry now");
}

#[test]
fn a_list_of_spans_gives_back_the_room_that_one_chain_has_needed() {
    let file = file(0x4000);
    let memory = map(&[spec(0, 0x4000, 0)], &file).unwrap();
    let mut spans = Spans::new(memory, 2);
    for (count, room) in [(1, 2), (17, 32), (1000, 32), (3, 32)] {
        assert!((0..count).all(|at| spans.push(at, 1)));
        spans.clear();
        assert_eq!(spans.room(), room, "after {count} spans");
    }
}
