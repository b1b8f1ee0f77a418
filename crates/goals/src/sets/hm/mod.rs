//! HM: measurements that cannot flatter, and the first hour of a new user.

mod hm1;
mod hm2;
mod hm3;
mod hm7;

use super::Set;

pub(super) const SET: Set = Set {
    name: "HM",
    what: "measurements that cannot flatter, and the first hour of a new user",
    rows: &[&hm1::ROW, &hm2::ROW, &hm3::ROW, &hm7::ROW],
};
