//! PG: statistics, and the places where people look at them.

mod pg4;
mod pg5;
mod pg6;
mod pg7;

use super::Set;

pub(super) const SET: Set = Set {
    name: "PG",
    what: "statistics: rates, ready times, their cost and their size",
    rows: &[&pg4::ROW, &pg5::ROW, &pg6::ROW, &pg7::ROW],
};
