//! Tests of the ring with a file in place of the kernel's memory.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;

const SHAPE: PacketRing = PacketRing { slot: 256, slots_per_block: 3, block: 1024, blocks: 2 };

/// A file in the place of the socket, with a second mapping in the place of the kernel.
struct Kernel {
    file: OwnedFd,
    ring: Ring,
    next: u32,
    /// Number of frames so far, in the place of a clock.
    count: u32,
}

impl Kernel {
    fn new() -> Self {
        let file = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 2048).unwrap();
        let ring = Ring::map(&file, SHAPE).unwrap();
        Self { file, ring, next: 0, count: 0 }
    }

    /// Puts a frame into the next slot. Returns `false` if that is not the kernel's.
    fn put(&mut self, frame: &[u8], tag: Option<(u16, u16)>) -> bool {
        let at = self.next;
        if self.ring.is_ours(at) {
            return false;
        }
        let header = tpacket2_hdr {
            tp_status: libc::TP_STATUS_KERNEL,
            tp_len: frame.len() as u32,
            tp_snaplen: frame.len() as u32,
            tp_mac: 64,
            tp_net: 78,
            tp_sec: 1,
            tp_nsec: self.count,
            tp_vlan_tci: tag.map_or(0, |(_, content)| content),
            tp_vlan_tpid: tag.map_or(0, |(kind, _)| kind),
            tp_padding: [0; 4],
        };
        let slot = self.ring.address(at);
        // SAFETY: the slot is mapped, has 256 bytes, and belongs to the kernel, which is this.
        unsafe {
            slot.write(header);
            std::ptr::copy(frame.as_ptr(), slot.cast::<u8>().add(64), frame.len());
        }
        let tagged = match tag {
            None => 0,
            Some((0, _)) => libc::TP_STATUS_VLAN_VALID,
            Some(_) => libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID,
        };
        self.ring.status(at).store(libc::TP_STATUS_USER | tagged, Release);
        self.next = (at + 1) % 6;
        self.count += 1;
        true
    }

    fn reader(&self) -> Ring {
        Ring::map(&self.file, SHAPE).unwrap()
    }
}

fn read(ring: &mut Ring) -> Option<(Vec<u8>, Option<[u8; 4]>)> {
    let Received { at, len, is_whole, tag, marked } = ring.first()?;
    assert!(!marked);
    assert!(is_whole);
    let frame = ring.slot()[at..at + len].to_vec();
    ring.advance();
    ring.release();
    Some((frame, tag))
}

#[test]
fn frames_are_read_in_their_order_round_and_round() {
    let mut kernel = Kernel::new();
    let mut ring = kernel.reader();
    assert_eq!(read(&mut ring), None);
    for round in 0..20_u8 {
        let kind = if round % 2 == 0 { 0 } else { 0x88a8 };
        assert!(kernel.put(&[round; 60], None) && kernel.put(&[round; 61], Some((kind, 0x1007))));
        assert_eq!(ring.first(), ring.first(), "it stays until the reader goes on");
        assert_eq!(read(&mut ring), Some((vec![round; 60], None)));
        let tag = if kind == 0 { [0x81, 0, 0x10, 7] } else { [0x88, 0xa8, 0x10, 7] };
        assert_eq!(read(&mut ring), Some((vec![round; 61], Some(tag))));
        assert_eq!(read(&mut ring), None);
    }
}

#[test]
fn a_successor_goes_on_where_the_reader_was() {
    for (read_before, written) in [(0, 0), (2, 3), (5, 9), (4, 10), (7, 7)] {
        let mut kernel = Kernel::new();
        let mut ring = kernel.reader();
        for at in 0..written {
            if at >= 6 {
                // The ring has six slots.
                assert_eq!(read(&mut ring), Some((vec![at - 6; 60], None)));
            }
            assert!(kernel.put(&[at; 60], None));
        }
        for at in written.saturating_sub(6)..read_before {
            assert_eq!(read(&mut ring), Some((vec![at; 60], None)));
        }
        drop(ring);
        let mut next = kernel.reader();
        let rest = read_before.max(written.saturating_sub(6))..written;
        for at in rest {
            assert_eq!(read(&mut next), Some((vec![at; 60], None)), "{read_before} of {written}");
        }
        assert_eq!(read(&mut next), None);
        assert!(kernel.put(&[99; 60], None));
        assert_eq!(read(&mut next), Some((vec![99; 60], None)), "also if it found none at first");
    }
}

#[test]
fn a_successor_sees_the_mark_of_a_slot_until_it_is_given_back() {
    let mut kernel = Kernel::new();
    let mut ring = kernel.reader();
    ring.mark();
    for round in 0..6 {
        assert!(kernel.put(&[round; 60], None));
        assert!(!ring.first().unwrap().marked, "in round {round}");
        ring.slot()[SPARE].fill(round);
        ring.mark();
        let mut next = kernel.reader();
        assert!(next.first().unwrap().marked);
        assert_eq!(next.slot()[SPARE], [round; 16]);
        ring.advance();
        ring.release();
    }
    assert!(kernel.put(&[9; 60], None));
    assert!(!ring.first().unwrap().marked, "the kernel clears it");
}

#[test]
fn a_successor_finds_what_was_read_and_not_given_back() {
    let mut kernel = Kernel::new();
    let mut ring = kernel.reader();
    for at in 0..9 {
        assert!(kernel.put(&[at; 60], None));
        if at < 3 {
            read(&mut ring).unwrap();
        }
    }
    let mut found = 0;
    while ring.first().is_some() {
        ring.advance();
        found += 1;
    }
    assert_eq!(found, 6, "each slot is read once");
    assert_eq!(read(&mut kernel.reader()), Some((vec![3; 60], None)));
    ring.release();
    assert_eq!(kernel.reader().first(), None);
    assert!(kernel.put(&[9; 60], None));
    assert_eq!(read(&mut ring), Some((vec![9; 60], None)));
}

#[test]
fn a_successor_begins_with_the_oldest_frame_also_if_one_is_not_complete() {
    for before in 0..6 {
        for incomplete in 0..4_u8 {
            let mut kernel = Kernel::new();
            let mut ring = kernel.reader();
            for at in 0..before {
                assert!(kernel.put(&[at; 60], None));
                read(&mut ring).unwrap();
            }
            for at in 0..4 {
                assert!(kernel.put(&[at; 60], None));
            }
            // One of them is still being written.
            let slot = u32::from(before + incomplete) % 6;
            kernel.ring.status(slot).store(libc::TP_STATUS_KERNEL, Release);
            let mut next = kernel.reader();
            for at in 0..incomplete {
                assert_eq!(read(&mut next), Some((vec![at; 60], None)), "behind {before}");
            }
            assert_eq!(read(&mut next), None);
            kernel.ring.status(slot).store(libc::TP_STATUS_USER, Release);
            for at in incomplete..4 {
                assert_eq!(read(&mut next), Some((vec![at; 60], None)), "behind {before}");
            }
        }
    }
}

#[test]
fn a_full_ring_loses_nothing_that_it_has() {
    let mut kernel = Kernel::new();
    let mut ring = kernel.reader();
    for at in 0..4 {
        assert!(kernel.put(&[at; 60], None));
        read(&mut ring).unwrap();
    }
    for at in 0..6 {
        assert!(kernel.put(&[at; 60], None));
    }
    assert!(!kernel.put(&[0; 60], None), "no slot is the kernel's");
    let mut next = kernel.reader();
    for at in 0..6 {
        assert_eq!(read(&mut next), Some((vec![at; 60], None)));
    }
}

#[test]
fn a_frame_that_is_longer_than_its_slot_is_not_whole() {
    let mut kernel = Kernel::new();
    let mut ring = kernel.reader();
    kernel.put(&[1; 60], None);
    let slot = kernel.ring.address(0);
    // SAFETY: the slot is mapped and aligned, and nobody reads it now.
    unsafe { (*slot).tp_len = 90_000 };
    assert!(!ring.first().unwrap().is_whole);
    // SAFETY: as above.
    unsafe { (*slot).tp_snaplen = 90_000 };
    let received = ring.first().unwrap();
    assert_eq!((received.len, received.is_whole), (256 - 64, false));
}

#[test]
fn impossible_shapes_are_refused() {
    let file = memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
    for shape in [
        PacketRing { slot: 16, ..SHAPE },
        PacketRing { slot: 250, ..SHAPE },
        PacketRing { slots_per_block: 0, ..SHAPE },
        PacketRing { slots_per_block: 5, ..SHAPE },
        PacketRing { slots_per_block: 4, ..SHAPE },
        PacketRing { blocks: 0, ..SHAPE },
        PacketRing { blocks: u32::MAX, ..SHAPE },
    ] {
        assert!(Ring::map(&file, shape).is_err(), "{shape:?}");
    }
}
