//! Programs that wait by io_uring, which bypasses the C library.
#![allow(unsafe_code, reason = "a ring is memory that the kernel shares")]

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Scenario;
use crate::calls::{answer, epoll, epoll_wait, owned};

pub(crate) const SCENARIOS: &[Scenario] = &[("accepted_by_a_ring", accepted_by_a_ring)];

// linux/io_uring.h
const EPOLL_CTL: u8 = 29;
const ACCEPT: u8 = 13;
const ACCEPT_MULTISHOT: u16 = 1;
const ENTER_GETEVENTS: u32 = 1;
const CQE_MORE: u32 = 2;

/// `struct io_uring_sqe`, as far as it is used here.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Submission {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    address2: u64,
    address: u64,
    len: u32,
    rest: [u32; 9],
}

/// `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Completion {
    data: u64,
    result: i32,
    flags: u32,
}

/// A ring of one submission at a time, with the default layout of the kernel.
struct Ring {
    fd: OwnedFd,
    rings: NonNull<u8>,
    submissions: NonNull<Submission>,
    parameters: [u32; 30],
}

impl Ring {
    fn new() -> Option<Self> {
        let mut parameters = [0u32; 30];
        // SAFETY: the structure has 120 bytes, all this frame's.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, parameters.as_mut_ptr()) };
        if fd < 0 {
            return None;
        }
        let fd = owned(fd as i32);
        let map = |offset: i64, len: usize| {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
            // SAFETY: new memory of the kernel's ring.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd.as_raw_fd(), offset) };
            assert_ne!(at, libc::MAP_FAILED);
            NonNull::new(at.cast::<u8>()).unwrap()
        };
        // IORING_FEAT_SINGLE_MMAP: both rings are in one piece.
        assert_eq!(parameters[5] & 1, 1);
        let (rings, submissions) = (map(0, 4096), map(0x1000_0000, 4096).cast());
        Some(Self { fd, rings, submissions, parameters })
    }

    /// A word of the rings. `place` is the place of its offset in `struct io_uring_params`.
    fn word(&self, place: usize) -> &AtomicU32 {
        // SAFETY: the offsets are the kernel's, within the mapping.
        unsafe { self.rings.add(self.parameters[place] as usize).cast::<AtomicU32>().as_ref() }
    }

    fn submit(&self, submission: Submission) {
        let (tail, mask) = (self.word(11), self.word(12));
        let place = tail.load(Ordering::Relaxed) & mask.load(Ordering::Relaxed);
        // SAFETY: the place is within the ring.
        unsafe { self.submissions.add(place as usize).write(submission) };
        // SAFETY: the index array lies at its offset in the ring.
        unsafe {
            self.rings.add(self.parameters[16] as usize).cast::<u32>().add(place as usize).write(place);
        }
        tail.fetch_add(1, Ordering::Release);
        assert_eq!(self.enter(1, 0), 1);
    }

    fn enter(&self, submitted: u32, wanted: u32) -> i32 {
        let flags = if wanted > 0 { ENTER_GETEVENTS } else { 0 };
        // SAFETY: takes numbers.
        let result = unsafe {
            libc::syscall(libc::SYS_io_uring_enter, self.fd.as_raw_fd(), submitted, wanted, flags, 0, 0)
        };
        answer(result as i32).unwrap()
    }

    fn completion(&self) -> Completion {
        let (head, tail, mask) = (self.word(20), self.word(21), self.word(22));
        let at = head.load(Ordering::Relaxed);
        while tail.load(Ordering::Acquire) == at {
            self.enter(0, 1);
        }
        let place = (at & mask.load(Ordering::Relaxed)) as usize;
        // SAFETY: the entries lie at their offset in the ring, and this one is complete.
        let completion =
            unsafe { self.rings.add(self.parameters[25] as usize).cast::<Completion>().add(place).read() };
        head.fetch_add(1, Ordering::Release);
        completion
    }
}

fn accept(ring: &Ring, listener: &TcpListener, flags: u16) {
    ring.submit(Submission {
        opcode: ACCEPT,
        priority: flags,
        fd: listener.as_raw_fd(),
        ..Submission::default()
    });
}

fn close(fd: RawFd) {
    // SAFETY: the ring has just accepted it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

fn accepted_by_a_ring() {
    let Some(ring) = Ring::new() else {
        println!("no rings");
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    accept(&ring, &listener, 0);
    let client = TcpStream::connect(address).unwrap();
    let accepted = ring.completion().result;
    println!("accepted: {}", accepted >= 0);
    close(accepted);
    drop(client);
    accept(&ring, &listener, ACCEPT_MULTISHOT);
    for round in 0..3 {
        let _client = TcpStream::connect(address).unwrap();
        let completion = ring.completion();
        println!("round {round}: {} {}", completion.result >= 0, completion.flags & CQE_MORE != 0);
        close(completion.result);
    }
    // The ring continues to accept from this listener.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let epoll = epoll();
    let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
    ring.submit(Submission {
        opcode: EPOLL_CTL,
        fd: epoll.as_raw_fd(),
        len: libc::EPOLL_CTL_ADD as u32,
        address2: listener.as_raw_fd() as u64,
        address: (&raw const event) as u64,
        ..Submission::default()
    });
    println!("watched: {}", ring.completion().result);
    let _client = TcpStream::connect(address).unwrap();
    println!("event: {:?}", epoll_wait(epoll.as_raw_fd(), 1000));
    println!("accept: {}", listener.accept().is_ok());
}
