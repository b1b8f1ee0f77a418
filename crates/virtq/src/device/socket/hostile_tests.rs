//! A driver that breaks the rules: each violation has its fault, and random rings never cause more
//! than a fault.

use proptest::prelude::*;

use super::tests::in_flight;
use super::*;
use crate::device::hostile_driver::{BUFFER, Garbage, Hostile, SIZE, SPLIT, descriptor};
use crate::fault::RingFault;
use crate::features::{IN_ORDER, RING_PACKED, VERSION_1};
use crate::ring::{DESC_WRITE, Start, split};
use crate::socket_header::{LEN, MAX_PAYLOAD, SocketHeader};

/// A split queue whose areas are written by hand.
struct HostileSocket {
    queue: Hostile,
}

impl HostileSocket {
    fn new() -> Self {
        Self { queue: Hostile::new(SPLIT) }
    }

    /// Makes descriptor `index` a chain of `len` bytes.
    fn chain(&self, index: u16, len: u32, flags: u16) {
        self.queue.descriptor(self.queue.layout.desc, index, descriptor(BUFFER, len, flags, 0));
    }

    fn config(&self) -> QueueConfig {
        self.queue.layout.config(RING_FEATURES, Start::At(0))
    }

    fn start_tx(&self, config: &QueueConfig, log: InFlight) -> Result<SocketTx, QueueError> {
        SocketTx::new(self.queue.ram.memory(), config, log)
    }

    fn tx(&self) -> SocketTx {
        self.start_tx(&self.config(), in_flight()).unwrap()
    }

    fn rx(&self) -> SocketRx {
        SocketRx::new(self.queue.ram.memory(), &self.config()).unwrap()
    }
}

impl std::ops::Deref for HostileSocket {
    type Target = Hostile;

    fn deref(&self) -> &Hostile {
        &self.queue
    }
}

#[test]
fn a_chain_shorter_than_a_header_is_a_fault() {
    let hostile = HostileSocket::new();
    hostile.chain(0, 44, 0);
    hostile.chain(1, 43, 0);
    hostile.available(&[0, 1, 0]);
    let mut tx = hostile.tx();
    assert!(tx.take().unwrap().is_some_and(|packet| packet.payload == 0));
    let fault = RingFault::ChainTooShort { head: 1, len: 43, header: 44 };
    assert_eq!((tx.take(), tx.take()), (Err(fault), Err(fault)), "a broken queue stays broken");
    tx.give_back(0);
    tx.publish();
    assert_eq!(tx.position(), 1);

    hostile.chain(0, 45, DESC_WRITE);
    hostile.chain(1, 44, DESC_WRITE);
    let mut rx = hostile.rx();
    assert_eq!(rx.room(), Ok(Some(1)));
    assert_eq!(rx.deliver(SocketHeader::default(), [Piece::Bytes(&[1, 2])]), Ok(1));
    let fault = RingFault::ChainTooShort { head: 1, len: 44, header: 45 };
    assert_eq!((rx.room(), rx.room()), (Err(fault), Err(fault)), "a broken queue stays broken");
    assert_eq!(rx.deliver(SocketHeader::default(), []), Err(fault));
}

#[test]
fn a_packet_longer_than_linux_sends_is_a_fault() {
    let hostile = HostileSocket::new();
    let most = LEN as u32 + MAX_PAYLOAD;
    hostile.chain(0, most, 0);
    hostile.chain(1, most + 1, 0);
    hostile.available(&[0, 1]);
    let mut tx = hostile.tx();
    assert!(tx.take().unwrap().is_some_and(|packet| packet.payload == MAX_PAYLOAD));
    let fault = RingFault::LengthOverflow { head: 1, len: u64::from(most) + 1, most: most.into() };
    assert_eq!(tx.take(), Err(fault));
}

#[test]
fn reads_end_with_the_shorter_of_header_and_chain() {
    let hostile = HostileSocket::new();
    hostile.chain(0, 144, 0);
    hostile.available(&[0]);
    for (said, read) in [(0, 0), (40, 40), (100, 100), (101, 100), (u32::MAX, 100)] {
        hostile.poke(BUFFER, &SocketHeader { len: said, ..SocketHeader::default() }.to_bytes());
        let mut tx = hostile.tx();
        let packet = tx.take().unwrap().unwrap();
        assert_eq!((packet.header.len, packet.payload), (said, 100));
        // Later writes of the guest have no effect.
        hostile.poke(BUFFER, &SocketHeader { len: 77, ..SocketHeader::default() }.to_bytes());
        assert_eq!(tx.read(0, 0, &mut [0; 200]), read);
    }
}

#[test]
fn a_packet_that_the_device_has_cannot_be_made_available_again() {
    let hostile = HostileSocket::new();
    hostile.chain(0, 100, 0);
    hostile.available(&[0, 0]);
    let again = Err(RingFault::AlreadyTaken { head: 0 });
    let mut tx = hostile.tx();
    assert!(tx.take().is_ok());
    assert_eq!(tx.take(), again);

    let mut tx = hostile.tx();
    assert!(tx.take().is_ok());
    tx.give_back(0);
    assert_eq!(tx.take(), again, "the driver cannot know that it was given back");

    let mut tx = hostile.tx();
    assert!(tx.take().is_ok());
    tx.give_back(0);
    tx.publish();
    assert!(
        tx.take().is_ok_and(|packet| packet.is_some()),
        "after the publication the driver may make it available again"
    );

    // The same for a packet that a predecessor has taken.
    let hostile = HostileSocket::new();
    hostile.chain(0, 100, 0);
    hostile.available(&[0, 0]);
    let log = in_flight();
    let new = |start| {
        let config = QueueConfig { start, ..hostile.config() };
        hostile.start_tx(&config, log.clone()).unwrap()
    };
    assert!(new(Start::At(0)).take().is_ok());
    let mut tx = new(Start::Recover);
    assert!(tx.take().is_ok_and(|packet| packet.is_some()));
    assert_eq!(tx.take(), again);
}

#[test]
fn indices_stay_in_the_ring() {
    let hostile = HostileSocket::new();
    hostile.chain(0, 100, 0);
    hostile.available(&[SIZE]);
    assert_eq!(hostile.tx().take(), Err(RingFault::HeadOutOfRange { head: SIZE, size: SIZE }));
    hostile.available(&[u16::MAX]);
    assert_eq!(hostile.tx().take(), Err(RingFault::HeadOutOfRange { head: u16::MAX, size: SIZE }));
    hostile.available_index(SIZE + 1);
    let jumped = RingFault::AvailIndexJumped { from: 0, to: SIZE + 1, size: SIZE };
    assert_eq!(hostile.tx().take(), Err(jumped));
    assert_eq!(hostile.rx().room(), Err(jumped));
    hostile.available(&[0, 1, 2]);
    let mut tx = hostile.tx();
    assert!(tx.take().is_ok());
    hostile.available(&[0, 1]);
    hostile.chain(1, 100, 0);
    assert!(tx.take().is_ok(), "the index is not looked at while entries are known");
    hostile.available_index(1);
    hostile.chain(2, 100, 0);
    hostile.poke(hostile.layout.avail + 8, &2_u16.to_le_bytes());
    assert!(tx.take().is_ok());
    assert_eq!(
        tx.take(),
        Err(RingFault::AvailIndexJumped { from: 3, to: 1, size: SIZE }),
        "the index cannot go back either"
    );
}

#[test]
fn invalid_queue_configurations_are_refused() {
    let hostile = HostileSocket::new();
    for (features, error) in [
        (RING_PACKED | VERSION_1, QueueError::Feature("RING_PACKED")),
        (IN_ORDER | VERSION_1, QueueError::Feature("IN_ORDER")),
        (0, QueueError::Legacy),
    ] {
        let config = QueueConfig { features, ..hostile.config() };
        assert_eq!(hostile.start_tx(&config, in_flight()).unwrap_err(), error);
        assert_eq!(SocketRx::new(hostile.ram.memory(), &config).unwrap_err(), error);
    }
    for size in [0, 3, 2048] {
        let config = QueueConfig { size, ..hostile.config() };
        let error = hostile.start_tx(&config, in_flight()).unwrap_err();
        assert_eq!(error, QueueError::Size(size));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Random content of the rings yields packets or a fault, and each head once.
    #[test]
    fn garbage_is_a_packet_or_a_fault(
        garbage in Garbage::any(),
        used in prop_oneof![9 => Just(0u16), 1 => any::<u16>()],
        recover: bool,
    ) {
        let hostile = HostileSocket::new();
        garbage.write(&hostile);
        hostile.poke(hostile.layout.used + split::INDEX as u64, &used.to_le_bytes());

        let log = in_flight();
        let new = |start| {
            let config = QueueConfig { start, ..hostile.config() };
            hostile.start_tx(&config, log.clone()).unwrap()
        };
        let mut tx = new(if recover { Start::Recover } else { Start::At(0) });
        let mut out = vec![0; MAX_PAYLOAD as usize];
        let mut taken = Vec::new();
        let mut lens = Vec::new();
        while let Ok(Some(packet)) = tx.take() {
            prop_assert!(!taken.contains(&packet.head));
            let readable = packet.payload.min(packet.header.len) as usize;
            prop_assert_eq!(tx.read(packet.head, 0, &mut out), readable);
            taken.push(packet.head);
            lens.push(readable);
        }
        prop_assert!(tx.taken().eq(taken.iter().copied()));
        let mut again = new(Start::Recover);
        let mut found = Vec::new();
        while let Ok(Some(packet)) = again.take() {
            found.push(packet.head);
        }
        found.truncate(taken.len());
        // With a wrong used index the order may be wrong.
        if used == 0 {
            prop_assert_eq!(&found, &taken);
        }
        found.sort_unstable();
        let mut sorted = taken.clone();
        sorted.sort_unstable();
        prop_assert_eq!(found, sorted);

        let mut rx = hostile.rx();
        let mut tries = 0;
        while let Ok(Some(room)) = rx.room() {
            let pieces = taken.iter().map(|&head| Piece::Packet { from: &tx, head, offset: 0, len: 500 });
            let sum: usize = lens.iter().map(|&len| len.min(500)).sum();
            prop_assert_eq!(rx.deliver(SocketHeader::default(), pieces), Ok(room.min(sum as u32)));
            rx.publish();
            tries += 1;
            prop_assert!(tries <= 2 * usize::from(SIZE));
            // The delivery may overwrite the rings, and packets with them.
            lens = taken.iter().map(|&head| tx.read(head, 0, &mut out)).collect();
        }
    }
}
