//! SE: safety between tenants.

mod ports;
mod se12;
mod se15;
mod se17;
mod se2;
mod se3;
mod se4;
mod se5;
mod se6;
mod se8;
mod se9;

use super::Set;

pub(super) const SET: Set = Set {
    name: "SE",
    what: "safety between tenants",
    rows: &[
        &se2::ROW,
        &se3::ROW,
        &se4::ROW,
        &se5::ROW,
        &se6::ROW,
        &se8::ROW,
        &se9::ROW,
        &se12::ROW,
        &se15::ROW,
        &se17::ROW,
    ],
};
