//! Mappings that lose their pages: the process survives, and the mapping reads as zeros.
//!
//! A page of a mapped file can vanish: the file is shortened, its file system is full, no huge page
//! is left for a hole, or the memory is faulty. An access then raises `SIGBUS`, which would end the
//! process, and with it the network of all guests. The handler here looks up the address in a table
//! of all mappings, puts zeroed memory in the place of that one mapping, marks it as lost and wakes
//! whoever ends its session. The access goes on.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd as _, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::extent::Extent;

/// Most mappings of a process. Linux has a limit of its own, `vm.max_map_count`, of 65,530.
const MOST: usize = 1 << 15;

/// A mapping in the table.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its addresses; none if the entry is free. Only whoever holds the lock of [`UNUSED`] changes
    /// them.
    extent: Extent,
    /// The pages of the mapping are gone.
    lost: AtomicBool,
}

static TABLE: [Entry; MOST] = [const { Entry::free() }; MOST];

/// Entries that were given back, and the number of those that were ever given.
static UNUSED: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));

/// The eventfd to signal when a mapping is lost; -1 if there is none.
static ALARM: AtomicI32 = AtomicI32::new(-1);

/// The action for `SIGBUS` before [`survive_lost_pages`].
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

impl Entry {
    const fn free() -> Self {
        Self {
            extent: Extent {
                version: AtomicU32::new(0),
                base: AtomicUsize::new(0),
                len: AtomicUsize::new(0),
            },
            lost: AtomicBool::new(false),
        }
    }

    /// Enters a mapping into the table. Returns `None` if the table is full.
    pub(super) fn of(base: usize, len: usize) -> Option<&'static Self> {
        let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
        let (given_back, given) = &mut *unused;
        let number = given_back.pop().or_else(|| {
            *given += 1;
            (*given <= MOST).then_some(*given - 1)
        })?;
        let entry = &TABLE[number];
        entry.lost.store(false, Relaxed);
        entry.extent.change(base, len);
        Some(entry)
    }

    /// Takes the mapping out of the table. Call it before the addresses are used for anything else.
    pub(super) fn give_back(&'static self) {
        let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
        self.extent.change(0, 0);
        let offset = std::ptr::from_ref(self).addr() - TABLE.as_ptr().addr();
        unused.0.push(offset / size_of::<Self>());
    }

    /// Tells whether the mapping's pages are gone.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }
}

/// Lets the process survive the loss of a mapping's pages. `alarm` is an eventfd that becomes
/// readable when that happens; it must be non-blocking. Further calls replace it.
///
/// # Errors
/// The kernel refuses the handler.
pub fn survive_lost_pages(alarm: OwnedFd) -> io::Result<()> {
    // The one before stays open: the handler may be using it.
    ALARM.store(alarm.into_raw_fd(), SeqCst);
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: all zeros is a valid `sigaction`, for both.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    // SAFETY: with a null action the call only writes the present one to `before`.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Known before the handler runs for the first time.
    if BEFORE.set(before).is_err() {
        return Ok(());
    }
    action.sa_sigaction =
        on_bus_error as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    // Threads have a stack for signals, which the runtime made.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: `action` is initialised and outlives the call. Its handler has the signature that
    // SA_SIGINFO requires, and makes only system calls and accesses to atomics.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t`.
    let code = unsafe { (*info).si_code };
    // No access of this thread: a process sent the signal, or the kernel has found faulty memory in
    // the background. Whoever accesses that memory gets another signal.
    if code <= 0 || code == libc::BUS_MCEERR_AO {
        return;
    }
    // SAFETY: as above, and for a SIGBUS of an access the address is set.
    let address = unsafe { (*info).si_addr() } as usize;
    if replace(address) {
        return;
    }
    if let Some(before) = BEFORE.get() {
        // The access is none of ours. It is repeated, and ends as it would without this handler.
        // SAFETY: `before` is what the kernel told of the same signal, and is never changed.
        unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    }
}

/// Replaces the mapping that contains the address. Returns `false` if no mapping does.
fn replace(address: usize) -> bool {
    let found = TABLE.iter().find_map(|entry| Some((entry, entry.extent.around(address)?)));
    let Some((entry, (base, len))) = found else { return false };
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the range is exactly that of one mapping, which stays alive: this thread is just
    // accessing it. Raw pointers into it stay valid, and its users expect any contents at any time.
    if unsafe { mmap_anonymous(base as *mut _, len, protection, flags) }.is_err() {
        return false;
    }
    entry.lost.store(true, SeqCst);
    let alarm = ALARM.load(SeqCst);
    if alarm >= 0 {
        // SAFETY: the descriptor was given to `survive_lost_pages`, and is never closed.
        let alarm = unsafe { BorrowedFd::borrow_raw(alarm) };
        // A full one is readable already.
        let _ = rustix::io::write(alarm, &1_u64.to_ne_bytes());
    }
    true
}
