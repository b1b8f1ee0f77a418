//! QP: sockets at memory speed, between programs of two VMs.

mod guests;
mod programs;
mod qp1;
mod qp10;
mod qp11;
mod qp12;
mod qp13;
mod qp14;
mod qp2;
mod qp3;
mod qp4;
mod qp5;
mod qp6;
mod qp7;
mod qp8;
mod qp9;
mod shells;

use super::Set;

pub(super) const SET: Set = Set {
    name: "QP",
    what: "sockets at memory speed",
    rows: &[
        &qp1::ROW,
        &qp2::ROW,
        &qp3::ROW,
        &qp4::ROW,
        &qp5::ROW,
        &qp6::ROW,
        &qp7::ROW,
        &qp8::ROW,
        &qp9::ROW,
        &qp10::ROW,
        &qp11::ROW,
        &qp12::ROW,
        &qp13::ROW,
        &qp14::ROW,
    ],
};
