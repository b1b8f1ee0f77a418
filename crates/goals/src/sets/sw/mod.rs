//! SW: every sample for `docs/performance.md`.

mod cells;
mod machine;
mod sw1;

use super::Set;

pub(super) const SET: Set = Set { name: "SW", what: "switches side by side", rows: &[&sw1::ROW] };
