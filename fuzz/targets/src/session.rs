//! The state machine of a vhost-user session: requests with descriptors over a real socket, a guest
//! that writes into its memory in between, bursts of frames through the running rings, and another
//! process that takes over from the session record.
//!
//! Input: 1 byte for the port, then steps: 1 byte for the kind, 1 for the queue or count, 2 for a
//! value. [`Front::raw`] also reads the bytes of a request.

use std::cell::RefCell;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socketpair,
};
use taut_api::fabric::config::{FrontEndRules, PortKind};
use taut_api::fabric::counters::FILE_SIZE;
use taut_api::fabric::{ForeignFd, PortId};
use taut_fabric::net::queue::{PairIdx, QueueIdx};
use taut_fabric::port::vnic_device::VnicDevice;
use taut_fabric::port::{Port, RxEnd, TxEnd};
use taut_fabric::sys::counters::PortBlock;
use taut_fabric::vhost_user::{Session, SessionError};
use taut_fabric::wake::mailbox::Mailboxes;
use taut_virtq::counters::SharedWords;
use taut_virtq::{GuestMemory, RegionSpec, features};
use vhost::vhost_user::message::FrontendReq as R;

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "session", run, budget: Budget::of(500, 32) };

/// Most steps of one input.
const STEPS: usize = 48;
/// Length of the file behind the guest's memory.
const FILE_LEN: u64 = 0x4000;
/// Difference between front-end addresses and guest addresses.
const USER: u64 = 0x7f00_0000_0000;

const DEFAULT_FEATURES: u64 = features::VERSION_1 | features::EVENT_IDX | features::PROTOCOL_FEATURES;
/// Features that a step may add or remove.
const BITS: [u64; 8] = [
    features::VERSION_1,
    features::EVENT_IDX,
    features::INDIRECT_DESC,
    features::PROTOCOL_FEATURES,
    features::NET_MRG_RXBUF,
    features::NET_GUEST_CSUM,
    features::RING_PACKED,
    1 << 63,
];

struct World {
    file: OwnedFd,
    memory: Arc<GuestMemory>,
    event: OwnedFd,
    words: Arc<SharedWords>,
    mailboxes: Arc<Mailboxes>,
    zeros: Vec<u8>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

impl World {
    fn new() -> Self {
        let file = |len| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = memfd_create("fuzz", flags).expect("a memfd");
            ftruncate(&file, len).expect("its length");
            fcntl_add_seals(&file, SealFlags::SHRINK).expect("a seal");
            file
        };
        let memory = file(FILE_LEN);
        let whole = RegionSpec { guest_addr: 0, user_addr: 0, size: FILE_LEN, file_offset: 0 };
        Self {
            memory: Arc::new(GuestMemory::map(&[whole], &[memory.as_fd()]).expect("memory")),
            file: memory,
            event: eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd"),
            words: Arc::new(
                SharedWords::map(file(FILE_SIZE).as_fd(), FILE_SIZE as usize / 8).expect("counters"),
            ),
            mailboxes: Arc::new(Mailboxes::new().expect("mailboxes")),
            zeros: vec![0; FILE_LEN as usize],
        }
    }
}

/// The side of the front end.
struct Front<'w> {
    world: &'w World,
    socket: OwnedFd,
}

impl Front<'_> {
    fn send(&self, request: R, body: &[u8], fds: &[BorrowedFd<'_>], ack: bool) {
        let flags: u32 = if ack { 9 } else { 1 };
        let header = [u32::from(request), flags, body.len() as u32].map(u32::to_ne_bytes).concat();
        self.bytes(&header, body, fds);
    }

    fn bytes(&self, header: &[u8], body: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let parts = [IoSlice::new(header), IoSlice::new(body)];
        // Fails if the session has closed the connection.
        let _ = sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Sends the request of a step.
    fn step(&self, kind: u8, which: u8, value: u16, input: &mut Input<'_>) {
        let world = self.world;
        let queue = u32::from(which % 8);
        let state = |value: u32| [queue.to_ne_bytes(), value.to_ne_bytes()].concat();
        let word = |value: u64| value.to_ne_bytes().to_vec();
        let ack = which & 0x80 != 0;
        let event = [world.event.as_fd()];
        let file = [world.file.as_fd(); 4];
        match kind {
            0 => {
                let accepted = (0..8)
                    .filter(|bit| value >> bit & 1 == 1)
                    .fold(DEFAULT_FEATURES, |all, bit| all ^ BITS[bit]);
                self.send(R::SET_FEATURES, &word(accepted), &[], ack);
            }
            1 => self.send(R::SET_PROTOCOL_FEATURES, &word(u64::from(value)), &[], ack),
            2 => {
                let count = usize::from(which % 4);
                let regions =
                    (0..count as u64).map(|index| region(index, value)).collect::<Vec<_>>().concat();
                let body = [word(count as u64), regions].concat();
                self.send(R::SET_MEM_TABLE, &body, &file[..count], ack);
            }
            3 | 4 => {
                let body = [word(0), region(u64::from(which % 4), value)].concat();
                let (request, fds) = if kind == 3 { (R::ADD_MEM_REG, 1) } else { (R::REM_MEM_REG, 0) };
                self.send(request, &body, &file[..fds], ack);
            }
            5 => self.send(
                R::SET_VRING_NUM,
                &state(if value < 6 { 1 << value } else { value.into() }),
                &[],
                ack,
            ),
            6 => {
                // Each queue has its own page. The value moves single areas.
                let base = USER + u64::from(queue % 4) * 0x1000;
                let moved = |shift: u16| u64::from(value >> shift & 0x0f) * 0x90;
                let areas = [base + moved(0), base + 0x600 + moved(4), base + 0x400 + moved(8)];
                let body = [state(0), areas.map(u64::to_ne_bytes).concat(), word(0)].concat();
                self.send(R::SET_VRING_ADDR, &body, &[], ack);
            }
            7 => self.send(R::SET_VRING_BASE, &state(value.into()), &[], ack),
            8 => self.send(R::GET_VRING_BASE, &state(value.into()), &[], ack),
            9..=11 => {
                let request = [R::SET_VRING_KICK, R::SET_VRING_CALL, R::SET_VRING_ERR][usize::from(kind) - 9];
                let none = u64::from(value & 1) << 8;
                let fds = if none == 0 { &event[..] } else { &[] };
                self.send(request, &word(u64::from(queue) | none), fds, ack);
            }
            12 => self.send(R::SET_VRING_ENABLE, &state(u32::from(value & 3)), &[], ack),
            13 => self.send(R::SET_STATUS, &word(u64::from(value)), &[], ack),
            14 => {
                let questions = [R::GET_FEATURES, R::GET_PROTOCOL_FEATURES, R::GET_QUEUE_NUM, R::GET_STATUS];
                self.send(questions[usize::from(value % 4)], &[], &[], ack);
            }
            15 => self.send([R::SET_OWNER, R::RESET_OWNER][usize::from(value & 1)], &[], &[], ack),
            _ => self.raw(input.slice(usize::from(which % 64)), usize::from(value % 5)),
        }
    }

    /// Sends bytes that may be incomplete or no request at all.
    fn raw(&self, bytes: &[u8], fds: usize) {
        if !bytes.is_empty() {
            self.bytes(bytes, &[], &[self.world.event.as_fd(); 4][..fds]);
        }
    }

    fn device(&self, port: &Arc<Port>) -> Arc<VnicDevice> {
        Arc::new(VnicDevice { port: Arc::clone(port), mailboxes: Arc::clone(&self.world.mailboxes) })
    }

    /// Discards the session's answers.
    fn drain(&self) {
        let mut bytes = [0; 512];
        while matches!(recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT), Ok((1.., _))) {}
    }
}

/// A region as in requests: 4 KiB of the file, modified by a value.
fn region(index: u64, value: u16) -> Vec<u8> {
    let start = index * 0x1000;
    let bent = |shift: u16| u64::from(value >> shift & 0x0f) << 8;
    let words = [start + bent(0), 0x1000 + bent(4), USER + start + bent(8), start + bent(12)];
    words.map(u64::to_ne_bytes).concat()
}

fn run(data: &[u8]) {
    WORLD.with_borrow(|world| run_in(world, data));
}

fn run_in(world: &World, data: &[u8]) {
    let mut input = Input(data);
    let bits = input.u8();
    world.memory.write(0, &world.zeros).expect("the whole file");
    let kind = PortKind::VhostUser { offloads: bits & 1 == 0, queue_pairs: 1 + (bits >> 1) % 2 };
    let port = Arc::new(Port::new(PortId(0), kind, PortBlock::new(&world.words, PortId(0))));
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .expect("a socket pair");
    let front = Front { world, socket: ours };
    let session = Session::new(ForeignFd::own(theirs), front.device(&port), FrontEndRules::default());
    steps(&front, &port, session, &mut input);
    for queue in QueueIdx::all(port.queues()) {
        assert!(!port.runs(queue), "queue {queue} runs without its session");
    }
}

fn steps(front: &Front<'_>, port: &Arc<Port>, mut session: Session, input: &mut Input<'_>) {
    for _ in 0..STEPS {
        if input.is_empty() {
            return;
        }
        let (kind, which, value) = (input.u8() % 24, input.u8(), input.u16());
        match kind {
            17 => {
                session = match go_on(front, port, session) {
                    Some(session) => session,
                    None => return,
                }
            }
            18 => {
                let pair = PairIdx(u32::from(which) % port.pairs() as u32);
                traffic(port, pair, value.into(), &mut session);
            }
            19..=23 => {
                // The driver writes into its rings, in most cases a descriptor.
                let (page, at) = (u64::from(which % 4) << 12, u64::from(value & 0x7ff));
                let bytes: [u8; 8] = input.array();
                front.world.memory.write((page + at).min(FILE_LEN - 8), &bytes).expect("inside the file");
            }
            kind => front.step(kind, which, value, input),
        }
        if serve(&mut session).is_err() {
            return;
        }
        front.drain();
    }
}

/// Handles all requests that have arrived.
fn serve(session: &mut Session) -> Result<(), SessionError> {
    while let Some((header, request)) = session.receive()? {
        let reply = session.apply(&header, request)?;
        assert_eq!(
            session.descriptors().len(),
            session.record().descriptors().len(),
            "record and descriptors differ"
        );
        session.reply(&reply)?;
    }
    Ok(())
}

/// Restores the session in another process from its record and descriptors.
fn go_on(front: &Front<'_>, port: &Arc<Port>, session: Session) -> Option<Session> {
    let record = session.record().clone();
    let copy = |fd: &BorrowedFd<'_>| ForeignFd::own(fd.try_clone_to_owned().expect("a descriptor"));
    let fds = session.descriptors().iter().map(copy).collect();
    drop(session);
    Session::resume(record, fds, front.device(port), FrontEndRules::default()).ok()
}

/// Moves a burst from the guest and a frame to it.
fn traffic(port: &Port, pair: PairIdx, len: usize, session: &mut Session) {
    let mut broken = Vec::new();
    let now = Instant::now();
    if let Some(TxEnd::Vnic(tx)) = &mut port.tx(pair).end {
        match tx.look() {
            Ok(frames) => _ = tx.complete(frames, now, &port.counters),
            Err(_) => broken.push(QueueIdx::transmit(pair)),
        }
    }
    let mut slot = port.rx(pair);
    if let Some(RxEnd::Vnic(rx)) = &mut slot.end {
        let bytes = [0x77; 2048];
        if let taut_fabric::port::Put::Failed(_) = rx.put_bytes(&bytes[..len % 2049]) {
            broken.push(QueueIdx::receive(pair));
        }
    }
    slot.publish(now, &port.counters);
    drop(slot);
    for queue in broken {
        let fault = taut_virtq::RingFault::ZeroLength { head: 0 };
        session.break_rings(queue, fault.into());
    }
}
