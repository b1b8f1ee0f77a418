//! A guest: a front end that sends QEMU's requests, and the driver ends of a card's two rings.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use taut_virtq::driver::{QueueLayout, Ram, RxDriver, TxDriver};
use taut_virtq::first_position;
use taut_virtq::{NetHeader, features};
use vhost::vhost_user::message::{FrontendReq, VhostUserProtocolFeatures};

use super::fabric::PATIENCE;

/// Features that a stock Linux driver accepts.
pub(crate) const LINUX: u64 = features::VERSION_1
    | features::EVENT_IDX
    | features::INDIRECT_DESC
    | features::PROTOCOL_FEATURES
    | features::NET_MRG_RXBUF
    | features::NET_CSUM
    | features::NET_GUEST_CSUM
    | features::NET_HOST_TSO4
    | features::NET_HOST_TSO6
    | features::NET_GUEST_TSO4
    | features::NET_GUEST_TSO6;

/// Each ring format, with and without in-order completion.
pub(crate) const FORMATS: [u64; 4] =
    [0, features::IN_ORDER, features::RING_PACKED, features::RING_PACKED | features::IN_ORDER];

/// Features that a driver without offloads accepts.
pub(crate) const NO_OFFLOADS: u64 = features::VERSION_1 | features::PROTOCOL_FEATURES;

/// A front end's side of the connection.
pub(crate) struct FrontEnd {
    pub(crate) socket: UnixStream,
}

impl FrontEnd {
    /// Sends a request, which asks for an acknowledgement if `ack` is set.
    pub(crate) fn send(&self, request: FrontendReq, body: &[u8], fds: &[BorrowedFd<'_>], ack: bool) {
        let flags: u32 = if ack { 9 } else { 1 };
        let header = [u32::from(request), flags, body.len() as u32].map(u32::to_ne_bytes).concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let parts = [IoSlice::new(&header), IoSlice::new(body)];
        sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    /// Reads a reply with a 64-bit word.
    pub(crate) fn reply(&mut self, request: FrontendReq) -> u64 {
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = [0; 20];
        self.socket.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..4], u32::from(request).to_ne_bytes());
        assert_eq!(bytes[4..8], 5_u32.to_ne_bytes());
        u64::from_ne_bytes(bytes[12..].try_into().unwrap())
    }

    /// Reads `size` bytes of the configuration space. The result is empty if the back end has none
    /// there.
    pub(crate) fn config(&mut self, offset: u32, size: u32) -> Vec<u8> {
        let header = [offset, size, 0].map(u32::to_ne_bytes).concat();
        let body = [&header[..], &vec![0; size as usize]].concat();
        self.send(FrontendReq::GET_CONFIG, &body, &[], false);
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = [0; 12];
        self.socket.read_exact(&mut head).unwrap();
        assert_eq!(head[..8], [u32::from(FrontendReq::GET_CONFIG), 5].map(u32::to_ne_bytes).concat());
        let mut body = vec![0; u32::from_ne_bytes(head[8..].try_into().unwrap()) as usize];
        self.socket.read_exact(&mut body).unwrap();
        if body.is_empty() {
            return body;
        }
        assert_eq!(body[..12], header);
        body.split_off(12)
    }

    pub(crate) fn ask(&mut self, request: FrontendReq) -> u64 {
        self.send(request, &[], &[], false);
        self.reply(request)
    }

    /// Sends a request and waits for its acknowledgement.
    pub(crate) fn tell(&mut self, request: FrontendReq, body: &[u8], fds: &[BorrowedFd<'_>]) {
        self.send(request, body, fds, true);
        assert_eq!(self.reply(request), 0);
    }

    /// Ends the session from the front end's side.
    pub(crate) fn end(&self) {
        self.socket.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Tells whether the back end has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        matches!(self.socket.read(&mut [0; 64]), Ok(0))
    }

    /// Sets up a ring and enables it.
    pub(crate) fn set_up_ring(&mut self, index: u32, layout: QueueLayout, base: u16, events: &Events) {
        self.tell(FrontendReq::SET_VRING_NUM, &Self::state(index, layout.size.into()), &[]);
        self.tell(FrontendReq::SET_VRING_BASE, &Self::state(index, base.into()), &[]);
        let words = [u64::from(index), layout.desc, layout.used, layout.avail, 0];
        self.tell(FrontendReq::SET_VRING_ADDR, &words.map(u64::to_ne_bytes).concat(), &[]);
        let index_word = u64::from(index).to_ne_bytes();
        self.tell(FrontendReq::SET_VRING_KICK, &index_word, &[events.kick.as_fd()]);
        self.tell(FrontendReq::SET_VRING_CALL, &index_word, &[events.call.as_fd()]);
        self.tell(FrontendReq::SET_VRING_ENABLE, &Self::state(index, 1), &[]);
    }

    /// The body of a request with a queue index and a value.
    pub(crate) fn state(queue: u32, value: u32) -> Vec<u8> {
        [queue.to_ne_bytes(), value.to_ne_bytes()].concat()
    }
}

/// A window that keeps a sender from overrunning a receiver, so that nothing is dropped under any
/// scheduling.
pub(crate) struct Window {
    received: AtomicU32,
    size: u32,
}

impl Window {
    pub(crate) fn new(size: u32) -> Arc<Self> {
        Arc::new(Self { received: AtomicU32::new(0), size })
    }

    /// Waits until frame `number` may be sent.
    pub(crate) fn wait_for(&self, number: u32) {
        while number >= self.received.load(Ordering::Acquire) + self.size {
            std::thread::yield_now();
        }
    }

    /// Notes that all frames below `number` have been received.
    pub(crate) fn advance(&self, number: u32) {
        self.received.store(number, Ordering::Release);
    }
}

/// The eventfds of a queue.
pub(crate) struct Events {
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
}

/// The properties of a guest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model {
    pub(crate) features: u64,
    pub(crate) queue_size: u16,
    pub(crate) rx_buffer: u32,
}

impl Default for Model {
    fn default() -> Self {
        Self { features: LINUX, queue_size: 256, rx_buffer: 1600 }
    }
}

/// A running guest.
pub(crate) struct Guest {
    pub(crate) front_end: FrontEnd,
    pub(crate) ram: Ram,
    pub(crate) layouts: [QueueLayout; 2],
    pub(crate) tx: TxDriver,
    pub(crate) rx: RxDriver,
    pub(crate) events: [Events; 2],
}

impl Guest {
    /// Negotiates on a connection, and starts both rings.
    pub(crate) fn start(socket: UnixStream, model: Model) -> Self {
        let mut front_end = FrontEnd { socket };
        negotiate(&mut front_end, model.features);
        Self::boot(front_end, model)
    }

    /// Allocates memory, and starts both rings in it.
    fn boot(front_end: FrontEnd, model: Model) -> Self {
        let mut ram = Ram::new(16 << 20).unwrap();
        let layouts = [0; 2].map(|_| QueueLayout::allocate(&mut ram, model.queue_size).unwrap());
        let rx = RxDriver::new(&mut ram, layouts[0], model.features, model.rx_buffer).unwrap().unwrap();
        let tx = TxDriver::new(&mut ram, layouts[1], model.features, 4096).unwrap().unwrap();
        let mut guest = Self { front_end, ram, layouts, tx, rx, events: [0; 2].map(|_| Events::new()) };
        guest.share_memory();
        guest.rx.ring().publish();
        for queue in 0..2 {
            guest.set_up_ring(queue, first_position(model.features));
        }
        guest
    }

    /// Reboots the guest: its front end stops the rings, resets the device and sets up everything
    /// again.
    pub(crate) fn reboot(mut self, model: Model) -> Self {
        self.stop_ring(0);
        self.stop_ring(1);
        self.front_end.tell(FrontendReq::SET_STATUS, &0_u64.to_ne_bytes(), &[]);
        Self::boot(self.front_end, model)
    }

    pub(crate) fn share_memory(&mut self) {
        let spec = self.ram.spec();
        let words = [1, spec.guest_addr, spec.size, spec.user_addr, spec.file_offset];
        let body = words.map(u64::to_ne_bytes).concat();
        self.front_end.tell(FrontendReq::SET_MEM_TABLE, &body, &[self.ram.file()]);
    }

    pub(crate) fn set_up_ring(&mut self, queue: usize, base: u16) {
        self.front_end.set_up_ring(queue as u32, self.layouts[queue], base, &self.events[queue]);
    }

    /// Stops a ring and returns its position; for a packed ring, both positions.
    pub(crate) fn stop_ring(&mut self, queue: u32) -> u32 {
        self.front_end.send(FrontendReq::GET_VRING_BASE, &FrontEnd::state(queue, 0), &[], false);
        let reply = self.front_end.reply(FrontendReq::GET_VRING_BASE);
        assert_eq!(reply as u32, queue);
        (reply >> 32) as u32
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.send_with(&NetHeader::default(), frame);
    }

    /// Sends a frame, waiting for room if there is none.
    pub(crate) fn send_with(&mut self, header: &NetHeader, frame: &[u8]) {
        loop {
            self.tx.reclaim().unwrap();
            if self.tx.send(header, frame) {
                break;
            }
            if !self.tx.ring().arm_interrupts() {
                assert!(wait(&self.events[1].call), "the transmit ring stays full");
            }
        }
        self.tx.ring().publish();
        if self.tx.ring().needs_kick() {
            self.kick();
        }
    }

    pub(crate) fn kick(&self) {
        rustix::io::write(&self.events[1].kick, &1_u64.to_ne_bytes()).unwrap();
    }

    /// Receives the next frame. It waits for interrupts only, so a missing interrupt fails the
    /// test.
    pub(crate) fn receive(&mut self) -> (NetHeader, Vec<u8>) {
        loop {
            let mut frame = Vec::new();
            if let Some(header) = self.rx.receive(&mut frame).unwrap() {
                self.post();
                return (header, frame);
            }
            if !self.rx.ring().arm_interrupts() {
                assert!(wait(&self.events[0].call), "no frame arrived");
            }
        }
    }

    /// Takes all frames that have arrived, and returns their number.
    pub(crate) fn take_received(&mut self) -> u64 {
        let (mut count, mut frame) = (0, Vec::new());
        while self.rx.receive(&mut frame).unwrap().is_some() {
            count += 1;
        }
        self.post();
        count
    }

    /// Returns buffers to the device.
    fn post(&mut self) {
        self.rx.ring().publish();
        if self.rx.ring().needs_kick() {
            rustix::io::write(&self.events[0].kick, &1_u64.to_ne_bytes()).unwrap();
        }
    }

    /// Waits until the device has returned all sent frames. They have been counted by then, and the
    /// successor of a killed fabric does not send them again.
    pub(crate) fn drain(&mut self) {
        drain(&mut self.tx, self.layouts[1], &self.events[1]);
    }
}

/// Waits until the device has returned all frames of a transmit ring.
///
/// A receiver sees a frame before the fabric counts it and returns its buffer. A test therefore
/// drains the senders before it reads counters.
pub(crate) fn drain(tx: &mut TxDriver, layout: QueueLayout, events: &Events) {
    loop {
        tx.reclaim().unwrap();
        if tx.ring().free() == usize::from(layout.size) {
            return;
        }
        if !tx.ring().arm_interrupts() {
            assert!(wait(&events.call), "a frame is never returned");
        }
    }
}

/// Sends QEMU's requests before the memory table.
pub(crate) fn negotiate(front_end: &mut FrontEnd, features: u64) {
    negotiate_with(front_end, features, VhostUserProtocolFeatures::empty());
}

/// The same, with protocol features in addition to those of all devices.
pub(crate) fn negotiate_with(
    front_end: &mut FrontEnd,
    features: u64,
    protocol_features: VhostUserProtocolFeatures,
) {
    let offered = front_end.ask(FrontendReq::GET_FEATURES);
    assert_eq!(features & !offered, 0, "not all of {features:#x} is offered in {offered:#x}");
    let protocol = front_end.ask(FrontendReq::GET_PROTOCOL_FEATURES);
    let wanted = VhostUserProtocolFeatures::REPLY_ACK | VhostUserProtocolFeatures::STATUS | protocol_features;
    assert_eq!(protocol & wanted.bits(), wanted.bits());
    front_end.send(FrontendReq::SET_PROTOCOL_FEATURES, &wanted.bits().to_ne_bytes(), &[], false);
    front_end.send(FrontendReq::SET_OWNER, &[], &[], false);
    front_end.tell(FrontendReq::SET_FEATURES, &features.to_ne_bytes(), &[]);
}

impl Events {
    pub(crate) fn new() -> Self {
        let event = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        Self { kick: event(), call: event() }
    }
}

/// Waits for an eventfd and resets it. Returns `false` if it was not signalled in time.
pub(crate) fn wait(event: &OwnedFd) -> bool {
    let timeout = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let mut fds = [PollFd::new(event, PollFlags::IN)];
    let got = poll(&mut fds, Some(&timeout)).unwrap() > 0;
    let _ = rustix::io::read(event, &mut [0; 8]);
    got
}
