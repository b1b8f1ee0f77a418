//! A guest's driver, which can also do what no real driver does.

use std::collections::VecDeque;

use taut_virtq::device::socket::RING_FEATURES;
use taut_virtq::driver::{Payload, QueueLayout, Ram, Shape, SocketRxDriver, SocketTxDriver, UsedFault};
use taut_virtq::socket_header::{LEN, SocketHeader};
use taut_virtq::{QueueConfig, Start};

/// Flag of a descriptor (virtio 1.2, 2.7.5) that points to an indirect table.
const DESC_INDIRECT: u8 = 4;

/// Sizes of a guest's rings, buffers and memory.
#[derive(Debug, Clone, Copy)]
pub struct Rings {
    /// Entries of each ring.
    pub entries: u16,
    /// Payload bytes of a receive buffer.
    pub buffer: u32,
    /// Largest payload of a sent packet in bytes.
    pub payload: u32,
    /// Guest memory for all of it in bytes.
    pub ram: u64,
}

/// A guest's driver.
#[derive(Debug)]
pub struct Driver {
    /// The guest's context ID.
    pub cid: u32,
    /// Packets that have arrived.
    pub inbox: VecDeque<(SocketHeader, Vec<u8>)>,
    /// The driver takes nothing out of its receive ring.
    pub stuck: bool,
    /// The rings have been written to from outside the driver, so their contents may be invalid.
    pub poked: bool,
    /// Number of ring entries that the front end announces.
    pub entries: u16,
    pub(super) ram: Ram,
    pub(super) rings: Rings,
    layouts: [QueueLayout; 2],
    tx: SocketTxDriver,
    rx: SocketRxDriver,
}

impl Driver {
    /// Creates a driver with new rings and all receive buffers posted.
    pub fn new(cid: u32, rings: Rings) -> Self {
        let mut ram = Ram::new(rings.ram).unwrap();
        let layouts = [(); 2].map(|()| QueueLayout::allocate(&mut ram, rings.entries).unwrap());
        let rx = SocketRxDriver::new(&mut ram, layouts[0], RING_FEATURES, Shape::Whole, rings.buffer);
        let tx = SocketTxDriver::new(&mut ram, layouts[1], RING_FEATURES, Shape::Apart, rings.payload);
        let (mut rx, tx) = (rx.unwrap().unwrap(), tx.unwrap().unwrap());
        rx.ring().publish();
        Self {
            cid,
            inbox: VecDeque::new(),
            stuck: false,
            poked: false,
            entries: rings.entries,
            ram,
            rings,
            layouts,
            tx,
            rx,
        }
    }

    /// Sends a packet; the length in its header becomes that of the payload. Returns `false` if the
    /// ring is full.
    pub fn send(&mut self, header: SocketHeader, payload: &[u8]) -> bool {
        self.reclaim();
        self.send_only(header, payload)
    }

    /// Sends a packet without reclaiming those that the guest has got back.
    pub fn send_only(&mut self, header: SocketHeader, payload: &[u8]) -> bool {
        let sent = self.tx.send(header, &[payload]);
        self.tx.ring().publish();
        sent
    }

    /// Asks to be interrupted for the next packet that the guest gets back.
    pub fn arm_returns(&mut self) {
        self.tx.ring().arm_interrupts();
    }

    /// Number of packets that the guest has not got back.
    pub fn outstanding(&mut self) -> usize {
        self.reclaim();
        usize::from(self.rings.entries) - self.tx.ring().free()
    }

    fn reclaim(&mut self) {
        let reclaimed = self.tx.reclaim();
        self.sane(reclaimed);
    }

    /// Checks that what the device returned is valid, unless the rings were written to.
    fn sane<T>(&self, found: Result<T, UsedFault>) -> Option<T> {
        assert!(self.poked || found.is_ok(), "{:?}", found.err());
        found.ok()
    }

    /// Takes the packets that have arrived. Returns `true` if there were any.
    pub fn receive(&mut self) -> bool {
        let before = self.inbox.len();
        let take = |header, payload: &mut Payload<'_>| {
            let mut bytes = vec![0; payload.left()];
            payload.read(&mut bytes);
            (header, bytes)
        };
        while !self.stuck {
            let received = self.rx.receive(take);
            let Some(Some(packet)) = self.sane(received) else { break };
            self.inbox.push_back(packet);
        }
        self.rx.ring().publish();
        self.inbox.len() != before
    }

    /// Tells whether the device wants a kick for what was made available (receive, transmit).
    pub(super) fn kicks(&mut self) -> [bool; 2] {
        [self.rx.ring().needs_kick(), self.tx.ring().needs_kick()]
    }

    /// Configuration of queue 0 (receive) or 1 (transmit), as a front end announces it.
    pub(super) fn config(&self, queue: usize, start: Start) -> QueueConfig {
        QueueConfig { size: self.entries, ..self.layouts[queue].config(RING_FEATURES, start) }
    }

    /// Writes a word into an area of queue 0 or 1: its descriptors (0), its available ring (1) or
    /// its used ring (2), at a byte below 4096.
    pub fn poke(&mut self, queue: usize, area: usize, at: u16, value: u16) {
        let QueueLayout { desc, avail, used, .. } = self.layouts[queue];
        self.poked = true;
        let addr = [desc, avail, used][area] + u64::from(at).min(4094);
        self.ram.memory().write(addr, &value.to_le_bytes()).unwrap();
    }

    /// Changes the header of the packet at descriptor `head` of the transmit ring, whether the
    /// driver or the device owns it.
    pub fn forge(&mut self, head: u16, change: impl FnOnce(SocketHeader) -> SocketHeader) {
        let memory = self.ram.memory();
        let mut addr = self.layouts[1].desc + 16 * u64::from(head % self.rings.entries);
        // Follow the descriptor, and the first one of its indirect table, as far as they are valid.
        for _ in 0..2 {
            let mut bytes = [0; 16];
            let _ = memory.read(addr, &mut bytes);
            addr = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            if bytes[12] & DESC_INDIRECT == 0 {
                break;
            }
        }
        let mut header = [0; LEN];
        if memory.read(addr, &mut header).is_ok() {
            let _ = memory.write(addr, &change(SocketHeader::from_bytes(&header)).to_bytes());
        }
    }
}
