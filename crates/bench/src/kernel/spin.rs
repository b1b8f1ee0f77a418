//! Programs that compute: one thread for each CPU.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use crate::agent::Spinning;
use crate::measure::spin::Units;

/// Threads that compute until this is dropped.
pub(super) struct Spinners {
    units: Units,
    rest: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spinners {
    /// Starts one thread for each CPU that this process may use.
    pub(super) fn start() -> io::Result<Self> {
        let mut spinners = Self { units: Units::default(), rest: Arc::default(), threads: Vec::new() };
        for number in 0..thread::available_parallelism()?.get() {
            let (units, rest) = (spinners.units.clone(), Arc::clone(&spinners.rest));
            let body = move || {
                while !rest.load(Relaxed) {
                    units.work();
                }
            };
            spinners.threads.push(thread::Builder::new().name(format!("spin{number}")).spawn(body)?);
        }
        Ok(spinners)
    }
}

impl Spinning for Spinners {
    fn units(&self) -> u64 {
        self.units.done()
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.rest.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // The threads cannot panic.
            let _ = thread.join();
        }
    }
}
