//! Functions with a variable number of arguments: `execl` and `dprintf` with their kin. Each
//! prepares the call as the functions of `processes` and `files` do, and then jumps to the C
//! library's with all arguments in place. Rust cannot pass them on.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

use super::{before_exec, before_files, before_sharing};
use crate::real;

/// Saves the registers in which arguments may be, calls a function that returns an address, and
/// jumps there with the registers restored (System V ABI, x86-64). `al` has the number of vector
/// registers.
macro_rules! jumps {
    ($($(#[$about:meta])* $name:ident by $prepare:path;)*) => {
        $(
            $(#[$about])*
            ///
            /// # Safety
            /// As the C library's.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            pub(crate) unsafe extern "C" fn $name() {
                naked_asm!(
                    "push rbp",
                    "mov rbp, rsp",
                    "sub rsp, 192",
                    "mov [rsp], rdi",
                    "mov [rsp + 8], rsi",
                    "mov [rsp + 16], rdx",
                    "mov [rsp + 24], rcx",
                    "mov [rsp + 32], r8",
                    "mov [rsp + 40], r9",
                    "mov [rsp + 48], rax",
                    "movaps [rsp + 64], xmm0",
                    "movaps [rsp + 80], xmm1",
                    "movaps [rsp + 96], xmm2",
                    "movaps [rsp + 112], xmm3",
                    "movaps [rsp + 128], xmm4",
                    "movaps [rsp + 144], xmm5",
                    "movaps [rsp + 160], xmm6",
                    "movaps [rsp + 176], xmm7",
                    "call {prepare}",
                    "mov r11, rax",
                    "mov rdi, [rsp]",
                    "mov rsi, [rsp + 8]",
                    "mov rdx, [rsp + 16]",
                    "mov rcx, [rsp + 24]",
                    "mov r8, [rsp + 32]",
                    "mov r9, [rsp + 40]",
                    "mov rax, [rsp + 48]",
                    "movaps xmm0, [rsp + 64]",
                    "movaps xmm1, [rsp + 80]",
                    "movaps xmm2, [rsp + 96]",
                    "movaps xmm3, [rsp + 112]",
                    "movaps xmm4, [rsp + 128]",
                    "movaps xmm5, [rsp + 144]",
                    "movaps xmm6, [rsp + 160]",
                    "movaps xmm7, [rsp + 176]",
                    "leave",
                    "jmp r11",
                    prepare = sym $prepare,
                )
            }
        )*
    };
}

jumps! {
    /// `execl(3)`.
    execl by before_execl;
    /// `execlp(3)`.
    execlp by before_execlp;
    /// `execle(3)`.
    execle by before_execle;
    /// `dprintf(3)`.
    dprintf by before_dprintf;
    /// `dprintf(3)` of programs that check formats (`_FORTIFY_SOURCE`).
    __dprintf_chk by before_dprintf_chk;
}

extern "C" fn before_execl() -> *mut c_void {
    before_exec();
    real::execl()
}

extern "C" fn before_execlp() -> *mut c_void {
    before_exec();
    real::execlp()
}

extern "C" fn before_execle() -> *mut c_void {
    before_exec();
    real::execle()
}

extern "C" fn before_dprintf(fd: c_int) -> *mut c_void {
    before_files([fd]);
    before_sharing(fd);
    real::dprintf()
}

extern "C" fn before_dprintf_chk(fd: c_int) -> *mut c_void {
    before_files([fd]);
    before_sharing(fd);
    real::dprintf_chk()
}

/// `vdprintf(3)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn vdprintf(
    fd: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    before_files([fd]);
    before_sharing(fd);
    // SAFETY: as the caller promises. A list of arguments is passed as a pointer.
    unsafe { real::vdprintf(fd, format, arguments) }
}

/// `vdprintf(3)` of programs that check formats (`_FORTIFY_SOURCE`).
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    before_files([fd]);
    before_sharing(fd);
    // SAFETY: as above.
    unsafe { real::__vdprintf_chk(fd, flag, format, arguments) }
}
