//! A guest with a vsock device: a front end that sends what QEMU's `vhost-user-vsock` sends, the
//! driver ends of the two rings, and the part of a guest's socket layer that a connection needs.

use std::os::unix::net::UnixStream;

use rustix::io::write;
use taut_virtq::driver::{QueueLayout, Ram, Shape, SocketRxDriver, SocketTxDriver};
use taut_virtq::features;
use taut_virtq::socket_header::{
    CREDIT_UPDATE, REQUEST, RESPONSE, RST, RW, SHUTDOWN, SHUTDOWN_RCV, SHUTDOWN_SEND, STREAM, SocketHeader,
};
use vhost::vhost_user::message::{FrontendReq, VhostUserProtocolFeatures};

use super::guest::{Events, FrontEnd, negotiate_with, wait};

/// Features of a vsock device that a stock Linux driver accepts.
const LINUX: u64 =
    features::VERSION_1 | features::EVENT_IDX | features::INDIRECT_DESC | features::PROTOCOL_FEATURES;
const QUEUE_SIZE: u16 = 128;
/// Payload bytes of a receive buffer, as Linux posts them: 4 KiB with the header.
const RX_PAYLOAD: u32 = 4096 - 44;
const TX_PAYLOAD: u32 = 16 << 10;
/// Buffer size of a connection.
const ROOM: u32 = 64 << 10;

/// A running guest.
pub(crate) struct SocketGuest {
    pub(crate) front_end: FrontEnd,
    /// The guest's context ID, read from the device.
    pub(crate) cid: u64,
    /// Connections that were reset. Resets in answer to packets that were still in flight may
    /// follow.
    reset: Vec<End>,
    ram: Ram,
    layouts: [QueueLayout; 2],
    tx: SocketTxDriver,
    rx: SocketRxDriver,
    events: [Events; 2],
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    local: u32,
    peer: (u64, u32),
    /// Bytes sent.
    sent: u32,
    /// Bytes that the other side's program has read.
    acknowledged: u32,
    peer_room: u32,
    /// Bytes read here.
    read: u32,
    /// Bytes read here that the other side has been told of.
    told: u32,
}

impl End {
    fn new(local: u32, peer: (u64, u32)) -> Self {
        Self { local, peer, sent: 0, acknowledged: 0, peer_room: 0, read: 0, told: 0 }
    }

    /// Tells whether a packet belongs to this connection.
    pub(crate) fn is_for(&self, header: &SocketHeader) -> bool {
        (header.src_cid, header.src_port, header.dst_port) == (self.peer.0, self.peer.1, self.local)
    }

    fn room(&self) -> u32 {
        self.peer_room - self.sent.wrapping_sub(self.acknowledged)
    }

    /// Takes up the other side's credit.
    fn learn(&mut self, header: &SocketHeader) {
        (self.peer_room, self.acknowledged) = (header.buf_alloc, header.fwd_cnt);
    }
}

impl SocketGuest {
    /// Does what QEMU does when it starts, when it also reads the context ID, and then what QEMU
    /// does when the guest's driver starts.
    pub(crate) fn start(socket: UnixStream) -> Self {
        let mut front_end = FrontEnd { socket };
        let protocol = VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::MQ;
        negotiate_with(&mut front_end, LINUX, protocol);
        assert_eq!(front_end.ask(FrontendReq::GET_QUEUE_NUM), 2);
        let cid = u64::from_le_bytes(front_end.config(0, 8).try_into().unwrap());
        Self::boot(front_end, cid)
    }

    /// Allocates memory, and sets up and starts both rings in it.
    fn boot(front_end: FrontEnd, cid: u64) -> Self {
        let mut ram = Ram::new(16 << 20).unwrap();
        let layouts = [0; 2].map(|_| QueueLayout::allocate(&mut ram, QUEUE_SIZE).unwrap());
        let rx = SocketRxDriver::new(&mut ram, layouts[0], LINUX, Shape::Whole, RX_PAYLOAD);
        let tx = SocketTxDriver::new(&mut ram, layouts[1], LINUX, Shape::Apart, TX_PAYLOAD);
        let (rx, tx) = (rx.unwrap().unwrap(), tx.unwrap().unwrap());
        let events = [0; 2].map(|_| Events::new());
        let mut guest = Self { front_end, cid, reset: Vec::new(), ram, layouts, tx, rx, events };
        guest.rx.ring().publish();
        guest.start_rings([0; 2]);
        guest
    }

    /// Does what a front end does when its guest reboots after its rings were stopped.
    pub(crate) fn boot_again(self) -> Self {
        Self::boot(self.front_end, self.cid)
    }

    /// Sets the transmit ring's available index to an invalid value.
    pub(crate) fn break_transmit_ring(&mut self) {
        let index = self.layouts[1].avail + 2;
        self.ram.memory().write(index, &9999_u16.to_le_bytes()).unwrap();
        write(&self.events[1].kick, &1_u64.to_ne_bytes()).unwrap();
    }

    fn share_memory(&mut self) {
        let spec = self.ram.spec();
        let words = [1, spec.guest_addr, spec.size, spec.user_addr, spec.file_offset];
        let body = words.map(u64::to_ne_bytes).concat();
        self.front_end.tell(FrontendReq::SET_MEM_TABLE, &body, &[self.ram.file()]);
    }

    /// Shares the memory, starts both rings at these positions, and sets the driver's status.
    pub(crate) fn start_rings(&mut self, positions: [u16; 2]) {
        self.share_memory();
        for (queue, base) in positions.into_iter().enumerate() {
            self.front_end.set_up_ring(queue as u32, self.layouts[queue], base, &self.events[queue]);
        }
        self.front_end.tell(FrontendReq::SET_STATUS, &0x0f_u64.to_ne_bytes(), &[]);
    }

    /// Stops both rings, as QEMU does when the VM is paused and when its driver goes away. Returns
    /// their positions.
    pub(crate) fn stop_rings(&mut self) -> [u16; 2] {
        for queue in [0, 1] {
            self.front_end.tell(FrontendReq::SET_VRING_ENABLE, &FrontEnd::state(queue, 0), &[]);
        }
        let positions = [0, 1].map(|queue| {
            self.front_end.send(FrontendReq::GET_VRING_BASE, &FrontEnd::state(queue, 0), &[], false);
            (self.front_end.reply(FrontendReq::GET_VRING_BASE) >> 32) as u16
        });
        self.front_end.tell(FrontendReq::SET_STATUS, &0_u64.to_ne_bytes(), &[]);
        positions
    }

    /// Sends one packet, and waits for room in the ring if there is none.
    pub(crate) fn send(&mut self, header: SocketHeader, payload: &[u8]) {
        loop {
            self.tx.reclaim().unwrap();
            if self.tx.send(header, &[payload]) {
                break;
            }
            if !self.tx.ring().arm_interrupts() {
                assert!(wait(&self.events[1].call), "the transmit ring stays full");
            }
        }
        self.tx.ring().publish();
        if self.tx.ring().needs_kick() {
            write(&self.events[1].kick, &1_u64.to_ne_bytes()).unwrap();
        }
    }

    /// Receives the next packet. Waits for interrupts only, so a missing one fails the test.
    pub(crate) fn receive(&mut self) -> (SocketHeader, Vec<u8>) {
        loop {
            let packet = self.rx.receive(|header, payload| {
                let mut bytes = vec![0; payload.left()];
                payload.read(&mut bytes);
                (header, bytes)
            });
            if let Some(packet) = packet.unwrap() {
                self.rx.ring().publish();
                if self.rx.ring().needs_kick() {
                    write(&self.events[0].kick, &1_u64.to_ne_bytes()).unwrap();
                }
                let header = &packet.0;
                assert_eq!(header.dst_cid, self.cid, "{header:?}");
                if header.op != RST || !self.reset.iter().any(|end| end.is_for(header)) {
                    return packet;
                }
                continue;
            }
            if !self.rx.ring().arm_interrupts() {
                assert!(wait(&self.events[0].call), "no packet arrived");
            }
        }
    }

    fn header(&self, end: &End, op: u16) -> SocketHeader {
        SocketHeader {
            src_cid: self.cid,
            dst_cid: end.peer.0,
            src_port: end.local,
            dst_port: end.peer.1,
            kind: STREAM,
            op,
            buf_alloc: ROOM,
            fwd_cnt: end.read,
            ..SocketHeader::default()
        }
    }

    /// Sends a packet without payload on a connection.
    pub(crate) fn tell(&mut self, end: &End, op: u16) {
        self.send(self.header(end, op), &[]);
    }

    /// Requests a connection, without waiting for the answer.
    pub(crate) fn request(&mut self, local: u32, peer: (u64, u32)) -> End {
        let end = End::new(local, peer);
        self.tell(&end, REQUEST);
        end
    }

    /// Connects from port `local`. Returns `None` if the answer is a reset.
    pub(crate) fn connect(&mut self, local: u32, peer: (u64, u32)) -> Option<End> {
        let mut end = self.request(local, peer);
        let (header, payload) = self.receive();
        assert!(end.is_for(&header) && payload.is_empty(), "{header:?}");
        match header.op {
            RESPONSE => {
                end.learn(&header);
                Some(end)
            }
            RST => None,
            _ => panic!("{header:?}"),
        }
    }

    /// Receives the response to a request.
    pub(crate) fn established(&mut self, end: &mut End) {
        let header = self.next(end);
        assert_eq!(header.op, RESPONSE, "{header:?}");
        end.learn(&header);
    }

    /// Receives the next request and accepts it.
    pub(crate) fn accept(&mut self) -> End {
        let (header, _) = self.receive();
        assert_eq!((header.op, header.kind), (REQUEST, STREAM), "{header:?}");
        let mut end = End::new(header.dst_port, (header.src_cid, header.src_port));
        end.learn(&header);
        self.tell(&end, RESPONSE);
        end
    }

    /// Sends bytes as far as the other side gives credit. Only credit updates may arrive meanwhile.
    pub(crate) fn write(&mut self, end: &mut End, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            while end.room() == 0 {
                let (header, _) = self.receive();
                assert!(end.is_for(&header) && header.op == CREDIT_UPDATE, "{header:?}");
                end.learn(&header);
            }
            let (now, later) = bytes.split_at(bytes.len().min(end.room() as usize).min(TX_PAYLOAD as usize));
            end.sent = end.sent.wrapping_add(now.len() as u32);
            self.send(self.header(end, RW), now);
            bytes = later;
        }
    }

    /// Receives `len` bytes.
    pub(crate) fn read(&mut self, end: &mut End, len: usize) -> Vec<u8> {
        let mut got = Vec::new();
        while got.len() < len {
            got.extend(self.read_some(end));
        }
        assert_eq!(got.len(), len);
        got
    }

    /// Receives the next bytes of a connection, and sends a credit update when one is due.
    pub(crate) fn read_some(&mut self, end: &mut End) -> Vec<u8> {
        loop {
            let (header, bytes) = self.receive();
            assert!(end.is_for(&header), "{header:?}");
            end.learn(&header);
            if header.op == CREDIT_UPDATE {
                continue;
            }
            assert_eq!(header.op, RW, "{header:?}");
            return self.take(end, bytes);
        }
    }

    /// Sends the bytes that `bytes` returns for a position and a length, until the connection is
    /// reset. Returns how many bytes were sent.
    pub(crate) fn write_until_reset(
        &mut self,
        mut end: End,
        bytes: impl Fn(usize, usize) -> Vec<u8>,
    ) -> usize {
        let mut sent = 0;
        loop {
            while end.room() < TX_PAYLOAD {
                let (header, _) = self.receive();
                assert!(end.is_for(&header), "{header:?}");
                if header.op == RST {
                    self.reset.push(end);
                    return sent;
                }
                end.learn(&header);
            }
            end.sent = end.sent.wrapping_add(TX_PAYLOAD);
            self.send(self.header(&end, RW), &bytes(sent, TX_PAYLOAD as usize));
            sent += TX_PAYLOAD as usize;
        }
    }

    /// Receives bytes until the connection is reset.
    pub(crate) fn read_until_reset(&mut self, mut end: End) -> Vec<u8> {
        let mut got = Vec::new();
        loop {
            let (header, bytes) = self.receive();
            assert!(end.is_for(&header), "{header:?}");
            match header.op {
                RST => {
                    self.reset.push(end);
                    return got;
                }
                RW => got.extend(self.take(&mut end, bytes)),
                _ => end.learn(&header),
            }
        }
    }

    /// Counts bytes as read, and sends a credit update when one is due.
    fn take(&mut self, end: &mut End, bytes: Vec<u8>) -> Vec<u8> {
        end.read = end.read.wrapping_add(bytes.len() as u32);
        if end.read.wrapping_sub(end.told) >= ROOM / 4 {
            end.told = end.read;
            self.tell(end, CREDIT_UPDATE);
        }
        bytes
    }

    /// Receives the next packet of a connection that is not a credit update.
    pub(crate) fn next(&mut self, end: &End) -> SocketHeader {
        loop {
            let (header, _) = self.receive();
            assert!(end.is_for(&header), "{header:?}");
            if header.op != CREDIT_UPDATE {
                return header;
            }
        }
    }

    /// Ends a connection as `close` does: the other side answers by a reset.
    pub(crate) fn close(&mut self, end: &End) {
        let flags = SHUTDOWN_RCV | SHUTDOWN_SEND;
        self.send(SocketHeader { flags, ..self.header(end, SHUTDOWN) }, &[]);
        assert_eq!(self.next(end).op, RST);
    }

    /// Receives the other side's shutdown and answers by a reset.
    pub(crate) fn closed(&mut self, end: &End) {
        let header = self.next(end);
        assert_eq!((header.op, header.flags), (SHUTDOWN, SHUTDOWN_RCV | SHUTDOWN_SEND));
        self.tell(end, RST);
    }
}

/// Connects port `local` of `a` with port 5000 of `b`.
pub(crate) fn connect(a: &mut SocketGuest, b: &mut SocketGuest, local: u32) -> (End, End) {
    let mut at_a = a.request(local, (b.cid, 5000));
    let at_b = b.accept();
    a.established(&mut at_a);
    (at_a, at_b)
}
