//! The sandbox cannot be left, and a forbidden call ends the process. So what is tried inside runs
//! in a process of its own: this test program, which [`SCENARIO`] tells what to do.
#![allow(unsafe_code, reason = "system calls by number, and copies of the process to make them in")]

use std::collections::{BTreeSet, HashMap};
use std::ffi::{c_int, c_long};
use std::io::IoSlice;
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SeekFrom, fcntl_get_seals, memfd_create, seek};
use rustix::net::{SendFlags, SocketFlags, send};
use taut_api::fabric::{ForeignFd, channel, peek};

use super::calls::{WITHOUT, permitted};
use super::*;
use crate::sys::affinity::CpuAffinity;
use crate::sys::descriptor::is_eventfd;
use crate::sys::epoll::{Epoll, EventFlags, Waker, set_nonblocking};
use crate::sys::thread::Thread;
use crate::sys::thread::cpu_time;
use crate::sys::timer::Timer;
use crate::sys::watch;

/// Environment variable with what [`in_a_process_of_its_own`] is to do.
const SCENARIO: &str = "TAUT_SANDBOX_SCENARIO";

/// Most calls that may be permitted.
const MOST_CALLS: usize = 48;
/// Least share of rules that check arguments, and of calls that do, in per cent.
const LEAST_CHECKED: usize = 60;
/// `uretprobe` and `uprobe`, which Linux answers without asking filters from 6.14 and 6.18 on. They
/// have an effect only in code that the kernel itself has put into the process.
const UNFILTERED: [c_long; 2] = [335, 336];
/// The bit by which numbers of the x32 ABI differ.
const X32: c_long = 0x4000_0000;
/// Linux 6.18 has none from here on, for either ABI.
const END_OF_NUMBERS: c_long = 548;

#[test]
fn the_list_is_short_and_most_of_it_checks_arguments() {
    let calls = permitted(Own::find().unwrap());
    let numbers: BTreeSet<_> = calls.iter().map(|call| call.number).collect();
    assert_eq!(numbers.len(), calls.len(), "a call is listed twice");
    assert!(WITHOUT.iter().all(|number| !numbers.contains(number)));
    let checking = calls.iter().filter(|call| !call.rules.is_empty()).count();
    let checked: usize = calls.iter().map(|call| call.rules.len()).sum();
    let rules: usize = calls.iter().map(|call| call.rules.len().max(1)).sum();
    println!("the list: {checking} of {} calls and {checked} of {rules} rules check arguments", calls.len());
    assert!(calls.len() <= MOST_CALLS, "{} calls", calls.len());
    assert!(100 * checking >= LEAST_CHECKED * calls.len(), "{checking} of {} calls", calls.len());
    assert!(100 * checked >= LEAST_CHECKED * rules, "{checked} of {rules} rules");
}

#[test]
fn missing_landlock_is_an_error_unless_it_is_allowed() {
    let of = |status, may_be_missing| judge(&status, may_be_missing).map_err(|error| error.to_string());
    for may_be_missing in [false, true] {
        assert_eq!(of(RulesetStatus::FullyEnforced, may_be_missing), Ok(()));
        assert_eq!(of(RulesetStatus::PartiallyEnforced, may_be_missing), Ok(()));
    }
    assert_eq!(of(RulesetStatus::NotEnforced, true), Ok(()));
    let error = of(RulesetStatus::NotEnforced, false).unwrap_err();
    assert!(error.contains("no Landlock") && error.contains("hint: "), "{error}");
}

#[test]
fn what_the_fabric_does_works_inside() {
    let Output { status, stderr, .. } = run("works");
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
}

#[test]
fn every_other_system_call_ends_the_process() {
    let Output { status, stdout, stderr } = run("calls");
    print!("{}", String::from_utf8_lossy(&stdout));
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
}

#[test]
fn permitted_calls_with_other_arguments_end_the_process() {
    let Output { status, stderr, .. } = run("arguments");
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
}

#[test]
fn a_panic_inside_is_printed_and_ends_the_process() {
    let Output { status, stderr, .. } = run("panic");
    let stderr = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(PANICKED), "{status}: {stderr}");
    assert!(stderr.contains("thread 'doomed' panicked at") && stderr.contains("on purpose"), "{stderr}");
}

/// Runs a scenario in a process of its own.
fn run(scenario: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sys::sandbox::tests::in_a_process_of_its_own", "--nocapture"])
        .env(SCENARIO, scenario)
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap()
}

/// Tests nothing unless [`run`] has started the process.
#[test]
fn in_a_process_of_its_own() {
    match std::env::var(SCENARIO).as_deref() {
        Ok("works") => work(),
        Ok("calls") => try_every_call(),
        Ok("arguments") => try_other_arguments(),
        Ok("panic") => {
            enter().unwrap();
            Thread::start("doomed".to_owned(), || panic!("on purpose")).unwrap().join();
        }
        _ => {}
    }
}

/// Does everything that the fabric does with the kernel.
fn work() {
    let name = format!("taut-sandbox-test/{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let client = UnixStream::connect_addr(&address).unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    send(&client, b"CONNECT 1\n", SendFlags::empty()).unwrap();
    enter().unwrap();
    use_threads_and_memory();
    use_descriptors();
    serve_a_client(listener);
    let (client, mut answer) = (ForeignFd::own(client.into()), [0; 16]);
    assert_eq!(client.receive_bytes(&mut answer), Ok(9));
    assert_eq!((&answer[..9], client.receive_bytes(&mut answer.clone())), (&b"OK 2\nmore"[..], Ok(0)));
    exchange_messages(&here, &there);
    be_interrupted();
}

fn use_threads_and_memory() {
    let inside = || {
        CpuAffinity::default().bind(&[]).unwrap();
        cpu_time();
        // Keys of a map are random, and different for each thread.
        let map = HashMap::from([(1, vec![1_u8; 1 << 20])]);
        // The thread's heap grows, and shrinks again.
        drop((0..128).map(|_| vec![1_u8; 64 << 10]).collect::<Vec<_>>());
        let mut bytes = vec![0_u8; 1 << 20];
        bytes.resize(4 << 20, 1);
        std::thread::sleep(Duration::from_millis(1));
        std::thread::yield_now();
        map[&1][12345] + bytes[3 << 20]
    };
    for _ in 0..3 {
        let threads = [(); 16].map(|()| std::thread::Builder::new().name("inside".to_owned()).spawn(inside));
        for thread in threads {
            assert_eq!(thread.unwrap().join().unwrap(), 2);
        }
    }
}

fn use_descriptors() {
    let file = memfd_create("file", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&file, b"kept").unwrap();
    seek(&file, SeekFrom::Start(0)).unwrap();
    let mut kept = [0; 4];
    assert_eq!(rustix::io::read(&file, &mut kept), Ok(4));
    assert!(fcntl_get_seals(&file).is_ok() && !is_eventfd(file.as_fd()).unwrap());
    let event = Waker::new().unwrap();
    assert!(is_eventfd(event.as_fd()).unwrap());
    drop(event.as_fd().try_clone_to_owned().unwrap());
    let lost = event.as_fd().try_clone_to_owned().unwrap();
    taut_virtq::memory::survive_lost_pages(lost).unwrap();
    let (first, second) = (Epoll::new().unwrap(), Epoll::new().unwrap());
    let mut watched = first.watch(event.clone(), 7, EventFlags::IN).unwrap();
    watched.move_to(&second).unwrap();
    event.wake();
    let mut ready = Vec::new();
    second.wait(&mut ready, Some(Duration::from_secs(1))).unwrap();
    assert_eq!(ready, [(7, EventFlags::IN)]);
    event.clear();
    let mut timer = second.watch(Timer::new().unwrap(), 8, EventFlags::IN).unwrap();
    let now = Instant::now();
    timer.set(Some(now + Duration::from_millis(1)), now).unwrap();
    second.wait(&mut ready, Some(Duration::from_secs(10))).unwrap();
    assert_eq!(ready, [(8, EventFlags::IN)]);
    timer.clear();
}

fn serve_a_client(listener: UnixListener) {
    set_nonblocking(&listener).unwrap();
    let accepted = ForeignFd::own(listener.into()).accept(SocketFlags::NONBLOCK).unwrap();
    let mut line = [0; 16];
    assert_eq!(peek(&accepted, &mut line), Ok(10));
    assert_eq!(accepted.receive_bytes(&mut line), Ok(10));
    send(&accepted, b"OK 2\n", SendFlags::NOSIGNAL).unwrap();
    rustix::io::writev(&accepted, &[IoSlice::new(b"more")]).unwrap();
    rustix::net::shutdown(&accepted, rustix::net::Shutdown::Write).unwrap();
}

fn exchange_messages(here: &UnixStream, there: &UnixStream) {
    let soon = Duration::from_millis(10);
    channel::send_within(here, &"message", &[there.as_fd()], soon).unwrap();
    let (message, fds) = channel::receive_within::<String>(there, soon).unwrap().unwrap();
    assert_eq!((message.as_str(), fds.len()), ("message", 1));
    let late = channel::receive_within::<String>(there, soon).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
}

/// Has the watcher interrupt a write to an eventfd that is full and blocks.
fn be_interrupted() {
    let full = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let flags = rustix::fs::fcntl_getfl(&full).unwrap();
    rustix::fs::fcntl_setfl(&full, flags - rustix::fs::OFlags::NONBLOCK).unwrap();
    watch::start().unwrap();
    let blocked = std::thread::spawn(move || watch::signal(full.as_fd()));
    assert_eq!(blocked.join().unwrap(), Err(watch::Blocked));
}

/// How an attempt ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The call returned with this error, or with success if 0.
    Returned(i32),
    /// This signal ended the process.
    Killed(i32),
}

const ENDED: End = End::Killed(libc::SIGSYS);

fn try_every_call() {
    let numbers: BTreeSet<_> = permitted(Own::find().unwrap()).iter().map(|call| call.number).collect();
    let all = (0..END_OF_NUMBERS).flat_map(|number| [number, X32 | number]);
    let (mut tried, mut killed, mut others) = (0, 0, Vec::new());
    for number in all.filter(|number| !numbers.contains(number) && !UNFILTERED.contains(number)) {
        let expected = if WITHOUT.contains(&number) { End::Returned(libc::ENOSYS) } else { ENDED };
        let end = attempt(number, &[]);
        tried += 1;
        killed += usize::from(end == ENDED);
        if end != expected {
            others.push(format!("system call {number:#x}: {end:?}, expected {expected:?}"));
        }
    }
    println!("outside the list: {tried} numbers tried, {killed} killed");
    assert!(others.is_empty(), "{others:#?}");
}

fn try_other_arguments() {
    const ELSEWHERE: c_long = 1;
    const PRIVATE: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let long = c_long::from;
    let set_flags = [0, long(libc::F_SETFL), long(libc::O_ASYNC)];
    // Linux's number for the CPU time of process 1.
    let clock = !ELSEWHERE << 3 | 2;
    let attempts: &[(&str, c_long, &[c_long])] = &[
        ("a signal to another process", libc::SYS_tgkill, &[ELSEWHERE, ELSEWHERE, 0]),
        ("signals to another process", libc::SYS_fcntl, &[0, long(libc::F_SETOWN), ELSEWHERE]),
        ("another signal of a descriptor", libc::SYS_fcntl, &[0, 10, long(libc::SIGKILL)]),
        ("signals of a descriptor", libc::SYS_fcntl, &set_flags),
        ("pCPUs of another process", libc::SYS_sched_setaffinity, &[ELSEWHERE, 8, 0]),
        ("executable memory", libc::SYS_mmap, &[0, 4096, 7, long(PRIVATE), -1, 0]),
        ("memory becoming executable", libc::SYS_mprotect, &[0, 4096, long(libc::PROT_EXEC)]),
        ("memory at a fixed place", libc::SYS_mremap, &[0, 4096, 4096, 3, 4096]),
        ("advice to the file", libc::SYS_madvise, &[0, 4096, long(libc::MADV_REMOVE)]),
        ("a process", libc::SYS_clone, &[long(libc::SIGCHLD)]),
        ("a namespace", libc::SYS_clone, &[long(libc::CLONE_NEWUSER)]),
        ("being dumped", libc::SYS_prctl, &[long(libc::PR_SET_DUMPABLE), 1]),
        ("a link anywhere", libc::SYS_readlinkat, &[long(libc::AT_FDCWD), 0, 0, 0]),
        ("a receiver's address", libc::SYS_sendto, &[0, 0, 0, long(libc::MSG_NOSIGNAL), 8, 8]),
        ("a buffer's size", libc::SYS_setsockopt, &[0, long(libc::SOL_SOCKET), long(libc::SO_SNDBUF)]),
        ("senders' names", libc::SYS_setsockopt, &[0, long(libc::SOL_SOCKET), long(libc::SO_PASSCRED)]),
        ("urgent data", libc::SYS_sendto, &[0, 0, 0, long(libc::MSG_OOB), 0, 0]),
        ("a message to wait for", libc::SYS_recvmsg, &[0, 0, 0]),
        ("a client's address", libc::SYS_accept4, &[0, 8, 8, 0]),
        ("a change of an event", libc::SYS_epoll_ctl, &[0, long(libc::EPOLL_CTL_MOD), 0, 0]),
        ("an eventfd to inherit", libc::SYS_eventfd2, &[0, 0]),
        ("a file to seal", libc::SYS_memfd_create, &[0, 3]),
        ("a place in a file", libc::SYS_lseek, &[0, 1, 0]),
        ("two descriptors", libc::SYS_ppoll, &[0, 2, 0, 0]),
        ("a handler of SIGTERM", libc::SYS_rt_sigaction, &[long(libc::SIGTERM), 0, 0, 8]),
        ("waiters for another futex", libc::SYS_futex, &[0, long(libc::FUTEX_CMP_REQUEUE), 1, 1, 8]),
        ("another process's clock", libc::SYS_clock_gettime, &[clock, 0]),
    ];
    for (what, number, arguments) in attempts {
        assert_eq!(attempt(*number, arguments), ENDED, "{what}");
    }
    assert_eq!(attempt(libc::SYS_fcntl, &[-1, long(libc::F_GETFL)]), End::Returned(libc::EBADF));
}

/// Makes a system call in the sandbox, in a copy of this process.
fn attempt(number: c_long, arguments: &[c_long]) -> End {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: the only other thread of this process waits for this one to end, and holds no lock.
    // Therefore the copy may use memory and locks as this process does.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", io::Error::last_os_error());
    if child == 0 {
        call_and_exit(number, all);
    }
    let mut status = 0;
    // SAFETY: `status` is valid for the call's duration, and the child is this function's own.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    if libc::WIFSIGNALED(status) {
        End::Killed(libc::WTERMSIG(status))
    } else {
        End::Returned(libc::WEXITSTATUS(status))
    }
}

/// Enters the sandbox, makes a system call, and ends the process with its error.
fn call_and_exit(number: c_long, all: [c_long; 6]) -> ! {
    // SAFETY: the call has no preconditions. A call that should not wait, and does, ends here.
    unsafe { libc::alarm(10) };
    let error = match enter() {
        // SAFETY: a call that the sandbox forbids does nothing, and the permitted ones that are
        // tried have arguments that the kernel refuses.
        Ok(()) => match unsafe { libc::syscall(number, all[0], all[1], all[2], all[3], all[4], all[5]) } {
            -1 => io::Error::last_os_error().raw_os_error().unwrap_or(0),
            _ => 0,
        },
        Err(_) => 255,
    };
    // SAFETY: nothing has to be done before the end of this copy.
    unsafe { libc::_exit(error) }
}
