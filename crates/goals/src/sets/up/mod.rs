//! UP: the physical edge.

mod up12;
mod up13;
mod up3;
mod up4;

use super::Set;

pub(super) const SET: Set = Set {
    name: "UP",
    what: "uplinks, teaming and failover",
    rows: &[&up3::ROW, &up4::ROW, &up12::ROW, &up13::ROW],
};
