//! A fabric for tests: it connects two programs' ends of one connection, each of which is attached
//! or not. Socket pairs stand for vsock connections, files in memory for the VMs' devices.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use taut_queue_pair::memory::Copying;
use taut_queue_pair::message::{AttachAnswer, AttachRequest, REQUEST_LEN};
use taut_queue_pair::{Ends, Geometry, Memory, Region, Role, Status};

use super::end::{Counts, End, pass};
use crate::control::Transport;
use crate::{Attached, NotAttached, Options};

/// Length of each region.
pub(super) const LEN: u64 = 4 << 20;
/// The channel of every end.
const CHANNEL: u32 = 3;
/// Pause between two looks without bytes.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };

/// The memory of one VM.
pub(super) struct Device {
    file: File,
    pub(super) region: Region,
}

impl Device {
    pub(super) fn new() -> Self {
        let file = File::from(memfd_create("queue pairs", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(LEN).unwrap();
        let memory = Arc::new(Memory::map(file.as_fd(), 0, LEN as usize).unwrap());
        memory.write_header(&Geometry::of(LEN).unwrap().header());
        Self { file, region: Region::open(memory).unwrap() }
    }

    /// Path by which it can be opened.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    pub(super) fn options(&self, poll: Duration) -> Options {
        Options { device: Some(self.path()), poll, ..Options::default() }
    }
}

/// Requests to the fabric's thread.
enum Order {
    /// A program has connected to the service.
    Dial(usize, UnixStream),
    /// Resets both ends.
    Reset,
    /// Ends the thread as if it was killed.
    Die,
}

/// A running fabric with one connection.
pub(super) struct Fabric {
    pub(super) devices: [Device; 2],
    pub(super) counts: [Arc<Counts>; 2],
    orders: mpsc::Sender<Order>,
    kick: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Fabric {
    /// Starts a fabric that looks this many times without bytes before it waits. Also returns the
    /// programs' ends of the connection.
    pub(super) fn start(looks: u32) -> (Self, [UnixStream; 2]) {
        let devices = [Device::new(), Device::new()];
        let counts = [Arc::default(), Arc::default()];
        let (orders, receiver) = mpsc::channel();
        let (kick, kicked) = UnixStream::pair().unwrap();
        kicked.set_nonblocking(true).unwrap();
        let pairs = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
        let [(first, a), (second, b)] = pairs;
        let ends = [
            End::new(devices[0].region.clone(), a, Arc::clone(&counts[0])),
            End::new(devices[1].region.clone(), b, Arc::clone(&counts[1])),
        ];
        let thread = thread::spawn(move || Thread { ends, orders: receiver, kicked, looks }.run());
        (Self { devices, counts, orders, kick, thread: Some(thread) }, [first, second])
    }

    /// Attaches the end of one side.
    pub(super) fn attach(
        &self,
        side: usize,
        stream: &UnixStream,
        poll: Duration,
    ) -> Result<Attached, NotAttached> {
        Attached::attach_by(&Way(self, side), stream.as_fd(), &self.devices[side].options(poll))
    }

    pub(super) fn reset(&self) {
        self.order(Order::Reset);
    }

    /// Ends the fabric as if it was killed: all of its sockets are closed.
    pub(super) fn kill(&mut self) {
        self.order(Order::Die);
        self.thread.take().unwrap().join().unwrap();
    }

    fn order(&self, order: Order) {
        self.orders.send(order).unwrap();
        // The thread may have ended already, if the order was to do so.
        let _ = (&self.kick).write_all(&[0]);
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        if !thread::panicking() && self.thread.is_some() {
            self.kill();
        }
    }
}

/// The way of one side to the fabric.
struct Way<'a>(&'a Fabric, usize);

impl Transport for Way<'_> {
    fn request(&self, _stream: BorrowedFd<'_>) -> Result<AttachRequest, NotAttached> {
        Ok(AttachRequest { own_port: 1000 + self.1 as u32, peer_cid: 3, peer_port: 1001 - self.1 as u32 })
    }

    fn dial(&self, _until: Instant) -> Result<OwnedFd, Errno> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        self.0.order(Order::Dial(self.1, theirs));
        Ok(ours.into())
    }
}

struct Thread {
    ends: [End; 2],
    orders: mpsc::Receiver<Order>,
    kicked: UnixStream,
    looks: u32,
}

impl Thread {
    fn run(mut self) {
        let mut vain = 0;
        loop {
            let _ = (&self.kicked).read(&mut [0; 64]);
            while let Ok(order) = self.orders.try_recv() {
                match order {
                    Order::Dial(side, control) => self.attach(side, control),
                    Order::Reset => self.ends.iter_mut().for_each(End::reset),
                    Order::Die => return,
                }
            }
            self.ends.iter_mut().for_each(End::take_bells);
            if self.look() > 0 {
                vain = 0;
                continue;
            }
            vain += 1;
            if vain <= self.looks {
                self.sleep(Some(&PAUSE));
                continue;
            }
            self.ends.iter_mut().for_each(|end| end.set_waits(true));
            // The announcement may have come too late for the guest.
            if self.look() == 0 {
                self.sleep(None);
            }
            self.ends.iter_mut().for_each(|end| end.set_waits(false));
            vain = 0;
        }
    }

    fn look(&mut self) -> usize {
        let [a, b] = &mut self.ends;
        pass(a, b) + pass(b, a)
    }

    fn attach(&mut self, side: usize, mut control: UnixStream) {
        let mut request = [0; REQUEST_LEN];
        control.read_exact(&mut request).unwrap();
        let request = AttachRequest::from_bytes(&request).unwrap();
        assert_eq!(request.own_port, 1000 + side as u32);
        let end = &mut self.ends[side];
        if end.ends.is_some() {
            let answer = AttachAnswer::refusal(Status::AttachedAlready);
            return control.write_all(&answer.to_bytes()).unwrap();
        }
        let channel = end.region.channel(CHANNEL).unwrap();
        channel.clear();
        let answer = AttachAnswer { status: Status::Attached, channel: CHANNEL, by_packets: end.by_packets };
        control.write_all(&answer.to_bytes()).unwrap();
        control.set_nonblocking(true).unwrap();
        end.control = Some(control);
        end.ends = Some(Ends::new(&channel, Role::Fabric, Copying::Library));
    }

    fn sleep(&self, time: Option<&Timespec>) {
        let mut polled = vec![PollFd::new(&self.kicked, PollFlags::IN)];
        for (end, other) in [(&self.ends[0], &self.ends[1]), (&self.ends[1], &self.ends[0])] {
            if let Some(control) = &end.control {
                polled.push(PollFd::new(control, PollFlags::IN));
            }
            if !end.has_closed {
                let events =
                    if end.has_shut || other.lacks_room() { PollFlags::empty() } else { PollFlags::IN };
                polled.push(PollFd::new(&end.stream, events));
            }
        }
        // What an end that is not attached has no room for is tried again by time.
        let retry = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let all_attached = self.ends.iter().all(|end| end.ends.is_some());
        match poll(&mut polled, if all_attached { time } else { time.or(Some(&retry)) }) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => panic!("{errno}"),
        }
    }
}
