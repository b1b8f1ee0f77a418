//! SE: safety between tenants.

mod ports;
mod se1;
mod se10;
mod se11;
mod se12;
mod se13;
mod se14;
mod se15;
mod se16;
mod se17;
mod se2;
mod se3;
mod se4;
mod se5;
mod se6;
mod se7;
mod se8;
mod se9;
mod stage;

use super::Set;

pub(super) const SET: Set = Set {
    name: "SE",
    what: "safety between tenants",
    rows: &[
        &se1::ROW,
        &se2::ROW,
        &se3::ROW,
        &se4::ROW,
        &se5::ROW,
        &se6::ROW,
        &se7::ROW,
        &se8::ROW,
        &se9::ROW,
        &se10::ROW,
        &se11::ROW,
        &se12::ROW,
        &se13::ROW,
        &se14::ROW,
        &se15::ROW,
        &se16::ROW,
        &se17::ROW,
    ],
};
