//! DP: the data plane. The switch is on CPU 0, the load on CPU 1.

mod beside;
mod dp1;
mod dp10;
mod dp11;
mod dp12;
mod dp13;
mod dp14;
mod dp15;
mod dp2;
mod dp3;
mod dp4;
mod dp5;
mod dp6;
mod dp7;
mod dp8;
mod dp9;

use super::Set;

pub(super) const SET: Set = Set {
    name: "DP",
    what: "the data plane",
    rows: &[
        &dp1::ROW,
        &dp2::ROW,
        &dp3::ROW,
        &dp4::ROW,
        &dp5::ROW,
        &dp6::ROW,
        &dp7::ROW,
        &dp8::ROW,
        &dp9::ROW,
        &dp10::ROW,
        &dp11::ROW,
        &dp12::ROW,
        &dp13::ROW,
        &dp14::ROW,
        &dp15::ROW,
    ],
};
