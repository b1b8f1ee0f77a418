//! SK: the first VMs. Real guests on a taut vSwitch, measured.

mod sk3;
mod sk4;

use super::Set;

pub(super) const SET: Set =
    Set { name: "SK", what: "real guests on a taut vSwitch", rows: &[&sk3::ROW, &sk4::ROW] };
