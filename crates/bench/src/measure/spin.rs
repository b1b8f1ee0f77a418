//! Work for a CPU without memory or devices: what a CPU-bound neighbour does, counted.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Operations of one unit. Each needs the result of the one before.
const OPERATIONS: u32 = 10_000;

/// A counter of work units, shared by several CPUs.
#[derive(Debug, Clone, Default)]
pub struct Units(Arc<AtomicU64>);

impl Units {
    /// Returns the units done so far.
    #[inline]
    pub fn done(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Does one unit.
    #[inline]
    pub fn work(&self) {
        let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..OPERATIONS {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        self.0.fetch_add(1, Relaxed);
    }
}
