//! PG: statistics, and the places where people look at them.

mod pg1;
mod pg10;
mod pg2;
mod pg3;
mod pg4;
mod pg5;
mod pg6;
mod pg7;
mod pg8;
mod pg9;

use super::Set;

pub(super) const SET: Set = Set {
    name: "PG",
    what: "statistics, the page and access over TCP: rates, ready times, their cost and size; a browser, and \
           hostile requests",
    rows: &[
        &pg1::ROW,
        &pg2::ROW,
        &pg3::ROW,
        &pg4::ROW,
        &pg5::ROW,
        &pg6::ROW,
        &pg7::ROW,
        &pg8::ROW,
        &pg9::ROW,
        &pg10::ROW,
    ],
};
