//! A vhost-user front end that says whatever an act wants.

use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use taut_virtq::driver::{QueueLayout, Ram};
use taut_virtq::features;
use vhost::vhost_user::message::FrontendReq;

/// Longest wait for something that the fabric does at once.
const PATIENCE: Duration = Duration::from_secs(20);
/// Version of the protocol, in the flags of each message.
const VERSION: u32 = 1;
/// Flag of a message that asks for an acknowledgement.
const NEED_REPLY: u32 = 1 << 3;
/// The protocol feature by which acknowledgements are sent.
const REPLY_ACK: u64 = 1 << 3;
/// Entries of each ring.
pub(super) const ENTRIES: u16 = 256;
const MEMORY: u64 = 4 << 20;
/// Most descriptors that the kernel takes with one message.
pub(super) const MOST_FDS: usize = 253;

/// One connection to the port under attack.
#[derive(Debug)]
pub(super) struct FrontEnd {
    path: PathBuf,
    is_sealed: bool,
    /// The connection.
    pub(super) stream: UnixStream,
    /// The guest's memory.
    pub(super) ram: Ram,
    /// The receive and the transmit queue, once they are set up.
    pub(super) queues: Vec<Queue>,
}

/// One queue, with its events.
#[derive(Debug)]
pub(super) struct Queue {
    /// Its addresses.
    pub(super) layout: QueueLayout,
    /// The fabric waits for it.
    pub(super) kick: OwnedFd,
    /// The fabric signals it.
    pub(super) call: OwnedFd,
    /// The fabric signals it when the ring is broken.
    pub(super) err: OwnedFd,
}

impl FrontEnd {
    /// Connects, and says nothing yet. Its memory is sealed against shrinking, or not.
    ///
    /// # Errors
    /// Nobody listens for a long time, or there is no memory.
    pub(super) fn connect(path: &Path, is_sealed: bool) -> io::Result<Self> {
        let end = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let ram = if is_sealed { Ram::new(MEMORY) } else { Ram::unsealed(MEMORY) };
        let ram = ram.map_err(io::Error::other)?;
        Ok(Self { path: path.to_owned(), is_sealed, stream, ram, queues: Vec::new() })
    }

    /// Makes another connection, which waits until this one has ended.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub(super) fn another(&self) -> io::Result<Self> {
        Self::connect(&self.path, self.is_sealed)
    }

    /// Sends bytes with descriptors.
    ///
    /// # Errors
    /// The fabric has closed the connection.
    pub(super) fn send_bytes(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_as(SendFlags::NOSIGNAL, bytes, fds)
    }

    /// Sends a request without a body, whose last byte is urgent and comes with the descriptors.
    ///
    /// # Errors
    /// As [`Self::send_bytes`].
    pub(super) fn send_urgent(&self, request: FrontendReq, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let header = header(request, VERSION, 0);
        let (last, others) = header.split_last().ok_or(ErrorKind::WriteZero)?;
        self.send_bytes(others, &[])?;
        self.send_as(SendFlags::NOSIGNAL | SendFlags::OOB, &[*last], fds)
    }

    fn send_as(&self, flags: SendFlags, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("too many descriptors for one message"));
        }
        let sent = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, flags)?;
        if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// As [`Self::send_bytes`].
    pub(super) fn send(&self, request: FrontendReq, body: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_bytes(&[&header(request, VERSION, body.len()), body].concat(), fds)
    }

    /// Sends a request and waits for its answer, or for its acknowledgement.
    ///
    /// # Errors
    /// The fabric has closed the connection or does not answer.
    pub(super) fn ask(
        &self,
        request: FrontendReq,
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<Vec<u8>> {
        let message = [&header(request, VERSION | NEED_REPLY, body.len()), body].concat();
        self.send_bytes(&message, fds)?;
        let mut header = [0; 12];
        (&self.stream).read_exact(&mut header)?;
        let size = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
        let mut answer = vec![0; size as usize];
        (&self.stream).read_exact(&mut answer)?;
        Ok(answer)
    }

    /// Negotiates, as every front end does first.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) fn negotiate(&self) -> io::Result<()> {
        self.send(FrontendReq::SET_PROTOCOL_FEATURES, &REPLY_ACK.to_ne_bytes(), &[])?;
        self.ask(FrontendReq::SET_OWNER, &[], &[])?;
        let offered = u64::from_ne_bytes(
            self.ask(FrontendReq::GET_FEATURES, &[], &[])?[..8].try_into().expect("eight"),
        );
        let wanted = features::VERSION_1
            | features::PROTOCOL_FEATURES
            | features::EVENT_IDX
            | features::INDIRECT_DESC
            | features::NET_CSUM
            | features::NET_HOST_TSO4
            | features::NET_HOST_TSO6;
        self.ask(FrontendReq::SET_FEATURES, &(offered & wanted).to_ne_bytes(), &[]).map(drop)
    }

    /// Shares the guest's memory.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) fn share_memory(&self) -> io::Result<()> {
        let spec = self.ram.spec();
        let table = memory_table(&[[spec.guest_addr, spec.size, spec.user_addr, 0]]);
        self.ask(FrontendReq::SET_MEM_TABLE, &table, &[self.ram.file()]).map(drop)
    }

    /// Negotiates, shares the memory and starts both rings, which are empty.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) fn set_up(&mut self) -> io::Result<()> {
        self.negotiate()?;
        self.share_memory()?;
        self.start_rings(ENTRIES)
    }

    /// Starts both rings, which are empty, in memory that is shared.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) fn start_rings(&mut self, entries: u16) -> io::Result<()> {
        for number in 0..2 {
            let layout = QueueLayout::allocate(&mut self.ram, entries).ok_or(ErrorKind::OutOfMemory)?;
            let queue = Queue { layout, kick: event()?, call: event()?, err: event()? };
            self.start(number, &queue)?;
            self.queues.push(queue);
        }
        Ok(())
    }

    /// Starts a ring at its first position.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) fn start(&self, number: u32, queue: &Queue) -> io::Result<()> {
        self.ask(FrontendReq::SET_VRING_NUM, &state(number, queue.layout.size.into()), &[])?;
        self.ask(FrontendReq::SET_VRING_ADDR, &addresses(number, queue.layout), &[])?;
        self.ask(FrontendReq::SET_VRING_BASE, &state(number, 0), &[])?;
        let word = u64::from(number).to_ne_bytes();
        self.ask(FrontendReq::SET_VRING_CALL, &word, &[queue.call.as_fd()])?;
        self.ask(FrontendReq::SET_VRING_ERR, &word, &[queue.err.as_fd()])?;
        self.ask(FrontendReq::SET_VRING_KICK, &word, &[queue.kick.as_fd()])?;
        self.ask(FrontendReq::SET_VRING_ENABLE, &state(number, 1), &[]).map(drop)
    }

    /// Writes into the guest's memory.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) {
        self.ram.memory().write(address, bytes).expect("acts write into their own memory");
    }

    /// Writes a descriptor of a split ring's table.
    pub(super) fn describe(&self, table: u64, index: u16, (addr, len): (u64, u32), flags: u16, next: u16) {
        let bytes = [&addr.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()];
        self.write(table + 16 * u64::from(index), &bytes.concat());
    }

    /// Makes the first entries of a queue's available ring name these descriptors, and kicks.
    pub(super) fn offer(&self, queue: usize, heads: &[u16]) {
        self.offer_from(queue, 0, heads);
    }

    /// Makes the entries of a queue's available ring from this index on name these descriptors, and
    /// kicks.
    pub(super) fn offer_from(&self, queue: usize, index: u16, heads: &[u16]) {
        let QueueLayout { avail, size, .. } = self.queues[queue].layout;
        let mut next = index;
        for head in heads {
            self.write(avail + 4 + 2 * u64::from(next % size), &head.to_le_bytes());
            next = next.wrapping_add(1);
        }
        self.write(avail + 2, &next.to_le_bytes());
        raise(&self.queues[queue].kick);
    }

    /// Waits until the fabric has returned descriptors of a queue up to this index.
    ///
    /// # Errors
    /// The fabric has not returned them for a long time.
    pub(super) fn await_used(&self, queue: usize, index: u16) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.used(queue) != index {
            if Instant::now() > end {
                let used = self.used(queue);
                let why = format!("queue {queue} was returned up to {used} instead of {index}");
                return Err(io::Error::other(why));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Index up to which the fabric has returned descriptors of a queue.
    pub(super) fn used(&self, queue: usize) -> u16 {
        let mut index = [0; 2];
        let used = self.queues[queue].layout.used;
        self.ram.memory().read(used + 2, &mut index).expect("acts read their own memory");
        u16::from_le_bytes(index)
    }

    /// Waits until the fabric closes the connection.
    pub(super) fn is_ended(&self) -> bool {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            match (&self.stream).read(&mut [0; 4096]) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            }
        }
        false
    }

    /// Waits until the fabric reports one of the rings as broken.
    pub(super) fn is_broken(&self) -> bool {
        self.breaks_within(PATIENCE)
    }

    /// Waits so long for a report of the fabric that one of the rings is broken.
    pub(super) fn breaks_within(&self, limit: Duration) -> bool {
        let mut polled: Vec<_> =
            self.queues.iter().map(|queue| PollFd::new(&queue.err, PollFlags::IN)).collect();
        let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
        matches!(poll(&mut polled, Some(&limit)), Ok(1..))
    }

    /// Tells whether the fabric still answers on this connection. Earlier answers that nobody has
    /// read are skipped.
    pub(super) fn is_served(&self) -> bool {
        let wanted = header(FrontendReq::GET_QUEUE_NUM, 0, 0);
        if self.send(FrontendReq::GET_QUEUE_NUM, &[], &[]).is_err() {
            return false;
        }
        loop {
            let mut header = [0; 12];
            if (&self.stream).read_exact(&mut header).is_err() {
                return false;
            }
            let size = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
            if (&self.stream).read_exact(&mut vec![0; size as usize]).is_err() {
                return false;
            }
            if header[..4] == wanted[..4] {
                return true;
            }
        }
    }
}

/// Builds the header of a message.
pub(super) fn header(request: FrontendReq, flags: u32, size: usize) -> Vec<u8> {
    [u32::from(request), flags, size as u32].map(u32::to_ne_bytes).concat()
}

/// Builds the body of a request with a queue and a number.
pub(super) fn state(queue: u32, number: u32) -> Vec<u8> {
    [queue, number].map(u32::to_ne_bytes).concat()
}

/// Builds the body of a request for a ring's addresses.
pub(super) fn addresses(queue: u32, layout: QueueLayout) -> Vec<u8> {
    let mut body = [queue, 0].map(u32::to_ne_bytes).concat();
    body.extend([layout.desc, layout.used, layout.avail, 0].map(u64::to_ne_bytes).concat());
    body
}

/// Builds a memory table of regions, each with guest address, size, user address and offset.
pub(super) fn memory_table(regions: &[[u64; 4]]) -> Vec<u8> {
    let mut body = [regions.len() as u32, 0].map(u32::to_ne_bytes).concat();
    for region in regions {
        body.extend(region.map(u64::to_ne_bytes).concat());
    }
    body
}

/// Makes an eventfd.
///
/// # Errors
/// Too many descriptors.
pub(super) fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Signals an eventfd.
pub(super) fn raise(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}
