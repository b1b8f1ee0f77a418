//! A driver that breaks the rules: each violation has its fault, and random rings never cause more
//! than a fault.

use proptest::prelude::*;

use super::hostile_driver::{BUFFER, Garbage, Hostile, RAM, SIZE, SPLIT, descriptor};
use super::*;
use crate::driver::Ram;
use crate::fault::{QueueError, RingFault};
use crate::features::{EVENT_IDX, IN_ORDER, INDIRECT_DESC, NET_MRG_RXBUF, RING_PACKED, VERSION_1};
use crate::header::NetHeader;
use crate::ring::packed::DESC_USED;
use crate::ring::{DESC_INDIRECT, DESC_NEXT, DESC_WRITE, QueueConfig, Start, packed};

/// All features except those that select the format.
const ALL: u64 = VERSION_1 | EVENT_IDX | INDIRECT_DESC;

const FORMATS: [u64; 2] = [SPLIT, RING_PACKED];

impl Hostile {
    fn config(&self, features: u64) -> QueueConfig {
        self.layout.config(features | self.format, Start::first(self.format))
    }

    fn tx(&self, features: u64) -> TxQueue {
        TxQueue::new(self.ram.memory(), &self.config(features)).unwrap()
    }

    fn rx(&self, features: u64) -> RxQueue {
        RxQueue::new(self.ram.memory(), &self.config(features)).unwrap()
    }

    /// The fault that a transmit queue finds in one available chain from descriptor 0.
    fn tx_fault(&self) -> RingFault {
        self.available(&[0]);
        let mut tx = self.tx(ALL);
        let fault = tx.peek().expect_err("a fault");
        assert_eq!(tx.peek(), Err(fault), "a broken queue stays broken");
        fault
    }
}

#[test]
fn the_available_index_cannot_jump() {
    let hostile = Hostile::new(SPLIT);
    hostile.available_index(SIZE + 1);
    let jumped = RingFault::AvailIndexJumped { from: 0, to: 9, size: SIZE };
    assert_eq!(hostile.tx(VERSION_1).peek(), Err(jumped));
    assert_eq!(hostile.rx(VERSION_1).deliver_bytes(&[0; 60], &NetHeader::default()), Err(jumped));

    hostile.descriptor(hostile.layout.desc, 0, descriptor(BUFFER, 100, 0, 0));
    hostile.available(&[0, 0]);
    let mut tx = hostile.tx(VERSION_1);
    assert_eq!(tx.peek(), Ok(2));
    tx.complete(2);
    hostile.available_index(1);
    assert!(
        matches!(tx.peek(), Err(RingFault::AvailIndexJumped { from: 2, to: 1, .. })),
        "the index cannot go back either"
    );
}

#[test]
fn chains_stay_in_their_tables() {
    let hostile = Hostile::new(SPLIT);
    hostile.available(&[SIZE]);
    assert_eq!(hostile.tx(VERSION_1).peek(), Err(RingFault::HeadOutOfRange { head: SIZE, size: SIZE }));
    let desc = hostile.layout.desc;
    hostile.descriptor(desc, 0, descriptor(BUFFER, 100, DESC_NEXT, SIZE));
    assert_eq!(hostile.tx_fault(), RingFault::NextOutOfRange { next: SIZE, size: SIZE });
    hostile.descriptor(desc, 0, descriptor(BUFFER, 100, DESC_NEXT, 1));
    hostile.descriptor(desc, 1, descriptor(BUFFER, 100, DESC_NEXT, 0));
    assert_eq!(hostile.tx_fault(), RingFault::DescriptorLoop { head: 0, size: SIZE });
    hostile.descriptor(desc, 0, descriptor(BUFFER, 100, DESC_NEXT, 0));
    assert_eq!(hostile.tx_fault(), RingFault::DescriptorLoop { head: 0, size: SIZE });
}

#[test]
fn buffers_lie_in_guest_memory() {
    for hostile in FORMATS.map(Hostile::new) {
        let desc = hostile.layout.desc;
        let end = Ram::START + RAM;
        for (addr, len) in [(0, 100), (Ram::START - 1, 100), (end - 99, 100), (end, 1), (1 << 60, 100)] {
            hostile.descriptor(desc, 0, descriptor(addr, len, 0, 0));
            assert_eq!(hostile.tx_fault(), RingFault::AddressOutside { addr, len: len.into() });
        }
        hostile.descriptor(desc, 0, descriptor(u64::MAX - 10, 100, 0, 0));
        assert_eq!(hostile.tx_fault(), RingFault::AddressOverflow { addr: u64::MAX - 10, len: 100 });
        hostile.descriptor(desc, 0, descriptor(BUFFER, u32::MAX, 0, 0));
        assert_eq!(hostile.tx_fault(), RingFault::AddressOutside { addr: BUFFER, len: u32::MAX.into() });
    }
}

#[test]
fn lengths_are_bounded_on_both_sides() {
    for hostile in FORMATS.map(Hostile::new) {
        let desc = hostile.layout.desc;
        hostile.descriptor(desc, 0, descriptor(BUFFER, 0, 0, 0));
        assert_eq!(hostile.tx_fault(), RingFault::ZeroLength { head: 0 });
        hostile.descriptor(desc, 0, descriptor(BUFFER, 11, 0, 0));
        assert_eq!(hostile.tx_fault(), RingFault::ChainTooShort { head: 0, len: 11, header: 12 });
        let most = (crate::header::LEN + MAX_FRAME_LEN) as u64;
        hostile.descriptor(desc, 0, descriptor(BUFFER, 65536, DESC_NEXT, 1));
        hostile.descriptor(desc, 1, descriptor(BUFFER, 77, 0, 0));
        assert_eq!(hostile.tx_fault(), RingFault::LengthOverflow { head: 0, len: most + 1, most });
        hostile.descriptor(desc, 1, descriptor(BUFFER, 76, 0, 0));
        assert_eq!(hostile.tx(ALL).peek(), Ok(1));
    }
}

#[test]
fn directions_are_checked() {
    for hostile in FORMATS.map(Hostile::new) {
        let desc = hostile.layout.desc;
        hostile.descriptor(desc, 0, descriptor(BUFFER, 100, DESC_NEXT, 1));
        hostile.descriptor(desc, 1, descriptor(BUFFER, 100, DESC_WRITE, 0));
        assert_eq!(hostile.tx_fault(), RingFault::WritableInTransmit { head: 0 });
        let mut rx = hostile.rx(VERSION_1 | NET_MRG_RXBUF);
        let plain = NetHeader::default();
        assert_eq!(rx.deliver_bytes(&[0; 60], &plain), Err(RingFault::ReadableInReceive { head: 0 }));
        hostile.descriptor(desc, 0, descriptor(BUFFER, 11, DESC_WRITE, 0));
        let mut rx = hostile.rx(VERSION_1 | NET_MRG_RXBUF);
        let short = RingFault::ChainTooShort { head: 0, len: 11, header: 12 };
        assert_eq!(rx.deliver_bytes(&[0; 60], &plain), Err(short));
        assert_eq!(rx.prepare(1), Err(short), "a broken queue stays broken");
    }
}

#[test]
fn indirect_tables_are_checked() {
    for hostile in FORMATS.map(Hostile::new) {
        let desc = hostile.layout.desc;
        let table = Ram::START + 0x4000;
        let with = |len, flags| {
            hostile.descriptor(desc, 0, descriptor(table, len, DESC_INDIRECT | flags, 0));
            hostile.tx_fault()
        };
        hostile.descriptor(table, 0, descriptor(table, 16, DESC_INDIRECT, 0));
        assert_eq!(with(32, 0), RingFault::NestedIndirect { head: 0 });
        assert_eq!(with(32, DESC_NEXT), RingFault::IndirectWithNext { head: 0 });
        for len in [0, 8, 17, (MAX_PARTS as u32 + 1) * 16, !15] {
            assert_eq!(with(len, 0), RingFault::IndirectTableSize { head: 0, len });
        }
        if hostile.format == SPLIT {
            hostile.descriptor(table, 0, descriptor(BUFFER, 100, DESC_NEXT, 2));
            assert_eq!(with(32, 0), RingFault::NextOutOfRange { next: 2, size: 2 });
            hostile.descriptor(table, 0, descriptor(BUFFER, 100, DESC_NEXT, 1));
            hostile.descriptor(table, 1, descriptor(BUFFER, 100, DESC_NEXT, 1));
            assert_eq!(with(32, 0), RingFault::DescriptorLoop { head: 0, size: 2 });
        }
        hostile.descriptor(desc, 0, descriptor(table + 4, 16, DESC_INDIRECT, 0));
        assert_eq!(hostile.tx_fault(), RingFault::IndirectTableMisaligned { head: 0, addr: table + 4 });
        hostile.descriptor(desc, 0, descriptor(Ram::START + RAM, 16, DESC_INDIRECT, 0));
        assert_eq!(hostile.tx_fault(), RingFault::AddressOutside { addr: Ram::START + RAM, len: 16 });
        hostile.descriptor(desc, 0, descriptor(u64::MAX - 15, 32, DESC_INDIRECT, 0));
        assert!(matches!(hostile.tx_fault(), RingFault::AddressOverflow { .. }));
        assert_eq!(hostile.tx(VERSION_1).peek(), Err(RingFault::IndirectNotNegotiated { head: 0 }));
    }
}

#[test]
fn frames_before_a_fault_are_not_lost() {
    for hostile in FORMATS.map(Hostile::new) {
        let desc = hostile.layout.desc;
        hostile.descriptor(desc, 0, descriptor(BUFFER, 100, 0, 0));
        hostile.descriptor(desc, 1, descriptor(BUFFER, 100, 0, 0));
        hostile.descriptor(desc, 2, descriptor(0, 100, 0, 0));
        hostile.available(&[0, 1, 2]);
        let mut tx = hostile.tx(ALL);
        assert_eq!(tx.peek(), Ok(2));
        tx.complete(2);
        assert_eq!(tx.peek(), Err(RingFault::AddressOutside { addr: 0, len: 100 }));
        assert_eq!(tx.position() & !(1 << 15), 2);
    }
}

#[test]
fn a_packed_queue_takes_no_more_descriptors_than_it_has() {
    let hostile = Hostile::new(RING_PACKED);
    let desc = hostile.layout.desc;
    for index in 0..SIZE {
        hostile.descriptor(desc, index, descriptor(BUFFER, 100, DESC_NEXT, 0));
    }
    assert_eq!(hostile.tx_fault(), RingFault::DescriptorLoop { head: 0, size: SIZE });
    for index in 0..SIZE {
        hostile.descriptor(desc, index, descriptor(BUFFER, 100, DESC_WRITE, 0));
    }
    let mut rx = hostile.rx(VERSION_1);
    assert_eq!(rx.prepare(usize::from(SIZE) + 1), Ok(()), "each once");
    hostile.descriptor(desc, 0, descriptor(BUFFER, 100, DESC_WRITE, 0));
    assert_eq!(rx.prepare(usize::from(SIZE) + 1), Ok(()), "not yet of the next turn");
    hostile.poke(desc + packed::id_at(0) as u64 + 2, &(DESC_WRITE | DESC_USED).to_le_bytes());
    let again = RingFault::TooManyAvailable { index: 0, size: SIZE };
    assert_eq!(rx.prepare(usize::from(SIZE) + 1), Err(again));
    assert_eq!(rx.deliver_bytes(&[0; 60], &NetHeader::default()), Ok(Delivery::Stored), "it had come before");
}

#[test]
fn a_packed_chain_does_not_reach_into_descriptors_of_the_device() {
    let hostile = Hostile::new(RING_PACKED);
    let desc = hostile.layout.desc;
    hostile.descriptor(desc, 0, descriptor(BUFFER, 100, DESC_WRITE, 0));
    let mut rx = hostile.rx(VERSION_1);
    assert_eq!(rx.prepare(1), Ok(()));
    for index in 1..SIZE {
        hostile.descriptor(desc, index, descriptor(BUFFER, 100, DESC_WRITE | DESC_NEXT, 0));
    }
    assert_eq!(rx.prepare(2), Err(RingFault::DescriptorLoop { head: 1, size: SIZE }));
}

#[test]
fn invalid_queue_configurations_are_refused() {
    for hostile in FORMATS.map(Hostile::new) {
        let good = || hostile.config(ALL);
        let refused = |config: QueueConfig| TxQueue::new(hostile.ram.memory(), &config).unwrap_err();
        for size in [0, 40000] {
            let error =
                if hostile.format == SPLIT { QueueError::Size(size) } else { QueueError::PackedSize(size) };
            assert_eq!(refused(QueueConfig { size, ..good() }), error);
        }
        assert_eq!(refused(QueueConfig { features: INDIRECT_DESC, ..good() }), QueueError::Legacy);
        let end = Ram::START + RAM;
        let unmapped = |config| assert!(matches!(refused(config), QueueError::Unmapped { .. }));
        unmapped(QueueConfig { desc: 0, ..good() });
        unmapped(QueueConfig { used: end - 2, ..good() });
        unmapped(QueueConfig { avail: u64::MAX, ..good() });
        let misaligned = |config| assert!(matches!(refused(config), QueueError::Misaligned { .. }));
        misaligned(QueueConfig { desc: good().desc + 8, ..good() });
        misaligned(QueueConfig { used: good().used + 2, ..good() });
    }
    let split = Hostile::new(SPLIT);
    let three = QueueConfig { size: 3, ..split.config(ALL) };
    assert_eq!(TxQueue::new(split.ram.memory(), &three).unwrap_err(), QueueError::Size(3));
    let packed = Hostile::new(RING_PACKED);
    let three = QueueConfig { size: 3, ..packed.config(ALL) };
    assert!(TxQueue::new(packed.ram.memory(), &three).is_ok(), "any size");
    let beyond = QueueConfig { start: Start::At(SIZE), ..packed.config(ALL) };
    let error = TxQueue::new(packed.ram.memory(), &beyond).unwrap_err();
    assert_eq!(error, QueueError::Position { index: SIZE, size: SIZE });
    let unknown = QueueConfig { start: Start::Recover, ..packed.config(ALL) };
    assert_eq!(TxQueue::new(packed.ram.memory(), &unknown).unwrap_err(), QueueError::PositionUnknown);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Random content of the rings yields frames or a fault, and used entries only for available
    /// chains.
    #[test]
    fn garbage_is_a_frame_or_a_fault(
        garbage in Garbage::any(),
        recover: bool,
        format in proptest::sample::select([SPLIT, IN_ORDER, RING_PACKED, RING_PACKED | IN_ORDER].as_slice()),
    ) {
        let hostile = Hostile::new(format & RING_PACKED);
        garbage.write(&hostile);

        let mut config = hostile.config(ALL | NET_MRG_RXBUF | format);
        if recover && format & RING_PACKED == 0 {
            config.start = Start::Recover;
        }
        let mut tx = TxQueue::new(hostile.ram.memory(), &config).unwrap();
        let start = tx.position();
        let mut copy = vec![0; MAX_FRAME_LEN];
        while let Ok(count) = tx.peek() {
            for index in 0..count {
                let frame = tx.frame(index);
                prop_assert_eq!(frame.copy_to(&mut copy), frame.len());
            }
            tx.complete(count);
            if count == 0 {
                break;
            }
        }
        // A split queue that recovers starts at the used index, which garbage may have overwritten.
        let end = tx.position();
        let moved = if format & RING_PACKED == 0 { end.wrapping_sub(start) } else { end & !(1 << 15) };
        prop_assert!(moved <= SIZE);

        let mut rx = RxQueue::new(hostile.ram.memory(), &config).unwrap();
        let mut tries = 0;
        while let Ok(Delivery::Stored) = rx.deliver_bytes(&copy[..1000 * tries % 4000], &NetHeader::default()) {
            rx.publish();
            tries += 1;
            prop_assert!(tries <= 2 * usize::from(SIZE));
        }
    }
}
