//! A guest's driver, which can also do what no driver does.

use std::collections::VecDeque;

use taut_virtq::device::socket::RING_FEATURES;
use taut_virtq::driver::{Payload, QueueLayout, Ram, Shape, SocketRxDriver, SocketTxDriver, UsedFault};
use taut_virtq::socket_header::{LEN, SocketHeader};
use taut_virtq::{QueueConfig, Start};

/// In the flags of a descriptor (virtio 1.2, 2.7.5): it is that of a table.
const DESC_INDIRECT: u8 = 4;

/// The rings of a guest.
#[derive(Debug, Clone, Copy)]
pub struct Rings {
    /// Of each ring.
    pub entries: u16,
    /// Payload bytes of a receive buffer.
    pub buffer: u32,
    /// Most payload bytes of a packet that is sent.
    pub payload: u32,
    /// Bytes of memory for all of it.
    pub ram: u64,
}

/// A guest's driver.
#[derive(Debug)]
pub struct Driver {
    /// The guest's context ID.
    pub cid: u32,
    /// What has arrived.
    pub inbox: VecDeque<(SocketHeader, Vec<u8>)>,
    /// It takes nothing out of its receive ring.
    pub stuck: bool,
    /// Its rings have been written to besides: what it finds there may make no sense.
    pub poked: bool,
    /// How many entries its front end says that its rings have.
    pub entries: u16,
    pub(super) ram: Ram,
    pub(super) rings: Rings,
    layouts: [QueueLayout; 2],
    tx: SocketTxDriver,
    rx: SocketRxDriver,
}

impl Driver {
    /// With new rings, and every receive buffer posted.
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

    /// Sends a packet; its header's length becomes the payload's. False if the ring is full.
    pub fn send(&mut self, header: SocketHeader, payload: &[u8]) -> bool {
        self.reclaim();
        self.send_only(header, payload)
    }

    /// The same by a guest that does not look what it has got back.
    pub fn send_only(&mut self, header: SocketHeader, payload: &[u8]) -> bool {
        let sent = self.tx.send(header, &[payload]);
        self.tx.ring().publish();
        sent
    }

    /// It wants to be interrupted for the next packet that it gets back.
    pub fn arm_returns(&mut self) {
        self.tx.ring().arm_interrupts();
    }

    /// Packets that it has not got back.
    pub fn outstanding(&mut self) -> usize {
        self.reclaim();
        usize::from(self.rings.entries) - self.tx.ring().free()
    }

    fn reclaim(&mut self) {
        let reclaimed = self.tx.reclaim();
        self.sane(reclaimed);
    }

    /// What the device returned makes sense, unless the rings were written to.
    fn sane<T>(&self, found: Result<T, UsedFault>) -> Option<T> {
        assert!(self.poked || found.is_ok(), "{:?}", found.err());
        found.ok()
    }

    /// Takes what has arrived; `true` if there was anything.
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

    /// Does the device want to be told of what was made available (receive, transmit)?
    pub(super) fn kicks(&mut self) -> [bool; 2] {
        [self.rx.ring().needs_kick(), self.tx.ring().needs_kick()]
    }

    /// The device end of queue 0 (receive) or 1 (transmit), as a front end tells of it.
    pub(super) fn config(&self, queue: usize, start: Start) -> QueueConfig {
        QueueConfig { size: self.entries, ..self.layouts[queue].config(RING_FEATURES, start) }
    }

    /// Writes a word into a ring: of queue 0 or 1, its descriptors (0), its available (1) or its used ring (2), at a byte below 4096.
    pub fn poke(&mut self, queue: usize, area: usize, at: u16, value: u16) {
        let QueueLayout { desc, avail, used, .. } = self.layouts[queue];
        self.poked = true;
        let addr = [desc, avail, used][area] + u64::from(at).min(4094);
        self.ram.memory().write(addr, &value.to_le_bytes()).unwrap();
    }

    /// Changes the header of the packet in the descriptor `head` of the transmit ring, whoever has it.
    pub fn forge(&mut self, head: u16, change: impl FnOnce(SocketHeader) -> SocketHeader) {
        let memory = self.ram.memory();
        let mut addr = self.layouts[1].desc + 16 * u64::from(head % self.rings.entries);
        // The descriptor, the first of its table, and what that points to; as far as they make sense.
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
