//! Descriptors of other kinds than expected, descriptors that block, and those whose close blocks.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, inotify, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use vhost::vhost_user::message::FrontendReq;

use super::front_end::{FrontEnd, MOST_FDS, event, memory_table, raise};
use super::{Act, Effect, Tools, claim, send_kick};
use crate::lingering;

/// Part of the reason that is given for a refused event descriptor.
const NO_EVENTFD: &str = "an event descriptor that is no eventfd";
/// Part of the reason that is given for refused memory.
const UNSEALED: &str = "is not sealed against shrinking";
/// Part of the reason that is given for an event descriptor that stopped a thread.
const BLOCKED: &str = "filled up an event descriptor and made it blocking";
/// Part of the reason that is given for descriptors that cannot be closed.
const CLOGGED: &str = "whose close does not end";
/// Time for which the server of the file system answers nobody.
const SILENCE: Duration = Duration::from_millis(50);
/// The same for a close that is reported.
const LONG_SILENCE: Duration = Duration::from_millis(3500);

type Make = fn(&Tools) -> io::Result<OwnedFd>;

const KINDS: &[(&str, Make)] = &[
    ("a full pipe", |_| full_pipe()),
    ("a socket", |_| Ok(UnixStream::pair()?.0.into())),
    ("a listening socket", |_| Ok(TcpListener::bind("127.0.0.1:0")?.into())),
    ("a TCP socket that lingers", |_| lingering_for(SILENCE)),
    ("an epoll set", |_| Ok(epoll::create(epoll::CreateFlags::CLOEXEC)?)),
    ("nested epoll sets", |_| nested()),
    ("a timer", |_| Ok(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?)),
    ("an inotify set", |_| Ok(inotify::init(inotify::CreateFlags::CLOEXEC)?)),
    ("a process", |_| Ok(pidfd_open(getpid(), PidfdFlags::empty())?)),
    ("a directory", |_| Ok(File::open("/")?.into())),
    ("a path", |_| Ok(OpenOptions::new().read(true).custom_flags(PATH).open("/")?.into())),
    ("a program", |_| Ok(File::open("/proc/self/exe")?.into())),
    ("/dev/null", |_| Ok(OpenOptions::new().write(true).open("/dev/null")?.into())),
    ("/dev/zero", |_| Ok(OpenOptions::new().read(true).write(true).open("/dev/zero")?.into())),
    ("/dev/random", |_| Ok(File::open("/dev/random")?.into())),
    ("a terminal", |_| Ok(OpenOptions::new().read(true).write(true).open("/dev/ptmx")?.into())),
    ("a network namespace", |_| Ok(File::open("/proc/self/ns/net")?.into())),
    ("memory without seals", |_| memory()),
    ("a FUSE file", |tools| tools.fuse.open()),
    ("a socket with FUSE files in its queue", |tools| carrier(&tools.fuse.open()?)),
];

/// `O_PATH`, as the standard library takes it.
const PATH: i32 = OFlags::PATH.bits().cast_signed();

/// Returns the acts of this group.
pub(super) fn acts() -> Vec<Act> {
    let mut acts = Vec::new();
    for &(kind, make) in KINDS {
        let roles = [
            ("kick", FrontendReq::SET_VRING_KICK),
            ("call", FrontendReq::SET_VRING_CALL),
            ("error", FrontendReq::SET_VRING_ERR),
        ];
        for (role, request) in roles {
            acts.push(Act::new(
                format!("{kind} as {role} descriptor"),
                Effect::Ended(NO_EVENTFD),
                move |front, tools| {
                    front.negotiate()?;
                    front.send(request, &0_u64.to_ne_bytes(), &[make(tools)?.as_fd()])
                },
            ));
        }
        acts.push(Act::new(format!("{kind} as memory"), Effect::Ended(UNSEALED), move |front, tools| {
            front.negotiate()?;
            send_memory(front, &make(tools)?)
        }));
    }
    acts.extend(events());
    acts.extend(closes());
    acts
}

/// Eventfds that are full, or block, or are used for everything.
fn events() -> Vec<Act> {
    vec![
        Act::new("a call eventfd that is full and blocks", Effect::Quarantined(BLOCKED), |front, _| {
            front.set_up()?;
            fill(&front.queues[1].call)?;
            set_blocking(&front.queues[1].call)?;
            send_frame(front);
            Ok(())
        }),
        Act::new("an error eventfd that is full and blocks", Effect::Quarantined(BLOCKED), |front, _| {
            front.set_up()?;
            fill(&front.queues[1].err)?;
            set_blocking(&front.queues[1].err)?;
            front.offer(1, &[9999]);
            Ok(())
        }),
        Act::new("a call eventfd that is full", Effect::Served, |front, _| {
            front.set_up()?;
            fill(&front.queues[1].call)?;
            send_frame(front);
            wait_for_frame(front)
        }),
        Act::new("a kick eventfd that is full", Effect::Served, |front, _| {
            front.set_up()?;
            fill(&front.queues[1].kick)?;
            // Full, it cannot tell the fabric of the frame, which may stay where it is.
            send_frame(front);
            Ok(())
        }),
        Act::new("eventfds that were made blocking", Effect::Served, |front, _| {
            front.set_up()?;
            for queue in &front.queues {
                [&queue.kick, &queue.call, &queue.err].into_iter().try_for_each(set_blocking)?;
            }
            send_frame(front);
            wait_for_frame(front)
        }),
        Act::new("one eventfd as kick, call and error of both queues", Effect::Served, |front, _| {
            front.set_up()?;
            let one = event()?;
            for queue in 0..2_u64 {
                for request in
                    [FrontendReq::SET_VRING_CALL, FrontendReq::SET_VRING_ERR, FrontendReq::SET_VRING_KICK]
                {
                    front.ask(request, &queue.to_ne_bytes(), &[one.as_fd()])?;
                }
            }
            send_frame(front);
            raise(&one);
            wait_for_frame(front)
        }),
        Act::new("a call eventfd that changes its mode all the time", Effect::Served, |front, _| {
            front.set_up()?;
            let desc = front.queues[1].layout.desc;
            front.describe(desc, 0, (desc, 72), 0, 0);
            for round in 0..200 {
                set_blocking(&front.queues[1].call)?;
                front.offer_from(1, round, &[0]);
                set_nonblocking(&front.queues[1].call)?;
            }
            Ok(())
        }),
    ]
}

/// Descriptors whose close waits for the attacker.
fn closes() -> Vec<Act> {
    vec![
        Act::new(
            "a FUSE file whose close is answered late, as kick",
            Effect::Ended(NO_EVENTFD),
            |front, tools| {
                front.negotiate()?;
                closed_late(tools, SILENCE, || send_kick(front, &tools.fuse.open()?))
            },
        ),
        Act::new(
            "a FUSE file whose close is answered late, as memory",
            Effect::Ended(UNSEALED),
            |front, tools| {
                front.negotiate()?;
                closed_late(tools, SILENCE, || send_memory(front, &tools.fuse.open()?))
            },
        ),
        Act::new(
            "a FUSE file whose close is not answered for long",
            Effect::Ended(NO_EVENTFD),
            |front, tools| {
                front.negotiate()?;
                closed_late(tools, LONG_SILENCE, || send_kick(front, &tools.fuse.open()?))
            },
        )
        .slow(),
        Act::new(
            "a FUSE file with a request that takes none",
            Effect::Ended("descriptors instead of"),
            |front, tools| {
                closed_late(tools, SILENCE, || {
                    front.send(FrontendReq::GET_FEATURES, &[], &[tools.fuse.open()?.as_fd()])
                })
            },
        ),
        Act::new(
            "a FUSE file with an urgent byte of a request that takes none",
            Effect::Ended("descriptors instead of"),
            |front, tools| {
                closed_late(tools, SILENCE, || {
                    front.send_urgent(FrontendReq::GET_FEATURES, &[tools.fuse.open()?.as_fd()])
                })
            },
        ),
        Act::new("a TCP socket that lingers for 50 ms, as kick", Effect::Ended(NO_EVENTFD), |front, _| {
            front.negotiate()?;
            let socket = lingering_for(SILENCE)?;
            send_kick(front, &socket)
        }),
        Act::new("a socket with lingering sockets in its queue", Effect::Ended(NO_EVENTFD), |front, _| {
            front.negotiate()?;
            let socket = lingering_for(SILENCE)?;
            send_kick(front, &carrier(&socket)?)
        }),
        Act::new(
            "lingering sockets that are left in the connection",
            Effect::Ended("is not one of"),
            |front, _| {
                front.negotiate()?;
                let socket = lingering_for(SILENCE)?;
                let mut bytes = [9999_u32, 1, 0].map(u32::to_ne_bytes).concat();
                bytes.resize(64, 0);
                front.send_bytes(&bytes, &[])?;
                // The fabric may have ended the session already.
                let _ = front.send_bytes(&[0; 12], &[socket.as_fd(); 3]);
                Ok(())
            },
        ),
        Act::new("more FUSE files than can be closed", Effect::Quarantined(CLOGGED), |front, tools| {
            front.negotiate()?;
            // A session ends with its first 253 descriptors.
            let again = front.another()?;
            closed_late(tools, LONG_SILENCE, || {
                let files = (0..MOST_FDS).map(|_| tools.fuse.open()).collect::<io::Result<Vec<_>>>()?;
                let fds: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
                front.send(FrontendReq::GET_FEATURES, &[], &fds)?;
                claim(front.is_ended(), "the first session was not ended")?;
                again.send(FrontendReq::GET_FEATURES, &[], &fds)
            })
        })
        .slow(),
    ]
}

/// Does `act`, whose descriptors' close is answered only after `silence`.
fn closed_late(tools: &Tools, silence: Duration, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    tools.fuse.withhold();
    let done = act();
    let end = Instant::now() + Duration::from_secs(10);
    while tools.fuse.waiting() == 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    let waited = tools.fuse.waiting() > 0;
    if waited {
        std::thread::sleep(silence);
    }
    tools.fuse.release();
    done.and_then(|()| claim(waited, "nobody has closed the file"))
}

fn send_memory(front: &FrontEnd, file: &OwnedFd) -> io::Result<()> {
    front.send(
        FrontendReq::SET_MEM_TABLE,
        &memory_table(&[[0x1_0000, 1 << 20, 0x1_0000, 0]]),
        &[file.as_fd()],
    )
}

/// Sends a frame of which nobody can make anything: the ring's own descriptors.
fn send_frame(front: &FrontEnd) {
    let desc = front.queues[1].layout.desc;
    front.describe(desc, 0, (desc, 72), 0, 0);
    front.offer(1, &[0]);
}

fn wait_for_frame(front: &FrontEnd) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    while front.used(1) == 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    claim(front.used(1) == 1, "the fabric has not taken the frame")
}

fn fill(event: &OwnedFd) -> io::Result<()> {
    let _ = rustix::io::read(event, &mut [0; 8]);
    rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes())?;
    Ok(())
}

fn set_blocking(fd: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? - OFlags::NONBLOCK)?)
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

/// The writing end of a pipe that is full and blocks.
fn full_pipe() -> io::Result<OwnedFd> {
    let (_reader, writer) = rustix::pipe::pipe()?;
    set_nonblocking(&writer)?;
    while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
    set_blocking(&writer)?;
    Ok(writer)
}

/// Epoll sets that watch each other, as deep as the kernel permits.
fn nested() -> io::Result<OwnedFd> {
    let mut inner: OwnedFd = event()?;
    for _ in 0..4 {
        let outer = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&outer, &inner, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        inner = outer;
    }
    Ok(inner)
}

fn memory() -> io::Result<OwnedFd> {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, 1 << 20)?;
    Ok(file)
}

/// A TCP socket whose close waits for this time.
fn lingering_for(time: Duration) -> io::Result<OwnedFd> {
    let (socket, peer) = lingering()?;
    // On a thread of its own: if the fabric is first, the last close is this process's.
    std::thread::spawn(move || {
        std::thread::sleep(time);
        drop(peer);
    });
    Ok(socket)
}

/// A socket in whose queue the descriptor waits.
fn carrier(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let (here, there) = UnixStream::pair()?;
    for _ in 0..8 {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [fd.as_fd()];
        claim(control.push(SendAncillaryMessage::ScmRights(&fds)), "no room for a descriptor")?;
        let sent = sendmsg(&here, &[io::IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL)?;
        claim(sent == 1, &ErrorKind::WriteZero.to_string())?;
    }
    Ok(there.into())
}
