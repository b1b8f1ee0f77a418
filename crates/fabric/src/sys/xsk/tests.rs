//! Both sides against a kernel that is played by a file.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
};
use taut_api::fabric::message::{XdpMemory, XdpRing, XdpSocket};

use super::chunks::Chunks;
use super::ring::{Descriptor, Ring};
use super::{Damaged, Receiver, Sender};

const CHUNKS: u32 = 8;
const RING: XdpRing = XdpRing { entries: 16, producer: 0, consumer: 64, flags: 128, first: 192 };
const MEMORY: XdpMemory = XdpMemory { chunk: 2048, receiving: CHUNKS, sending: CHUNKS, first: 8192 };
const SETUP: XdpSocket = XdpSocket {
    receive: RING,
    fill: RING,
    transmit: RING,
    completion: RING,
    memory: MEMORY,
    zero_copy: false,
    other_queues: 0,
};
/// Offset in a chunk at which the kernel puts frames.
const HEADROOM: u64 = 256;

/// The kernel's ends of the rings, in a file with holes in place of a socket.
struct Kernel {
    socket: OwnedFd,
    memory: OwnedFd,
    receive: Ring<Descriptor>,
    fill: Ring<u64>,
    transmit: Ring<Descriptor>,
    completion: Ring<u64>,
    /// Chunks of frames that are being sent.
    sending: VecDeque<u64>,
}

impl Kernel {
    fn new() -> Self {
        let file = |len| {
            let file = memfd_create("xsk", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&file, len).unwrap();
            file
        };
        let socket = file(XDP_UMEM_PGOFF_COMPLETION_RING + 4096);
        let memory = file(MEMORY.bytes());
        Self {
            receive: Ring::map(&socket, XDP_PGOFF_RX_RING, RING).unwrap(),
            fill: Ring::map(&socket, XDP_UMEM_PGOFF_FILL_RING, RING).unwrap(),
            transmit: Ring::map(&socket, XDP_PGOFF_TX_RING, RING).unwrap(),
            completion: Ring::map(&socket, XDP_UMEM_PGOFF_COMPLETION_RING, RING).unwrap(),
            sending: VecDeque::new(),
            socket,
            memory,
        }
    }

    fn chunks(&self) -> Arc<Chunks> {
        Arc::new(Chunks::map(&self.memory, MEMORY).unwrap())
    }

    fn receiver(&self) -> Receiver {
        Receiver::map(&self.socket, &SETUP, self.chunks()).unwrap()
    }

    fn sender(&self) -> Sender {
        Sender::map(&self.socket, &SETUP, self.chunks()).unwrap()
    }

    /// Receives a frame. Returns `false` if there is no chunk for it.
    fn receive(&mut self, frame: &[u8]) -> bool {
        let at = self.fill.consumer().load(Acquire);
        if self.fill.ready(at).unwrap() == 0 {
            return false;
        }
        let address = self.fill.read(at) + HEADROOM;
        let file = rustix::io::pwrite(&self.memory, frame, MEMORY.first + address);
        assert_eq!(file, Ok(frame.len()));
        let index = self.receive.producer().load(Acquire);
        self.receive.write(index, Descriptor { address, len: frame.len() as u32, options: 0 });
        self.receive.publish(index.wrapping_add(1));
        self.fill.release(at.wrapping_add(1));
        true
    }

    /// Begins to send a frame, and returns it.
    fn send(&mut self) -> Option<Vec<u8>> {
        let at = self.transmit.consumer().load(Acquire);
        if self.transmit.ready(at).unwrap() == 0 {
            return None;
        }
        let Descriptor { address, len, .. } = self.transmit.read(at);
        self.transmit.release(at.wrapping_add(1));
        let mut frame = vec![0; len as usize];
        rustix::io::pread(&self.memory, &mut frame, MEMORY.first + address).unwrap();
        assert!(!self.sending.contains(&address), "the chunk is on loan");
        self.sending.push_back(address);
        Some(frame)
    }

    /// Gives the chunk of the oldest frame that was sent back.
    fn complete(&mut self) {
        if let Some(address) = self.sending.pop_front() {
            let index = self.completion.producer().load(Acquire);
            self.completion.write(index, address);
            self.completion.publish(index.wrapping_add(1));
        }
    }
}

fn read(receiver: &mut Receiver) -> Option<Vec<u8>> {
    let frame = receiver.first().unwrap()?.to_vec();
    receiver.advance();
    Some(frame)
}

fn put(sender: &mut Sender, number: u8) -> bool {
    sender.put(|space| {
        space[..60].fill(number);
        60
    })
}

#[test]
fn frames_are_received_in_their_order_round_and_round() {
    let mut kernel = Kernel::new();
    let mut receiver = kernel.receiver();
    assert_eq!(receiver.first(), Ok(None));
    assert_eq!(receiver.missing(), 0);
    for round in 0..100_u8 {
        for part in 0..3 {
            assert!(kernel.receive(&[round, part]));
        }
        assert_eq!(receiver.first(), Ok(Some(&[round, 0][..])), "it stays until the reader goes on");
        for part in 0..3 {
            assert_eq!(read(&mut receiver), Some(vec![round, part]));
        }
        assert_eq!(read(&mut receiver), None);
        assert!(!receiver.release());
        assert_eq!(receiver.missing(), 0);
    }
}

#[test]
fn a_full_receiver_loses_nothing_that_it_has() {
    let mut kernel = Kernel::new();
    let mut receiver = kernel.receiver();
    for number in 0..CHUNKS as u8 {
        assert!(kernel.receive(&[number; 20]));
    }
    assert!(!kernel.receive(&[99; 20]));
    for number in 0..CHUNKS as u8 {
        assert_eq!(read(&mut receiver), Some(vec![number; 20]));
    }
    assert!(!kernel.receive(&[99; 20]), "nothing was given back");
    receiver.release();
    assert!(kernel.receive(&[99; 20]));
    assert_eq!(read(&mut receiver), Some(vec![99; 20]));
}

#[test]
fn a_successor_reads_what_was_not_given_back_and_completes_what_was() {
    let mut kernel = Kernel::new();
    let mut number = 0;
    for round in 0..200 {
        let mut receiver = kernel.receiver();
        assert_eq!(receiver.missing(), 0, "{round}");
        for _ in 0..round % 5 {
            assert!(kernel.receive(&[number; 30]));
            number = number.wrapping_add(1);
        }
        let first = number.wrapping_sub(round % 5);
        for at in 0..round % 3 % (round % 5 + 1) {
            assert_eq!(read(&mut receiver), Some(vec![first.wrapping_add(at); 30]));
        }
        // The process ends here, or between the three stores of `release`.
        let (given, consumed) =
            (kernel.fill.producer().load(Acquire), kernel.receive.consumer().load(Acquire));
        let keeps = round % 2 == 0;
        let read_by_first = round % 3 % (round % 5 + 1);
        if keeps {
            receiver.release();
            match round % 6 {
                0 => kernel.fill.publish(given),
                2 => {
                    kernel.fill.publish(given);
                    kernel.receive.release(consumed);
                }
                _ => {}
            }
        }
        drop(receiver);
        let mut successor = kernel.receiver();
        assert_eq!(successor.missing(), 0, "{round}");
        let from = if keeps { read_by_first } else { 0 };
        for at in from..round % 5 {
            assert_eq!(read(&mut successor), Some(vec![first.wrapping_add(at); 30]), "{round}");
        }
        assert_eq!(read(&mut successor), None);
        successor.release();
    }
}

#[test]
fn chunks_come_back_after_their_frames_were_sent() {
    let mut kernel = Kernel::new();
    let mut sender = kernel.sender();
    for round in 0..50_u8 {
        for _ in 0..CHUNKS {
            assert!(put(&mut sender, round));
        }
        assert!(!put(&mut sender, round), "no chunk is free");
        assert_eq!(kernel.send(), None, "nothing was shown");
        sender.publish();
        assert_eq!(sender.waiting(), CHUNKS);
        while let Some(frame) = kernel.send() {
            assert_eq!(frame, [round; 60]);
        }
        assert_eq!((sender.waiting(), sender.missing()), (0, 0));
        sender.collect().unwrap();
        assert!(!put(&mut sender, round), "the kernel has them");
        while !kernel.sending.is_empty() {
            kernel.complete();
        }
        sender.collect().unwrap();
        assert_eq!(sender.free(), CHUNKS);
    }
}

#[test]
fn a_successor_finds_every_chunk_of_frames_to_be_sent() {
    let mut kernel = Kernel::new();
    // Near the end of the indices.
    for ring in [kernel.transmit.producer(), kernel.transmit.consumer()] {
        ring.store(u32::MAX - 100, Release);
    }
    for ring in [kernel.completion.producer(), kernel.completion.consumer()] {
        ring.store(u32::MAX - 100, Release);
    }
    let mut number = 0;
    for round in 0..300 {
        let mut sender = kernel.sender();
        assert_eq!(sender.missing(), 0, "{round}");
        let on_loan = kernel.sending.len() as u32 + sender.waiting();
        assert_eq!(sender.free(), CHUNKS - on_loan, "{round}");
        for _ in 0..round % 4 {
            put(&mut sender, number);
            number = (number + 1) % 200;
        }
        sender.publish();
        for _ in 0..round % 3 {
            kernel.send();
        }
        for _ in 0..round % 5 % 3 {
            kernel.complete();
        }
        let completed = kernel.completion.consumer().load(Acquire);
        if round % 2 == 0 {
            sender.collect().unwrap();
        }
        if round % 4 == 0 {
            // The process ends before it has moved the index.
            kernel.completion.release(completed);
        }
        // These are never shown.
        for _ in 0..round % 6 {
            put(&mut sender, 0xee);
        }
    }
    while kernel.send().is_some_and(|frame| frame[0] != 0xee) {
        kernel.complete();
    }
    while !kernel.sending.is_empty() {
        kernel.complete();
    }
    let sender = kernel.sender();
    assert_eq!((sender.free(), sender.missing()), (CHUNKS, 0));
}

#[test]
fn impossible_indices_and_addresses_are_damage() {
    let kernel = Kernel::new();
    let mut receiver = kernel.receiver();
    for (address, len) in
        [(u64::from(CHUNKS) * 2048, 60), (u64::MAX, 60), (u64::MAX - 59, 60), (2048 - 59, 60), (0, u32::MAX)]
    {
        let index = kernel.receive.producer().load(Acquire);
        kernel.receive.write(index, Descriptor { address, len, options: 0 });
        kernel.receive.publish(index + 1);
        assert_eq!(receiver.first(), Err(Damaged), "{address} {len}");
        receiver.advance();
    }
    let other = Kernel::new();
    let mut receiver = other.receiver();
    other.receive.publish(17);
    assert_eq!(receiver.first(), Err(Damaged));
    assert!(Receiver::map(&other.socket, &SETUP, other.chunks()).is_err());

    let mut sender = kernel.sender();
    assert!(put(&mut sender, 1));
    for address in [0, u64::from(CHUNKS) * 2 * 2048, u64::MAX] {
        kernel.completion.write(0, address);
        kernel.completion.publish(1);
        assert_eq!(sender.collect(), Err(Damaged), "{address}");
    }
    kernel.completion.publish(17);
    assert_eq!(sender.collect(), Err(Damaged));
    // A chunk that comes back twice is free once.
    kernel.completion.publish(0);
    let chunk = u64::from(CHUNKS) * 2048;
    kernel.completion.write(0, chunk);
    kernel.completion.write(1, chunk);
    kernel.completion.publish(2);
    sender.publish();
    sender.collect().unwrap();
    assert_eq!(sender.free(), CHUNKS);
}

#[test]
fn impossible_shapes_are_refused() {
    let kernel = Kernel::new();
    for ring in [
        XdpRing { entries: 15, ..RING },
        XdpRing { entries: 0, ..RING },
        XdpRing { entries: 1 << 20, ..RING },
        XdpRing { entries: 4, ..RING },
        XdpRing { producer: 2, ..RING },
        XdpRing { consumer: u64::MAX - 3, ..RING },
        XdpRing { flags: 4096, ..RING },
        XdpRing { first: 193, ..RING },
        XdpRing { first: u64::MAX - 15, ..RING },
    ] {
        let setup = XdpSocket { receive: ring, transmit: ring, ..SETUP };
        assert!(Receiver::map(&kernel.socket, &setup, kernel.chunks()).is_err(), "{ring:?}");
        assert!(Sender::map(&kernel.socket, &setup, kernel.chunks()).is_err(), "{ring:?}");
    }
    for memory in [
        XdpMemory { chunk: 1024, ..MEMORY },
        XdpMemory { chunk: 3000, ..MEMORY },
        XdpMemory { receiving: 0, ..MEMORY },
        XdpMemory { sending: u32::MAX, ..MEMORY },
        XdpMemory { first: 4096, ..MEMORY },
        XdpMemory { first: 8200, ..MEMORY },
        XdpMemory { first: 1 << 40, ..MEMORY },
        XdpMemory { sending: CHUNKS + 1, ..MEMORY },
    ] {
        assert!(Chunks::map(&kernel.memory, memory).is_err(), "{memory:?}");
    }
    let chunks = Arc::new(Chunks::map(&kernel.memory, MEMORY.receiving_only()).unwrap());
    assert!(Receiver::map(&kernel.socket, &SETUP, Arc::clone(&chunks)).is_ok());
    assert!(Sender::map(&kernel.socket, &SETUP, chunks).is_err(), "no chunk is for frames to be sent");
}
