//! The sandbox that the process enters before it serves.
//!
//! The process parses bytes that guests write, so it must be able only to move bytes between
//! descriptors that it was given. Four independent mechanisms ensure that: no new privileges, no
//! capabilities, no file system (Landlock), and a list of permitted system calls (seccomp), none of
//! which opens, connects, executes or inspects another process. Other calls fail with `EPERM`, so
//! that a library which can do without such a call continues. The process leaves no core dump, and
//! no other process of its user may look into its memory.

use std::collections::BTreeMap;
use std::io;

use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use tracing::{info, warn};

/// Reasons why the sandbox cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A privilege could not be dropped.
    #[error("cannot give up {what}")]
    Privileges {
        /// The privilege.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel has Landlock but refuses the rules.
    #[error("cannot close the file system")]
    Landlock(#[source] landlock::RulesetError),
    /// The kernel refuses the system call filter.
    #[error("cannot install the system call filter")]
    Seccomp(#[source] seccompiler::Error),
}

/// Enters the sandbox with this thread and all threads that it starts afterwards.
///
/// Call it before the process has other threads.
pub fn enter() -> Result<(), SandboxError> {
    forbid_core_dumps()?;
    drop_privileges()?;
    close_file_system()?;
    filter_system_calls()?;
    info!("sandboxed: no capabilities, no files, system calls filtered");
    Ok(())
}

fn failed(what: &'static str) -> impl Fn(rustix::io::Errno) -> SandboxError {
    move |source| SandboxError::Privileges { what, source: source.into() }
}

/// The process has copies of frames and socket data of all guests. The limit alone would not do:
/// the kernel ignores it when a program takes the dumps.
fn forbid_core_dumps() -> Result<(), SandboxError> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(failed("core dumps"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("core dumps"))
}

fn drop_privileges() -> Result<(), SandboxError> {
    rustix::thread::set_no_new_privs(true).map_err(failed("gaining privileges"))?;
    let held = rustix::thread::capabilities(None).map_err(failed("capabilities"))?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            // EINVAL: this kernel does not know the capability.
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(failed("the bounding set")(error)),
            }
        }
    }
    rustix::thread::clear_ambient_capability_set().map_err(failed("ambient capabilities"))?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(failed("capabilities"))
}

fn close_file_system() -> Result<(), SandboxError> {
    // Without rules, every handled access is forbidden.
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(SandboxError::Landlock)?;
    if status.ruleset == RulesetStatus::NotEnforced {
        warn!("this kernel has no Landlock; the system call filter alone keeps files closed");
    }
    Ok(())
}

/// Permitted system calls: the fabric's own, and those of the runtime for threads and memory.
const ALLOWED: &[libc::c_long] = &[
    // Bytes, events, and descriptors received in messages.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_getsockopt,
    libc::SYS_lseek,
    // The kind of a received descriptor.
    libc::SYS_readlinkat,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    // A file without a name, for what the next fabric takes over. Nothing can execute it.
    libc::SYS_memfd_create,
    // Threads.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    // Time and random numbers.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
];

fn filter_system_calls() -> Result<(), SandboxError> {
    for program in [no_clone3(), allow_list()] {
        let program: BpfProgram = program
            .and_then(TryInto::try_into)
            .map_err(|error| SandboxError::Seccomp(seccompiler::Error::Backend(error)))?;
        seccompiler::apply_filter(&program).map_err(SandboxError::Seccomp)?;
    }
    Ok(())
}

type Filter = Result<SeccompFilter, seccompiler::BackendError>;

/// Makes `clone3` fail as if the kernel lacked it.
///
/// A filter cannot see the flags of `clone3`. libc then uses `clone`, whose flags it can see.
fn no_clone3() -> Filter {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, missing, arch()?)
}

/// Permits the listed calls, and `clone` for threads only.
fn allow_list() -> Filter {
    let thread = libc::CLONE_THREAD as u64;
    let starts_thread =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(thread), thread)?;
    let mut rules: BTreeMap<_, _> = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![starts_thread])?]);
    SeccompFilter::new(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow, arch()?)
}

fn arch() -> Result<TargetArch, seccompiler::BackendError> {
    std::env::consts::ARCH.try_into()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::ErrorKind::PermissionDenied;
    use std::net::Shutdown;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::process::Command;

    use super::*;

    /// Enters the sandbox on a thread of its own, so that the test process stays outside.
    #[test]
    fn the_sandbox_forbids_files_connections_and_programs_and_permits_threads_and_memory() {
        let inside = std::thread::spawn(|| {
            enter().unwrap();
            assert_eq!(File::open("/proc/self/status").unwrap_err().kind(), PermissionDenied);
            assert_eq!(File::create("/tmp/from-the-sandbox").unwrap_err().kind(), PermissionDenied);
            assert_eq!(UnixStream::connect("/run/nothing").unwrap_err().kind(), PermissionDenied);
            assert_eq!(UnixListener::bind("/tmp/from-the-sandbox").unwrap_err().kind(), PermissionDenied);
            assert!(Command::new("/bin/true").spawn().is_err());
            let memory = std::thread::spawn(|| vec![1_u8; 64 << 20]).join().unwrap();
            assert_eq!(memory[12345], 1);
            let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::io::write(&file, b"kept").unwrap();
            rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
            let mut kept = [0; 4];
            assert_eq!(rustix::io::read(&file, &mut kept).unwrap(), 4);
        });
        inside.join().unwrap();
        assert!(File::open("/proc/self/status").is_ok(), "the whole process is in the sandbox");
    }

    /// Serving programs of the host needs accept, read, write, watch and shutdown on sockets opened
    /// outside. Connecting is forbidden even for addresses outside the file system.
    #[test]
    fn sockets_from_outside_work_in_the_sandbox_and_no_others_can_be_created() {
        let name = format!("taut-sandbox-test/{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let client = UnixStream::connect_addr(&address).unwrap();
        rustix::net::send(&client, b"CONNECT 1\n", rustix::net::SendFlags::empty()).unwrap();
        let inside = std::thread::spawn(move || {
            enter().unwrap();
            let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
            let accepted = rustix::net::accept_with(&listener, flags).unwrap();
            crate::sys::epoll::set_nonblocking(&listener).unwrap();
            let epoll = crate::sys::epoll::Epoll::new().unwrap();
            let accepted = epoll.watch(accepted, 7, crate::sys::epoll::EventFlags::IN).unwrap();
            let mut ready = Vec::new();
            epoll.wait(&mut ready, None).unwrap();
            assert_eq!(ready, [(7, crate::sys::epoll::EventFlags::IN)]);
            let mut line = [0; 16];
            for flags in [rustix::net::RecvFlags::PEEK, rustix::net::RecvFlags::empty()] {
                assert_eq!(rustix::net::recv(&*accepted, &mut line, flags).unwrap(), (10, 10));
            }
            rustix::net::send(&*accepted, b"OK 2\n", rustix::net::SendFlags::NOSIGNAL).unwrap();
            rustix::io::writev(&*accepted, &[io::IoSlice::new(b"more")]).unwrap();
            let stream = UnixStream::from(accepted.try_clone().unwrap());
            stream.shutdown(Shutdown::Write).unwrap();
            assert!(stream.take_error().unwrap().is_none());
            assert_eq!(UnixStream::connect_addr(&address).unwrap_err().kind(), PermissionDenied);
            assert_eq!(UnixStream::pair().unwrap_err().kind(), PermissionDenied);
        });
        inside.join().unwrap();
        assert_eq!(io::read_to_string(client).unwrap(), "OK 2\nmore");
    }
}
