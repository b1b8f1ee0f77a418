//! HS: the structure of the code: arrows between folders, documents, sizes, atomic settings, CI.

pub(super) mod before;
pub(super) mod cost;
mod hs1;
pub(super) mod hs3;
mod hs4;
mod hs5;
mod hs6;
mod hs7;
mod hs8;

use super::Set;

pub(super) const SET: Set = Set {
    name: "HS",
    what: "the structure of the code",
    rows: &[&hs1::ROW, &hs3::ROW, &hs4::ROW, &hs5::ROW, &hs6::ROW, &hs7::ROW, &hs8::ROW],
};
