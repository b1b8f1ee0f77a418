//! Records in memory that a process and its children share, with locks.
#![allow(unsafe_code, reason = "memory of several processes, and locks of the C library in it")]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::deferred::Undisturbed;

/// A lock between threads of several processes. If a thread ends while it has the lock, the next
/// one gets it.
pub(crate) struct Lock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the C library's functions may be called by several threads at once, also of several
// processes, since the lock is made for that.
unsafe impl Sync for Lock {}

/// The lock, taken by this thread. The program's signal handlers run afterwards, so that none waits
/// for the thread that it has interrupted.
pub(crate) struct Locked<'a> {
    lock: &'a Lock,
    /// Dropped after the lock is free, which the drop of this structure does first.
    _undisturbed: Undisturbed,
}

impl Lock {
    /// Prepares the lock. Nobody uses it yet, or it is free.
    pub(crate) fn prepare(&self) {
        let mut kind = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: the structure is this frame's, and the first call initializes it. The lock is in
        // memory that is never unmapped, and no thread uses it meanwhile.
        unsafe {
            libc::pthread_mutexattr_init(kind.as_mut_ptr());
            libc::pthread_mutexattr_setpshared(kind.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
            libc::pthread_mutexattr_settype(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ERRORCHECK);
            libc::pthread_mutex_init(self.0.get(), kind.as_ptr());
            libc::pthread_mutexattr_destroy(kind.as_mut_ptr());
        }
    }

    /// Takes the lock, if necessary after another thread. Fails if this thread has it, which only a
    /// handler of a fault in the program's memory can meet.
    pub(crate) fn take(&self) -> Result<Locked<'_>, Errno> {
        let undisturbed = Undisturbed::begin();
        // SAFETY: the lock was prepared before the record was used.
        match unsafe { libc::pthread_mutex_lock(self.0.get()) } {
            0 => {}
            libc::EOWNERDEAD => {
                // What the lock protects is changed by single words, so it is as before or after.
                // SAFETY: this thread has the lock.
                unsafe { libc::pthread_mutex_consistent(self.0.get()) };
            }
            error => return Err(Errno::from_raw_os_error(error)),
        }
        Ok(Locked { lock: self, _undisturbed: undisturbed })
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread has the lock.
        unsafe { libc::pthread_mutex_unlock(self.lock.0.get()) };
    }
}

/// A record: locks, and words whose meaning their users define. All are zero at first.
#[repr(C, align(64))]
pub(crate) struct Record {
    pub(crate) locks: [Lock; 2],
    pub(crate) words: [AtomicU32; 32],
    pub(crate) longs: [AtomicU64; 4],
}

/// Makes records of zeros that this process and its children share. They take memory when they are
/// used.
pub(crate) fn records(count: usize) -> Result<&'static [Record], Errno> {
    let len = count * size_of::<Record>();
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
    // SAFETY: new memory, at an address of the kernel's choice.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }?;
    // SAFETY: exactly the memory of the line above: aligned to a page, never unmapped. Zeros are
    // valid for all parts, which are changed by atomic operations and by the C library only.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), count) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn one_thread_at_a_time_has_the_lock() {
        let [record] = records(1).unwrap() else { panic!("one") };
        record.locks[0].prepare();
        let count = &record.words[0];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let _locked = record.locks[0].take().unwrap();
                        let before = std::hint::black_box(count.load(Relaxed));
                        count.store(before + 1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.load(Relaxed), 40_000);
        let taken = record.locks[0].take().unwrap();
        assert_eq!(record.locks[0].take().err(), Some(Errno::DEADLK));
        drop(taken);
    }

    #[test]
    fn a_thread_that_ends_with_the_lock_leaves_it() {
        let [record] = records(1).unwrap() else { panic!("one") };
        record.locks[1].prepare();
        std::thread::spawn(|| std::mem::forget(record.locks[1].take().unwrap())).join().unwrap();
        drop(record.locks[1].take().unwrap());
        drop(record.locks[1].take().unwrap());
    }
}
