//! SE: safety between tenants.

mod se5;
mod se8;
mod se9;

use super::Set;

pub(super) const SET: Set =
    Set { name: "SE", what: "safety between tenants", rows: &[&se5::ROW, &se8::ROW, &se9::ROW] };
