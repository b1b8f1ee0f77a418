use std::collections::BTreeSet;

use super::*;

/// The answer of a filter to one call, by the rules of classic BPF. Only the instructions that
/// occur are known.
fn answer(program: &[sock_filter], call: i64, arguments: [u64; 6]) -> u32 {
    // struct seccomp_data: number, architecture, instruction pointer, arguments.
    let mut data = [0_u8; 64];
    data[..4].copy_from_slice(&(call as u32).to_ne_bytes());
    data[4..8].copy_from_slice(&0xC000_003E_u32.to_ne_bytes());
    for (at, argument) in arguments.into_iter().enumerate() {
        data[16 + 8 * at..24 + 8 * at].copy_from_slice(&argument.to_ne_bytes());
    }
    let (mut at, mut value) = (0, 0_u32);
    loop {
        let sock_filter { code, jt, jf, k } = program[at].clone();
        at += 1;
        let jump = |is_so: bool| usize::from(if is_so { jt } else { jf });
        match code {
            0x20 => value = u32::from_ne_bytes(data[k as usize..k as usize + 4].try_into().unwrap()),
            0x54 => value &= k,
            0x05 => at += k as usize,
            0x15 => at += jump(value == k),
            0x25 => at += jump(value > k),
            0x35 => at += jump(value >= k),
            0x06 => return k,
            code => panic!("instruction {code:#x}"),
        }
    }
}

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const PROGRAM: i32 = 10;

fn compiled(filter: Result<SeccompFilter, BackendError>) -> BpfProgram {
    filter.unwrap().try_into().unwrap()
}

/// All arguments zero but one.
fn with(index: usize, value: u64) -> [u64; 6] {
    let mut arguments = [0; 6];
    arguments[index] = value;
    arguments
}

#[test]
fn names_and_numbers_are_unique() {
    for list in [lists::REFUSED_TO_VMS, lists::PERMITTED_TO_INSPECTORS] {
        assert_eq!(list.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len(), list.len());
        assert_eq!(list.iter().map(|(_, number)| number).collect::<BTreeSet<_>>().len(), list.len());
    }
}

#[test]
fn a_vm_is_refused_the_listed_calls_and_no_others() {
    let program = compiled(vm());
    let refused: BTreeSet<i64> = lists::REFUSED_TO_VMS.iter().map(|(_, call)| *call).collect();
    for call in 0..600 {
        let wanted = if refused.contains(&call) { EPERM } else { ALLOW };
        // Socket family 1 is AF_UNIX.
        assert_eq!(answer(&program, call, with(0, 1)), wanted, "{call}");
    }
}

#[test]
fn a_vm_has_local_sockets_only() {
    let program = compiled(vm());
    for family in
        [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK, libc::AF_ALG]
    {
        assert_eq!(answer(&program, libc::SYS_socket, with(0, family as u64)), EPERM, "{family}");
    }
    assert_eq!(answer(&program, libc::SYS_socket, with(0, libc::AF_UNIX as u64)), ALLOW);
    // The kernel ignores the upper half, so the filter does.
    let disguised = 1 << 32 | libc::AF_INET as u64;
    assert_eq!(answer(&program, libc::SYS_socket, with(0, disguised)), EPERM);
    assert_eq!(answer(&program, libc::SYS_socketpair, with(0, libc::AF_UNIX as u64)), ALLOW);
}

#[test]
fn a_vm_starts_threads_and_no_namespaces() {
    let program = compiled(vm());
    let thread =
        libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
    assert_eq!(answer(&program, libc::SYS_clone, with(0, thread as u64)), ALLOW);
    for flag in NEW_NAMESPACES {
        let flags = u64::from((thread | flag).cast_unsigned());
        assert_eq!(answer(&program, libc::SYS_clone, with(0, flags)), EPERM, "{flag:#x}");
    }
    for call in [libc::SYS_unshare, libc::SYS_setns] {
        assert_eq!(answer(&program, call, [0; 6]), EPERM);
    }
}

#[test]
fn a_vm_cannot_type_into_terminals() {
    let program = compiled(vm());
    for request in TERMINAL_REQUESTS {
        assert_eq!(answer(&program, libc::SYS_ioctl, with(1, request)), EPERM);
        assert_eq!(answer(&program, libc::SYS_ioctl, with(1, 1 << 32 | request)), EPERM);
    }
    // KVM_RUN.
    assert_eq!(answer(&program, libc::SYS_ioctl, with(1, 0xAE80)), ALLOW);
}

#[test]
fn calls_that_cannot_be_judged_do_not_exist() {
    let program = unjudged();
    assert_eq!(answer(&program, libc::SYS_clone3, [0; 6]), ENOSYS);
    for call in [0, libc::SYS_clone, libc::SYS_clone3 - 1, libc::SYS_clone3 + 1] {
        assert_eq!(answer(&program, call, [0; 6]), ALLOW, "{call}");
        assert_eq!(answer(&program, call | 0x4000_0000, [0; 6]), ENOSYS, "x32 {call}");
    }
    // The x32 ABI has numbers of its own, such as that of ptrace.
    assert_eq!(answer(&program, 0x4000_0000 + 521, [0; 6]), ENOSYS);
    assert_eq!(answer(&program, i64::from(u32::MAX), [0; 6]), ENOSYS);
}

#[test]
fn an_inspector_has_the_listed_calls_and_no_others() {
    let program = compiled(inspector(PROGRAM));
    let permitted: BTreeSet<i64> = lists::PERMITTED_TO_INSPECTORS.iter().map(|(_, call)| *call).collect();
    let conditional = [libc::SYS_openat, libc::SYS_execveat, libc::SYS_prctl];
    for call in (0..600).filter(|call| !conditional.contains(call)) {
        let wanted = if permitted.contains(&call) { ALLOW } else { KILL };
        assert_eq!(answer(&program, call, [0; 6]), wanted, "{call}");
    }
}

#[test]
fn an_inspector_opens_for_reading_and_starts_once() {
    let program = compiled(inspector(PROGRAM));
    let open = |flags: i32| answer(&program, libc::SYS_openat, with(2, u64::from(flags.cast_unsigned())));
    assert_eq!(open(libc::O_RDONLY | libc::O_CLOEXEC), ALLOW);
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC, libc::O_TMPFILE] {
        assert_eq!(open(flags), KILL, "{flags:#o}");
    }
    let start = |number: u64, flags: u64| answer(&program, libc::SYS_execveat, [number, 0, 0, 0, flags, 0]);
    assert_eq!(start(10, libc::AT_EMPTY_PATH as u64), ALLOW);
    assert_eq!(start(11, libc::AT_EMPTY_PATH as u64), KILL);
    assert_eq!(start(10, 0), KILL);
    assert_eq!(answer(&program, libc::SYS_execve, [0; 6]), KILL);
    assert_eq!(answer(&program, libc::SYS_prctl, with(0, libc::PR_SET_NO_NEW_PRIVS as u64)), ALLOW);
    assert_eq!(answer(&program, libc::SYS_prctl, with(0, libc::PR_SET_MM as u64)), KILL);
}

#[test]
fn filters_fit_into_the_kernel() {
    for program in [compiled(vm()), compiled(inspector(PROGRAM)), unjudged()] {
        assert!(program.len() <= 4096, "{}", program.len());
    }
}
