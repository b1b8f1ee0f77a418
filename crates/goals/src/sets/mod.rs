//! The sets, one folder each with one file a row.

mod sk;

use crate::row::Row;

/// A set of rows.
#[derive(Debug, Clone, Copy)]
pub struct Set {
    /// Name, such as `SK`.
    pub name: &'static str,
    /// What its rows have in common.
    pub what: &'static str,
    /// Its rows, in order.
    pub rows: &'static [&'static Row],
}

/// All sets.
pub const ALL: &[Set] = &[sk::SET];
