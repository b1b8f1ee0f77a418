//! Work compiled anew for processors with wide registers, and chosen at run time: the program runs on any x86-64.
//!
//! A frame's first bytes in two stores instead of five is what counts: stores wait for their cache line in order, and the
//! processor has room for so many. Measured in `docs/decisions.md`.
#![allow(unsafe_code)]

/// Something that gains from wide copies. `run` should be `#[inline(always)]`, so that it is compiled for each width.
pub(crate) trait Work {
    /// What comes of it.
    type Output;
    /// Does it.
    fn run(self) -> Self::Output;
}

/// Does the work with the widest registers that this processor has.
#[inline]
pub(crate) fn widest<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has what the function was compiled for.
            return unsafe { avx512(work) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: likewise.
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
