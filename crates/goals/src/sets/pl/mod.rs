//! PL: latency sensitivity, best practices and dense mode.

mod conditions;
mod dense;
mod pl1;
mod pl10;
mod pl11;
mod pl2;
mod pl3;
mod pl4;
mod pl5;
mod pl6;
mod pl7;
mod pl8;
mod pl9;
mod stage;

use super::Set;

pub(super) const SET: Set = Set {
    name: "PL",
    what: "latency sensitivity, best practices and dense mode",
    rows: &[
        &pl1::ROW,
        &pl2::ROW,
        &pl3::ROW,
        &pl4::ROW,
        &pl5::ROW,
        &pl6::ROW,
        &pl7::ROW,
        &pl8::ROW,
        &pl9::ROW,
        &pl10::ROW,
        &pl11::ROW,
    ],
};
