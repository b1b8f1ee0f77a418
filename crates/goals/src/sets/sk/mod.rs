//! SK: the first VMs. Real guests on a taut vSwitch, measured.

mod sk1;
mod sk2;
mod sk3;
mod sk4;
mod sk5;
mod sk6;
mod sk7;
mod sk8;
mod sk9;

use super::Set;

pub(super) const SET: Set = Set {
    name: "SK",
    what: "real guests on a taut vSwitch",
    rows: &[
        &sk1::ROW,
        &sk2::ROW,
        &sk3::ROW,
        &sk4::ROW,
        &sk5::ROW,
        &sk6::ROW,
        &sk7::ROW,
        &sk8::ROW,
        &sk9::ROW,
    ],
};
