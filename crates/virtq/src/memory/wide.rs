//! Functions that are compiled several times, for processors with wider registers, and chosen at
//! run time. The program runs on any x86-64 processor.
//!
//! The gain is that the first bytes of a frame take two stores instead of five: stores wait for
//! their cache line in order, and the processor's store buffer is small. The measurement is in
//! `docs/adr/0002-frames-move-in-bursts.md`.
#![allow(unsafe_code)]

/// Work that gains from wide copies. `run` must be `#[inline(always)]`, so that it is compiled for
/// each width.
pub(crate) trait Work {
    /// Result of the work.
    type Output;
    /// Runs the work.
    fn run(self) -> Self::Output;
}

/// Runs the work with the widest registers of this processor.
#[inline]
pub(crate) fn widest<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has the features that the function was compiled for.
            return unsafe { avx512(work) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { avx2(work) };
        }
    }
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
fn avx512<W: Work>(work: W) -> W::Output {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<W: Work>(work: W) -> W::Output {
    work.run()
}
