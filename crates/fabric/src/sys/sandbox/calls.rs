//! The system calls that the process may make, and what their arguments may be.
//!
//! The list has what the fabric's code calls, and what the runtime calls for threads, memory and
//! the end of the process. Comments name the callers that are not obvious.

use std::io;
use std::os::fd::RawFd;

use libc::{c_int, c_long};

use crate::sys::{descriptor, watch};

/// A permitted system call.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) number: c_long,
    /// The call is permitted if all conditions of one rule hold. Without rules it is permitted with
    /// any arguments.
    pub(super) rules: Vec<Vec<Condition>>,
}

/// A condition for one argument: `argument & mask == value`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    /// Index of the argument, from 0.
    pub(super) argument: u8,
    pub(super) width: Width,
    pub(super) mask: u64,
    pub(super) value: u64,
}

/// The part of an argument that a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// The lower 32 bits. libc leaves the others of an `int` undefined.
    Int,
    /// 64 bits.
    Long,
}

/// Values of this process that the rules compare arguments with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    pid: c_int,
    /// The descriptor of `/proc/self/fd` that [`descriptor`] keeps.
    folder: RawFd,
    /// The signal by which [`watch`] interrupts a thread.
    interrupt: c_int,
}

impl Own {
    /// This process.
    pub(super) fn find() -> io::Result<Self> {
        Ok(Self {
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            folder: descriptor::folder_number()?,
            interrupt: watch::interrupt_signal(),
        })
    }
}

/// Calls that fail as if the kernel lacked them: libc tries them and does without.
///
/// * `clone3`: a filter cannot see its flags. libc then uses `clone`.
/// * `openat`: malloc reads whether memory is overcommitted, and how many CPUs there are.
/// * `sched_getaffinity`: the same number, and a part of what libc collects about a new thread for
///   the place of its stack.
/// * `set_robust_list`: announces mutexes that outlive their process. There are none.
pub(super) const WITHOUT: [c_long; 4] =
    [libc::SYS_clone3, libc::SYS_openat, libc::SYS_sched_getaffinity, libc::SYS_set_robust_list];

/// All permitted calls.
pub(super) fn permitted(own: Own) -> Vec<Call> {
    let parts = [messages(), descriptors(own), memory(), threads(own), signals(own), time()];
    parts.into_iter().flatten().collect()
}

/// Bytes and descriptors from and to others. No call takes or returns an address.
fn messages() -> Vec<Call> {
    const SEND: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    vec![
        any(libc::SYS_read),
        any(libc::SYS_write),
        any(libc::SYS_writev),
        with(libc::SYS_recvmsg, &[int(2, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC)])
            .or(&[int(2, libc::MSG_DONTWAIT | libc::MSG_PEEK)]),
        with(libc::SYS_sendmsg, &[int(2, SEND)]),
        // Runs of frames to packet sockets.
        with(libc::SYS_sendmmsg, &[int(3, SEND)]),
        with(libc::SYS_sendto, &[within(3, SEND), null(4)]),
        // `SO_OOBINLINE` keeps urgent bytes in their place among the others.
        with(libc::SYS_setsockopt, &[int(1, libc::SOL_SOCKET), int(2, libc::SO_OOBINLINE)]),
        with(libc::SYS_shutdown, &[within(1, libc::SHUT_WR | libc::SHUT_RDWR)]),
    ]
}

/// Descriptors: new ones, events on them, and what they are.
fn descriptors(own: Own) -> Vec<Call> {
    const ACCEPTED: c_int = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // `O_ASYNC` would have the kernel send signals.
    let set_flags = [int(1, libc::F_SETFL), without(2, libc::O_ASYNC)];
    vec![
        with(libc::SYS_accept4, &[null(1), null(2), within(3, ACCEPTED)]),
        with(libc::SYS_eventfd2, &[int(0, 0), int(1, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)]),
        with(libc::SYS_epoll_create1, &[int(0, libc::EPOLL_CLOEXEC)]),
        among(libc::SYS_epoll_ctl, 1, &[libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_DEL]),
        any(libc::SYS_epoll_pwait2),
        // The connection to `tautd` waits for room, or for the rest of a message.
        with(libc::SYS_ppoll, &[int(1, 1), null(3)]),
        any(libc::SYS_close),
        // `F_GETFD`: builds with assertions check what they close.
        among(libc::SYS_fcntl, 1, &[libc::F_GETFL, libc::F_GETFD, libc::F_DUPFD_CLOEXEC, libc::F_GET_SEALS])
            .or(&set_flags),
        any(libc::SYS_fstat),
        with(libc::SYS_readlinkat, &[int(0, own.folder)]),
        // A file without a name, for what the next fabric takes over, and the way back to its
        // beginning. Nothing can execute it.
        with(libc::SYS_memfd_create, &[int(1, libc::MFD_CLOEXEC.cast_signed())]),
        with(libc::SYS_lseek, &[null(1), int(2, libc::SEEK_SET)]).or(&[null(1), int(2, libc::SEEK_CUR)]),
    ]
}

/// Memory, none of which can be executed.
fn memory() -> Vec<Call> {
    const DATA: c_int = libc::PROT_READ | libc::PROT_WRITE;
    /// Guards of stacks, in libc from 2.42 on. The `libc` crate does not name them.
    const GUARD_INSTALL: c_int = 102;
    const GUARD_REMOVE: c_int = 103;
    let advices =
        [libc::MADV_DONTNEED, libc::MADV_DONTDUMP, libc::MADV_HUGEPAGE, GUARD_INSTALL, GUARD_REMOVE];
    vec![
        with(libc::SYS_mmap, &[within(2, DATA)]),
        with(libc::SYS_mprotect, &[within(2, DATA)]),
        with(libc::SYS_mremap, &[int(3, libc::MREMAP_MAYMOVE)]),
        any(libc::SYS_munmap),
        any(libc::SYS_brk),
        among(libc::SYS_madvise, 2, &advices),
    ]
}

/// Threads of this process, and its end.
fn threads(own: Own) -> Vec<Call> {
    const THREAD: c_int = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    const FUTEX: c_int = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let futex = |operation| [masked(1, FUTEX, operation)];
    vec![
        with(libc::SYS_clone, &[int(0, THREAD)]),
        with(libc::SYS_futex, &futex(libc::FUTEX_WAIT))
            .or(&futex(libc::FUTEX_WAKE))
            .or(&futex(libc::FUTEX_WAIT_BITSET)),
        // libc's part of a new thread. It ends the process if `rseq` fails.
        with(libc::SYS_rseq, &[int(2, 0)]),
        any(libc::SYS_sigaltstack),
        // The thread's name, and names of mappings if libc is told to give them.
        with(libc::SYS_prctl, &[int(0, libc::PR_SET_NAME)])
            .or(&[int(0, libc::PR_SET_VMA), int(1, libc::PR_SET_VMA_ANON_NAME)]),
        any(libc::SYS_gettid),
        any(libc::SYS_getpid),
        any(libc::SYS_sched_yield),
        // A thread binds itself and no other: the kernel would permit other processes of the user.
        with(libc::SYS_sched_setaffinity, &[int(0, 0)]),
        with(libc::SYS_tgkill, &[int(0, own.pid)]),
        any(libc::SYS_exit),
        any(libc::SYS_exit_group),
    ]
}

/// Handlers of signals. Those of `SIGABRT` and `SIGSEGV` are put back when the process is to die by
/// them.
fn signals(own: Own) -> Vec<Call> {
    /// libc's own signal for changes of users, which it prepares with the first thread.
    const OF_LIBC: c_int = 33;
    vec![
        among(
            libc::SYS_rt_sigaction,
            0,
            &[own.interrupt, libc::SIGBUS, libc::SIGABRT, libc::SIGSEGV, OF_LIBC],
        ),
        with(libc::SYS_rt_sigprocmask, &[within(0, libc::SIG_UNBLOCK | libc::SIG_SETMASK)]),
        any(libc::SYS_rt_sigreturn),
        // The kernel's own, after a process that slept was stopped and goes on.
        any(libc::SYS_restart_syscall),
    ]
}

/// Time and random numbers. Clocks of other processes are not among these.
fn time() -> Vec<Call> {
    const CLOCKS: [c_int; 2] = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC];
    const READ: [c_int; 3] = [CLOCKS[0], CLOCKS[1], libc::CLOCK_THREAD_CPUTIME_ID];
    let random = libc::GRND_NONBLOCK | libc::GRND_RANDOM | libc::GRND_INSECURE;
    vec![
        among(libc::SYS_clock_gettime, 0, &READ),
        among(libc::SYS_clock_nanosleep, 0, &CLOCKS),
        with(libc::SYS_timerfd_create, &[int(0, libc::CLOCK_MONOTONIC)]),
        with(libc::SYS_timerfd_settime, &[int(1, 0)]),
        with(libc::SYS_getrandom, &[within(2, random.cast_signed())]),
    ]
}

/// A call with any arguments.
fn any(number: c_long) -> Call {
    Call { number, rules: Vec::new() }
}

/// A call whose arguments meet all of these conditions.
fn with(number: c_long, conditions: &[Condition]) -> Call {
    Call { number, rules: vec![conditions.to_vec()] }
}

/// A call one of whose arguments has one of these values.
fn among(number: c_long, argument: u8, values: &[c_int]) -> Call {
    Call { number, rules: values.iter().map(|&value| vec![int(argument, value)]).collect() }
}

impl Call {
    /// Permits the call with other arguments as well.
    fn or(mut self, conditions: &[Condition]) -> Self {
        self.rules.push(conditions.to_vec());
        self
    }
}

/// The argument, an `int`, has this value.
fn int(argument: u8, value: c_int) -> Condition {
    masked(argument, !0, value)
}

/// The argument, an `int`, has no bits but these.
fn within(argument: u8, bits: c_int) -> Condition {
    masked(argument, !bits, 0)
}

/// The argument, an `int`, has none of these bits.
fn without(argument: u8, bits: c_int) -> Condition {
    masked(argument, bits, 0)
}

/// The argument, an `int`, has this value in the bits of the mask.
fn masked(argument: u8, mask: c_int, value: c_int) -> Condition {
    let [mask, value] = [mask, value].map(|bits| u64::from(bits.cast_unsigned()));
    Condition { argument, width: Width::Int, mask, value }
}

/// The argument, a pointer or an offset, is 0.
fn null(argument: u8) -> Condition {
    Condition { argument, width: Width::Long, mask: !0, value: 0 }
}
