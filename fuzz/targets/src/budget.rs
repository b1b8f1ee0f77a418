//! Budgets of one execution: CPU time, and memory that is allocated at the same time.
//!
//! The tool counts messages that begin with [`OVER`] as violations of a budget.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::heap;

/// Beginning of the message of a violation.
pub const OVER: &str = "over budget:";

/// Programs that are not built for fuzzing are not optimised, and slower by about this much.
const UNOPTIMISED: u32 = if cfg!(fuzzing) { 1 } else { 20 };

/// Limits of one execution.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// CPU time of the thread, which other load does not change.
    pub time: Duration,
    /// Bytes on the heap beyond those before the execution.
    pub heap: usize,
}

impl Budget {
    /// Limits in milliseconds and in mebibytes.
    pub const fn of(ms: u64, mib: usize) -> Self {
        Self { time: Duration::from_millis(ms), heap: mib << 20 }
    }

    /// Does the work, and checks what it took.
    ///
    /// # Panics
    /// If the work took more than the budget has.
    pub fn spend<T>(&self, work: impl FnOnce() -> T) -> T {
        let (began, before) = (cpu_time(), heap::mark());
        let done = work();
        let (took, peak) = (cpu_time().saturating_sub(began), heap::most_since(before));
        let Self { time, heap } = *self;
        assert!(took <= time * UNOPTIMISED, "{OVER} {took:?} of CPU time; {time:?} are allowed");
        assert!(peak <= heap, "{OVER} {peak} bytes on the heap; {heap} are allowed");
        done
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    const SMALL: Budget = Budget::of(10, 1);

    /// The message of the panic in which the work ends.
    fn violation(work: impl FnOnce() + std::panic::UnwindSafe) -> String {
        *catch_unwind(|| SMALL.spend(work)).unwrap_err().downcast().unwrap()
    }

    #[test]
    fn what_takes_too_much_memory_or_time_is_over_budget() {
        assert_eq!(SMALL.spend(|| vec![1_u8; 1 << 19].len()), 1 << 19);
        let memory = violation(|| drop(std::hint::black_box(vec![1_u8; 1 << 21])));
        assert!(memory.starts_with(OVER) && memory.contains("heap"), "{memory}");
        let growing = violation(|| {
            let mut bytes = Vec::new();
            (0..=1 << 20).for_each(|_| bytes.push(std::hint::black_box(1_u8)));
        });
        assert!(growing.starts_with(OVER) && growing.contains("heap"), "{growing}");
        let limit = SMALL.time * (UNOPTIMISED + 1);
        let time = violation(move || {
            let began = cpu_time();
            while cpu_time().saturating_sub(began) < limit {}
        });
        assert!(time.starts_with(OVER) && time.contains("CPU time"), "{time}");
    }

    #[test]
    fn memory_that_was_given_back_does_not_count() {
        SMALL.spend(|| (0..100).for_each(|_| drop(std::hint::black_box(vec![1_u8; 1 << 19]))));
    }
}
