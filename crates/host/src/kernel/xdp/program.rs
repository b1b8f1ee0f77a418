//! The XDP program: five instructions that hand each frame of a queue to the queue's socket, and
//! pass it on to the host if there is none.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::libc;

use super::XdpError;

// Numbers of <linux/bpf.h> and <linux/if_link.h>.
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_DETACH: libc::c_int = 34;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// Verdict: pass the frame on to the host.
const XDP_PASS: i32 = 2;
/// The function `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// The constant of a load is the descriptor of a map (`BPF_PSEUDO_MAP_FD`).
const MAP: u8 = 1;
/// Offset of `rx_queue_index` in `struct xdp_md`.
const QUEUE: i16 = 16;

/// `BPF_LDX | BPF_MEM | BPF_W`: load a word from memory.
const LOAD: u8 = 0x61;
/// `BPF_LD | BPF_IMM | BPF_DW`: load a constant of 64 bits, which takes two instructions.
const LOAD_LONG: u8 = 0x18;
/// `BPF_ALU64 | BPF_MOV | BPF_K`: set a register.
const SET: u8 = 0xb7;
/// `BPF_JMP | BPF_CALL`: call a function.
const CALL: u8 = 0x85;
/// `BPF_JMP | BPF_EXIT`: return.
const EXIT: u8 = 0x95;

/// License as programs state it.
const LICENSE: &std::ffi::CStr = c"Apache-2.0";

/// Name of the program, which `ip -d link show` prints.
const NAME: &[u8; 16] = b"taut_uplink\0\0\0\0\0";

/// An instruction (`struct bpf_insn`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u8,
    /// The destination register, and the source register above it.
    registers: u8,
    offset: i16,
    constant: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> Instruction {
    Instruction { code, registers: to | from << 4, offset, constant }
}

/// Returns the program for a map of sockets.
fn program(map: &OwnedFd) -> [Instruction; 6] {
    [
        // return bpf_redirect_map(map, context->rx_queue_index, XDP_PASS);
        instruction(LOAD, 2, 1, QUEUE, 0),
        instruction(LOAD_LONG, 1, MAP, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
        instruction(SET, 3, 0, 0, XDP_PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]
}

// Arguments of bpf(2): the first fields of the parts of `union bpf_attr`. The kernel takes missing
// ones as zeros.

#[repr(C)]
struct CreateMap {
    kind: u32,
    key_size: u32,
    value_size: u32,
    most_entries: u32,
}

#[repr(C)]
struct UpdateMap {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct LoadProgram {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    _log: [u32; 4],
    _kernel: u32,
    _flags: u32,
    name: [u8; 16],
}

#[repr(C)]
struct CreateLink {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

#[repr(C)]
struct DetachLink {
    link: u32,
}

/// Loads the program, with a map that has the socket of each queue at the queue's number.
pub(super) fn load(sockets: &[&OwnedFd]) -> Result<OwnedFd, XdpError> {
    let step = |step| move |source| XdpError::Program { step, source };
    let most_entries = sockets.len() as u32;
    let map = CreateMap { kind: BPF_MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, most_entries };
    // SAFETY: the argument is that of this command, and refers to nothing.
    let map = unsafe { descriptor(BPF_MAP_CREATE, &map) }.map_err(step("making the map of"))?;
    let instructions = program(&map);
    let argument = LoadProgram {
        kind: BPF_PROG_TYPE_XDP,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        _log: [0; 4],
        _kernel: 0,
        _flags: 0,
        name: *NAME,
    };
    // SAFETY: the argument is that of this command. It refers to `count` instructions, and to a
    // string with its terminating zero. Both live until the call returns.
    let program = unsafe { descriptor(BPF_PROG_LOAD, &argument) }.map_err(step("loading"))?;
    for (queue, socket) in (0_u32..).zip(sockets) {
        put(&map, queue, socket).map_err(step("giving the sockets to"))?;
    }
    Ok(program)
}

/// Puts the socket of a queue into the map.
fn put(map: &OwnedFd, queue: u32, socket: &OwnedFd) -> io::Result<()> {
    let socket = socket.as_raw_fd();
    let argument = UpdateMap {
        map: map.as_raw_fd().cast_unsigned(),
        _padding: 0,
        key: &raw const queue as u64,
        value: &raw const socket as u64,
        flags: 0,
    };
    // SAFETY: the argument is that of this command. It refers to a key and a value of four bytes,
    // as the map has them. Both live until the call returns.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &argument) }.map(drop)
}

/// Attaches the program to an interface: in its driver, or else, unless `by_driver_alone`, in the
/// kernel's own path. Also returns the reason for the latter.
pub(super) fn attach(
    program: &OwnedFd,
    interface: u32,
    by_driver_alone: bool,
) -> Result<(OwnedFd, Option<io::Error>), XdpError> {
    let link = |flags| {
        let argument =
            CreateLink { program: program.as_raw_fd().cast_unsigned(), interface, kind: BPF_XDP, flags };
        // SAFETY: the argument is that of this command, and refers to nothing.
        unsafe { descriptor(BPF_LINK_CREATE, &argument) }
    };
    let is_other = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
    let why = match link(XDP_FLAGS_DRV_MODE) {
        Ok(link) => return Ok((link, None)),
        Err(error) if is_other(&error) => return Err(XdpError::OtherProgram(error)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENODEV)) => {
            return Err(XdpError::Program { step: "attaching", source: error });
        }
        Err(error) if by_driver_alone => return Err(XdpError::ZeroCopyRefused(error)),
        Err(error) => error,
    };
    match link(XDP_FLAGS_SKB_MODE) {
        Ok(link) => Ok((link, Some(why))),
        Err(error) if is_other(&error) => Err(XdpError::OtherProgram(error)),
        Err(source) => Err(XdpError::Program { step: "attaching", source }),
    }
}

/// Takes the program of a link from its interface, whoever else has the link open. A link whose
/// interface is gone has none any more.
///
/// # Errors
/// The descriptor is no link, or the kernel has no such call (before 5.10).
pub fn detach(link: impl AsFd) -> io::Result<()> {
    let argument = DetachLink { link: link.as_fd().as_raw_fd().cast_unsigned() };
    // SAFETY: the argument is that of this command, and refers to nothing.
    unsafe { bpf(BPF_LINK_DETACH, &argument)? };
    Ok(())
}

/// Calls bpf(2) with a command that makes a descriptor.
///
/// # Safety
/// As for [`bpf`].
unsafe fn descriptor<T>(command: libc::c_int, argument: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller keeps the contract.
    let fd = unsafe { bpf(command, argument)? };
    // SAFETY: the kernel has just made this descriptor for this call, with close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Calls bpf(2).
///
/// # Safety
/// `T` begins as the kernel's argument of this command does. Memory to which it refers lives during
/// the call, and has the sizes that the kernel expects.
unsafe fn bpf<T>(command: libc::c_int, argument: &T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of the argument. The caller answers for what
    // it refers to.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(argument), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_the_kernel_s_layout() {
        assert_eq!((size_of::<Instruction>(), size_of::<LoadProgram>()), (8, 64));
        let load = instruction(LOAD, 2, 1, QUEUE, 0);
        assert_eq!((load.code, load.registers, load.offset), (0x61, 0x12, 16));
    }
}
