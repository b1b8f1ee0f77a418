//! Cost of a change for those who do not use it: speed of this build beside the build before it.
//! Short samples alternate in the order ABBA. Pairs are added until the 95 % interval of the median
//! ratio is at most 1 % wide, up to 60.

use super::before::programs_of;
use super::hs3::{guests, switch};
use crate::figure::Bound;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::rounds::Plan;
use crate::row::Results;

/// After ÷ before: 1.5 % slower at most.
pub(in crate::sets) const BOUND: &[Bound] = &[Bound::LowLimitAtLeast(0.985, "x")];

/// Measures loads of the switch, and streams of VMCI sockets for the goal `streams`. `before` is
/// the commit before the change, and a folder below cargo's target folder for its build.
pub(in crate::sets) fn measure(
    lab: &mut Lab,
    results: &mut Results,
    before: (&str, &str),
    loads: &'static [switch::Load],
    streams: &'static str,
) -> Measured<()> {
    let (commit, folder) = before;
    let old = programs_of(lab, commit, folder)?;
    let plan = Plan { least: 8, most: lab.pick(60, 10), width: 0.01 };
    switch::run(lab, results, plan, &old, loads)?;
    guests::streams(lab, results, plan, &old, streams);
    Ok(())
}
