//! The system call filter.
//!
//! Two filters are installed, and the kernel obeys the stricter answer. The first refuses calls
//! that the second could not judge: those of the x32 ABI, which are the same calls by other
//! numbers, and `clone3`, whose flags are in memory. Programs then use `clone`. Calls of the 32-bit
//! ABI end the process.

mod lists;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};
use taut_launch::{Filter, Step, Wall};

use crate::failure::{Failed, Within as _, chain};
use crate::reporter::Reporter;

/// Index of the first argument of `socket`, `clone`, `execveat` and `prctl`.
const FIRST: u8 = 0;

/// Flags of `clone` that create a namespace.
const NEW_NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Requests to a terminal that put words into its owner's mouth or take it over.
const TERMINAL_REQUESTS: [libc::c_ulong; 3] = [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSCTTY];

/// Installs the filter. The process can still report a failure and start the program.
pub(crate) fn install(filter: Filter, program: i32, reporter: &mut Reporter) -> Result<(), Failed> {
    let step = Step::Filter;
    let rules = match filter {
        Filter::None => return Ok(()),
        Filter::Vm => vm(),
        Filter::Inspector => inspector(program),
    };
    let rules = rules.and_then(BpfProgram::try_from).within(step, || "compiling the filter".to_owned())?;
    for program in [unjudged(), rules] {
        match apply_filter(&program) {
            Err(seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error))
                if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) =>
            {
                return reporter.lack(step, Wall::Filter, chain(&error));
            }
            installed => installed.within(step, || "installing the filter".to_owned())?,
        }
    }
    Ok(())
}

/// Refuses single calls with `EPERM`.
fn vm() -> Result<SeccompFilter, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        lists::REFUSED_TO_VMS.iter().map(|(_, call)| (*call, Vec::new())).collect();
    let local = u64::from(libc::AF_UNIX.cast_unsigned());
    rules.insert(libc::SYS_socket, vec![rule(FIRST, SeccompCmpOp::Ne, local)?]);
    let any = |flag: i32| {
        let flag = u64::from(flag.cast_unsigned());
        rule(FIRST, SeccompCmpOp::MaskedEq(flag), flag)
    };
    rules.insert(libc::SYS_clone, NEW_NAMESPACES.into_iter().map(any).collect::<Result<_, _>>()?);
    let request = |request| rule(1, SeccompCmpOp::Eq, request);
    rules.insert(libc::SYS_ioctl, TERMINAL_REQUESTS.into_iter().map(request).collect::<Result<_, _>>()?);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, refused, arch()?)
}

/// Permits single calls; any other one ends the process.
fn inspector(program: i32) -> Result<SeccompFilter, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        lists::PERMITTED_TO_INSPECTORS.iter().map(|(_, call)| (*call, Vec::new())).collect();
    // Opening libraries for reading. O_ACCMODE, O_CREAT, O_TRUNC and O_TMPFILE are all absent.
    let writing = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | (libc::O_TMPFILE & !libc::O_DIRECTORY);
    let reads = rule(2, SeccompCmpOp::MaskedEq(u64::from(writing.cast_unsigned())), 0)?;
    rules.insert(libc::SYS_openat, vec![reads]);
    // The program itself, by the descriptor that the document names.
    let starts = SeccompRule::new(vec![
        condition(FIRST, SeccompCmpOp::Eq, u64::from(program.cast_unsigned()))?,
        condition(4, SeccompCmpOp::Eq, u64::from(libc::AT_EMPTY_PATH.cast_unsigned()))?,
    ])?;
    rules.insert(libc::SYS_execveat, vec![starts]);
    // A program may narrow its filter and forbid dumps.
    let option = |option: i32| rule(FIRST, SeccompCmpOp::Eq, u64::from(option.cast_unsigned()));
    let options = [libc::PR_SET_NO_NEW_PRIVS, libc::PR_SET_DUMPABLE, libc::PR_SET_NAME];
    rules.insert(libc::SYS_prctl, options.into_iter().map(option).collect::<Result<_, _>>()?);
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch()?)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    // The kernel uses 32 bits of each of these arguments and ignores the others.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![condition(argument, operator, value)?])
}

fn arch() -> Result<TargetArch, BackendError> {
    std::env::consts::ARCH.try_into()
}

/// Answers `ENOSYS` to `clone3` and to all numbers of the x32 ABI, as a kernel without them does.
/// Comparing ranges of numbers is beyond seccompiler's rules.
fn unjudged() -> BpfProgram {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    /// Offset of the call's number in `struct seccomp_data`.
    const NUMBER: u32 = 0;
    /// Bit that marks numbers of the x32 ABI (`__X32_SYSCALL_BIT`).
    const X32: u32 = 0x4000_0000;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        instruction(LOAD, 0, 0, NUMBER),
        instruction(JUMP_IF_AT_LEAST, 2, 0, X32),
        instruction(JUMP_IF_EQUAL, 1, 0, libc::SYS_clone3 as u32),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
    ]
}
