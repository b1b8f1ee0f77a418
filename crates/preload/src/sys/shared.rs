//! Records in memory that a process and its children share, with locks.
#![allow(unsafe_code, reason = "memory of several processes")]

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::thread::futex::{self, Flags};
use rustix::time::Timespec;

use super::deferred::Undisturbed;
use super::threads::{has_left_namespace, is_alive, remember_namespace};

/// True once a process with other numbers of threads may use the locks. Like the records, this is
/// in memory that all of them share.
static ELSEWHERE: OnceLock<&'static AtomicU32> = OnceLock::new();

/// Records that the calling process is the child of one that has records. If it is in a PID
/// namespace of its own, numbers of threads no longer tell who has a lock: a lock whose owner was
/// killed then stays taken.
pub(crate) fn process_is_new() {
    if let Some(elsewhere) = ELSEWHERE.get()
        && has_left_namespace()
    {
        elsewhere.store(1, Relaxed);
    }
}

fn are_numbers_known() -> bool {
    ELSEWHERE.get().is_none_or(|elsewhere| elsewhere.load(Relaxed) == 0)
}

/// A lock between threads of several processes: the number of the thread that has it. If a thread
/// ends while it has the lock, the next one gets it. Zero: the lock is free.
///
/// A mutex of the C library that can do this takes some 150 instructions each time.
pub(crate) struct Lock(AtomicU32);

/// Bit of a lock for which another thread waits.
const WAITED: u32 = 1 << 31;
/// Time after which a thread that waits looks whether the other one has ended.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The lock, taken by this thread. The program's signal handlers run afterwards, so that none waits
/// for the thread that it has interrupted.
pub(crate) struct Locked<'a> {
    lock: &'a Lock,
    /// True if the thread that had the lock before has ended with it.
    pub(crate) was_left: bool,
    /// Dropped after the lock is free, which the drop of this structure does first.
    _undisturbed: Undisturbed,
}

impl Lock {
    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_take(&self) -> Option<Locked<'_>> {
        let undisturbed = Undisturbed::begin();
        if self.0.compare_exchange(0, undisturbed.thread(), Acquire, Relaxed).is_err() {
            return None;
        }
        Some(Locked { lock: self, was_left: false, _undisturbed: undisturbed })
    }

    /// Takes the lock, if necessary after another thread. Fails if this thread has it, which only a
    /// handler of a fault in the program's memory can meet.
    pub(crate) fn take(&self) -> Result<Locked<'_>, Errno> {
        if let Some(locked) = self.try_take() {
            return Ok(locked);
        }
        let undisturbed = Undisturbed::begin();
        let was_left = self.wait(undisturbed.thread(), None)?;
        Ok(Locked { lock: self, was_left, _undisturbed: undisturbed })
    }

    /// Takes the lock, if necessary after another thread. Fails with `ETIMEDOUT` if that takes
    /// longer than this time: a thread in another PID namespace may have ended with the lock.
    pub(crate) fn take_within(&self, time: Duration) -> Result<Locked<'_>, Errno> {
        let undisturbed = Undisturbed::begin();
        let was_left = self.wait(undisturbed.thread(), Some(Instant::now() + time))?;
        Ok(Locked { lock: self, was_left, _undisturbed: undisturbed })
    }

    /// Waits for the lock, and takes it. Returns whether a thread has left it.
    fn wait(&self, own: u32, until: Option<Instant>) -> Result<bool, Errno> {
        let change = |from, to| self.0.compare_exchange(from, to, Acquire, Relaxed).is_ok();
        loop {
            let seen = self.0.load(Relaxed);
            let owner = seen & !WAITED;
            if owner == own && are_numbers_known() {
                return Err(Errno::DEADLK);
            }
            if owner == 0 {
                // Others may wait as well.
                if change(seen, own | WAITED) {
                    return Ok(false);
                }
                continue;
            }
            let waited = owner | WAITED;
            if seen != waited && !change(seen, waited) {
                continue;
            }
            let woken = futex::wait(&self.0, Flags::empty(), waited, Some(&PATIENCE));
            let may_be_left = woken == Err(Errno::TIMEDOUT) && are_numbers_known();
            if may_be_left && !is_alive(owner) && change(waited, own | WAITED) {
                return Ok(true);
            }
            if woken == Err(Errno::TIMEDOUT) && until.is_some_and(|until| Instant::now() >= until) {
                return Err(Errno::TIMEDOUT);
            }
        }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.0.swap(0, Release) & WAITED != 0 {
            let _ = futex::wake(&self.lock.0, Flags::empty(), 1);
        }
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
    // One more, for what concerns all of them.
    let len = (count + 1) * size_of::<Record>();
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
    // SAFETY: new memory, at an address of the kernel's choice.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }?;
    // SAFETY: exactly the memory of the line above: aligned to a page, never unmapped. Zeros are
    // valid for all parts, which are changed by atomic operations only.
    let all: &'static [Record] = unsafe { std::slice::from_raw_parts(start.cast(), count + 1) };
    let (records, rest) = all.split_at(count);
    if let [Record { words: [elsewhere, ..], .. }] = rest
        && ELSEWHERE.set(elsewhere).is_ok()
    {
        remember_namespace();
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn one_thread_at_a_time_has_the_lock() {
        let [record] = records(1).unwrap() else { panic!("one") };
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
        std::thread::spawn(|| std::mem::forget(record.locks[1].take().unwrap())).join().unwrap();
        assert!(record.locks[1].try_take().is_none());
        assert!(record.locks[1].take().unwrap().was_left);
        assert!(!record.locks[1].take().unwrap().was_left);
    }

    #[test]
    fn a_lock_that_stays_taken_is_waited_for_as_long_as_allowed() {
        let [record] = records(1).unwrap() else { panic!("one") };
        let [lock, _] = &record.locks;
        let short = Duration::from_millis(50);
        let taken = lock.take().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.take_within(short).err());
            assert_eq!(waiter.join().unwrap(), Some(Errno::TIMEDOUT));
        });
        drop(taken);
        assert!(!lock.take_within(short).unwrap().was_left);
    }

    #[test]
    fn a_process_that_was_killed_leaves_its_lock_before_its_parent_asks_for_it() {
        let [record] = records(1).unwrap() else { panic!("one") };
        let [lock, _] = &record.locks;
        // SAFETY: the child calls functions that are safe after a fork only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            super::super::deferred::thread_is_new();
            std::mem::forget(lock.try_take());
            // SAFETY: takes numbers only.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        assert!(child > 0);
        while lock.try_take().is_some() {
            std::thread::yield_now();
        }
        assert!(lock.take().unwrap().was_left, "it is not reaped yet");
        // SAFETY: no status is asked for.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    }
}
