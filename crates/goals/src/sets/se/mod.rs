//! SE: safety between tenants.

mod se10;
mod se11;
mod se14;
mod se16;
mod se5;
mod se7;
mod se8;
mod se9;
mod stage;

use super::Set;

pub(super) const SET: Set = Set {
    name: "SE",
    what: "safety between tenants",
    rows: &[&se5::ROW, &se7::ROW, &se8::ROW, &se9::ROW, &se10::ROW, &se11::ROW, &se14::ROW, &se16::ROW],
};
