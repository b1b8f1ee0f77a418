//! Descriptors of every kind that a front end may send as an event or as guest memory.
//!
//! Input: 1 byte for the rules, 2 bytes for the guest's memory in MiB, then offers: 1 byte for the
//! kind of the descriptor, 1 for its use, and 8 bytes with the size of a region.

use std::cell::OnceCell;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create,
    open,
};
use rustix::io::{Errno, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::pipe;
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
use taut_api::Bytes;
use taut_api::fabric::config::FrontEndRules;
use taut_api::fabric::session::MemoryRecord;
use taut_fabric::vhost_user::SessionError;
use taut_fabric::vhost_user::session::rig::{admit_event, check_memory};

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "descriptors", run, budget: Budget::of(50, 1) };

/// Most offers of an input.
const OFFERS: usize = 24;
/// Memory beyond the guest's own that a front end may bring.
const SPARE: u64 = 64 << 20;

/// A descriptor that somebody offers.
#[derive(Debug)]
struct Sample {
    fd: OwnedFd,
    is_eventfd: bool,
    /// Nobody can shorten it.
    is_sealed: bool,
}

thread_local! {
    static SAMPLES: OnceCell<Vec<Sample>> = const { OnceCell::new() };
}

/// One descriptor of each kind.
fn samples() -> Vec<Sample> {
    let event = |flags| eventfd(0, flags).expect("an eventfd");
    let full = event(EventfdFlags::empty());
    write(&full, &(u64::MAX - 1).to_ne_bytes()).expect("an empty eventfd takes it");
    let memory = |name: &str, seals| {
        let file = memfd_create(name, MemfdFlags::ALLOW_SEALING).expect("a memfd");
        ftruncate(&file, 1 << 16).expect("its length");
        fcntl_add_seals(&file, seals).expect("seals");
        file
    };
    let path = |path: &str, flags| open(path, flags, Mode::empty()).expect("a file that is always there");
    let (reader, writer) = pipe().expect("a pipe");
    let (socket, _) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)
        .expect("a socket pair");
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty()).expect("a timer");
    let unlike = [
        reader,
        writer,
        socket,
        timer,
        epoll::create(epoll::CreateFlags::empty()).expect("an epoll instance"),
        path("/dev/null", OFlags::RDWR),
        path("/", OFlags::RDONLY | OFlags::DIRECTORY),
        path("/dev/null", OFlags::PATH),
        memory("anon_inode:[eventfd]", SealFlags::empty()),
        memory("grows", SealFlags::GROW),
    ];
    let of = |is_eventfd, is_sealed| move |fd| Sample { fd, is_eventfd, is_sealed };
    let events = [event(EventfdFlags::empty()), event(EventfdFlags::SEMAPHORE), full];
    let sealed = [
        memory("sealed", SealFlags::SHRINK),
        memory("frozen", SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL),
    ];
    let all = events.into_iter().map(of(true, false)).chain(unlike.into_iter().map(of(false, false)));
    all.chain(sealed.into_iter().map(of(false, true))).collect()
}

fn run(data: &[u8]) {
    SAMPLES.with(|all| run_with(all.get_or_init(samples), data));
}

fn run_with(samples: &[Sample], data: &[u8]) {
    let mut input = Input(data);
    let (bits, mib) = (input.u8(), input.u16());
    let memory = (bits & 1 != 0).then(|| Bytes::mib(mib.into()));
    let rules = FrontEndRules { memory, trusted: bits & 2 != 0 };
    let mut regions = Vec::new();
    for _ in 0..OFFERS {
        if input.is_empty() {
            break;
        }
        let (kind, usage) = (input.u8(), input.u8());
        let sample = &samples[usize::from(kind) % samples.len()];
        if usage & 1 == 0 {
            offer_event(&rules, sample);
        } else {
            let size = u64::from_le_bytes(input.array()) >> (usage & 0x3e);
            let guest_addr = regions.len() as u64 + 1;
            regions.push((sample, MemoryRecord { guest_addr, user_addr: 0, size, file_offset: 0 }));
        }
    }
    offer_memory(&rules, &regions);
}

/// An event descriptor is admitted if it is an eventfd, or if its owner is trusted. It never blocks
/// afterwards.
fn offer_event(rules: &FrontEndRules, sample: &Sample) {
    // Admission changes the mode, which all copies share. Descriptors that only name a path have
    // none.
    if let Ok(flags) = fcntl_getfl(&sample.fd) {
        let _ = fcntl_setfl(&sample.fd, flags - OFlags::NONBLOCK);
    }
    let copy = sample.fd.try_clone().expect("a descriptor");
    match admit_event(rules, copy) {
        Ok(admitted) => {
            assert!(sample.is_eventfd || rules.trusted, "{sample:?} is no eventfd");
            let flags = fcntl_getfl(&*admitted).expect("flags");
            assert!(flags.contains(OFlags::NONBLOCK), "{sample:?} may block");
            if sample.is_eventfd {
                // The kernel accepts it, or says that it is full. A blocking one would stop here.
                let written = write(admitted.as_fd(), &1_u64.to_ne_bytes());
                assert!(matches!(written, Ok(8) | Err(Errno::AGAIN)), "{written:?}");
            }
        }
        Err(SessionError::NotAnEventfd) => assert!(!sample.is_eventfd && !rules.trusted, "{sample:?}"),
        Err(error) => assert!(!sample.is_eventfd, "{sample:?}: {error}"),
    }
}

/// Memory is admitted if it is not more than the guest's, and all of it is sealed or its owner is
/// trusted.
fn offer_memory(rules: &FrontEndRules, regions: &[(&Sample, MemoryRecord)]) {
    let records: Vec<_> = regions.iter().map(|(_, record)| *record).collect();
    let files: Vec<_> =
        regions.iter().map(|(sample, _)| sample.fd.try_clone().expect("a descriptor")).collect();
    let sum: u128 = records.iter().map(|record| u128::from(record.size)).sum();
    let is_too_much = rules.memory.is_some_and(|memory| sum > u128::from(memory.0 + SPARE));
    let unsealed = regions.iter().find(|(sample, _)| !sample.is_sealed && !rules.trusted);
    match check_memory(rules, &records, files) {
        Ok(()) => assert!(!is_too_much && unsealed.is_none(), "{records:?}"),
        Err(SessionError::TooMuchMemory { .. }) => assert!(is_too_much, "{sum} bytes"),
        Err(SessionError::Unsealed(addr)) => {
            assert_eq!(unsealed.map(|(_, record)| record.guest_addr), Some(addr));
        }
        Err(error) => panic!("{error}"),
    }
}
