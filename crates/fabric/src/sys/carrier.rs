//! Carriers of network cards, as the kernel's files tell.
//!
//! A read of such a file waits while somebody holds the kernel's lock of network settings, which
//! may take seconds. So a thread of its own reads, and everybody else sees what it has read last.
//! Polled, because netlink reports a lost carrier up to 1 s late.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use rustix::fs::{SeekFrom, seek};
use rustix::io::read;
use taut_api::fabric::ForeignFd;

use super::lock::lock;
use super::thread::Thread;

/// Time between two reads of a file.
pub const INTERVAL: Duration = Duration::from_millis(25);

const UNKNOWN: u8 = 0;
const LOST: u8 = 1;
const PRESENT: u8 = 2;

/// A card's file, and what it said last.
#[derive(Debug)]
pub struct Carrier {
    file: ForeignFd,
    state: AtomicU8,
}

/// All carriers that are watched.
static WATCHED: Mutex<Vec<Weak<Carrier>>> = Mutex::new(Vec::new());
/// The thread that reads. It runs until the process ends, also without carriers.
static READER: OnceLock<Thread> = OnceLock::new();

impl Carrier {
    /// Watches a carrier as long as the result exists. `file` is the card's
    /// `/sys/class/net/NAME/carrier`.
    ///
    /// # Errors
    /// The kernel refuses the thread.
    pub fn watch(file: ForeignFd) -> io::Result<Arc<Self>> {
        let carrier = Arc::new(Self { file, state: AtomicU8::new(UNKNOWN) });
        // The lock keeps two callers from starting two threads.
        let mut watched = lock(&WATCHED);
        watched.push(Arc::downgrade(&carrier));
        if READER.get().is_none() {
            let reader = Thread::start("carriers".to_owned(), read_all)?;
            // The lock is held, so no other caller has set the thread meanwhile.
            let _ = READER.set(reader);
        }
        Ok(carrier)
    }

    /// Returns whether the card has a carrier; `None` until its file is read.
    pub fn is_present(&self) -> Option<bool> {
        match self.state.load(Relaxed) {
            UNKNOWN => None,
            state => Some(state == PRESENT),
        }
    }

    /// Reads the file. Reading fails with `EINVAL` while the interface is down, which counts as no
    /// carrier.
    fn look(&self) {
        let mut text = [0];
        let read = seek(&self.file, SeekFrom::Start(0)).and_then(|_| read(&self.file, &mut text));
        let is_present = read.is_ok() && text == *b"1";
        self.state.store(if is_present { PRESENT } else { LOST }, Relaxed);
    }
}

impl AsFd for Carrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Reads the files of all carriers again and again.
fn read_all() {
    loop {
        let watched: Vec<_> = {
            let mut watched = lock(&WATCHED);
            watched.retain(|carrier| carrier.strong_count() > 0);
            watched.iter().filter_map(Weak::upgrade).collect()
        };
        let pause = if watched.is_empty() { 40 * INTERVAL } else { INTERVAL };
        for carrier in &watched {
            carrier.look();
        }
        drop(watched);
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::time::Instant;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn a_carrier_is_what_its_file_says() {
        let file: OwnedFd = memfd_create("carrier", MemfdFlags::CLOEXEC).unwrap();
        let write = |text: &[u8]| rustix::io::pwrite(&file, text, 0).unwrap();
        write(b"1\n");
        let carrier = Carrier::watch(ForeignFd::own(file.try_clone().unwrap())).unwrap();
        let becomes = |wanted: bool| {
            let begun = Instant::now();
            while carrier.is_present() != Some(wanted) {
                assert!(begun.elapsed() < Duration::from_secs(10));
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        becomes(true);
        write(b"0\n");
        becomes(false);
        write(b"1\n");
        becomes(true);
        let empty: OwnedFd = memfd_create("carrier", MemfdFlags::CLOEXEC).unwrap();
        let empty = Carrier::watch(ForeignFd::own(empty)).unwrap();
        let begun = Instant::now();
        while empty.is_present().is_none() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(empty.is_present(), Some(false));
    }
}
