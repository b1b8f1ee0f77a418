//! How threads may be cancelled. A thread that may be cancelled at any instruction must not be
//! cancelled while it uses a ring.

use std::ffi::c_int;

use crate::real;
use crate::sys::cancels_at_any_instruction;

/// `pthread_setcanceltype(3)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C-unwind" fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int {
    const ASYNCHRONOUS: c_int = 1;
    if kind == ASYNCHRONOUS {
        cancels_at_any_instruction();
    }
    // SAFETY: as the caller promises.
    unsafe { real::pthread_setcanceltype(kind, before) }
}
