//! What a user has chosen: view, interval, columns and their order, and the order of rows.

use std::collections::{BTreeMap, BTreeSet};

use crate::view::View;

/// Interval of esxtop between two refreshes, in seconds.
pub const USUAL_SECONDS: f64 = 5.0;
/// Shortest and longest interval, in seconds.
pub const SECONDS: std::ops::RangeInclusive<f64> = 0.5..=3600.0;

/// Parses an interval in seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    let parsed = text.trim().parse().ok().filter(|seconds| SECONDS.contains(seconds));
    let (least, most) = (SECONDS.start(), SECONDS.end());
    parsed.ok_or_else(|| format!("`{text}` is not a number of seconds from {least} to {most}"))
}

/// Settings of all views.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The view that is shown.
    pub view: View,
    /// Time between two refreshes, in seconds, within [`SECONDS`].
    pub seconds: f64,
    /// True if rows of anything but VMs are left out.
    pub vms_only: bool,
    /// Layouts of all views.
    pub(crate) layouts: BTreeMap<View, Layout>,
}

/// Columns of a view and the order of its rows. Columns are indices into [`View::columns`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    order: Vec<usize>,
    hidden: BTreeSet<usize>,
    /// The column by which rows are ordered.
    pub sort: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let layouts = View::ALL.into_iter().map(|view| (view, Layout::usual(view))).collect();
        Self { view: View::default(), seconds: USUAL_SECONDS, vms_only: false, layouts }
    }
}

impl Settings {
    /// Returns the layout of a view.
    pub fn layout(&self, view: View) -> &Layout {
        &self.layouts[&view]
    }

    /// Returns the layout of a view, to change it.
    pub fn layout_mut(&mut self, view: View) -> &mut Layout {
        self.layouts.entry(view).or_insert_with(|| Layout::usual(view))
    }
}

impl Layout {
    /// Returns the layout that a view has before the user has chosen.
    pub fn usual(view: View) -> Self {
        let columns = view.columns();
        let hidden = (0..columns.len()).filter(|column| !columns[*column].usual).collect();
        let sort = view.sort_keys().first().and_then(|(_, title)| view.column(title)).unwrap_or(0);
        Self { order: (0..columns.len()).collect(), hidden, sort }
    }

    /// Returns a layout that shows these columns in this order; the usual one if there are none.
    pub fn of(view: View, shown: &[usize]) -> Self {
        let usual = Self::usual(view);
        let mut order = Vec::new();
        for column in shown {
            if usual.order.contains(column) && !order.contains(column) {
                order.push(*column);
            }
        }
        if order.is_empty() {
            return usual;
        }
        let is_hidden = |column: &usize| !order.contains(column);
        let hidden: BTreeSet<_> = usual.order.iter().copied().filter(is_hidden).collect();
        // A hidden column has its place behind the one that it usually follows.
        for column in &hidden {
            let before = column.checked_sub(1).and_then(|before| order.iter().position(|at| *at == before));
            order.insert(before.map_or(0, |before| before + 1), *column);
        }
        Self { order, hidden, ..usual }
    }

    /// Returns all columns in their order, and whether each is shown.
    pub fn all(&self) -> impl Iterator<Item = (usize, bool)> {
        self.order.iter().map(|column| (*column, !self.hidden.contains(column)))
    }

    /// Returns the columns that are shown, in their order.
    pub fn shown(&self) -> impl Iterator<Item = usize> {
        self.all().filter(|(_, shown)| *shown).map(|(column, _)| column)
    }

    /// Shows a hidden column, or hides one. The last one stays.
    pub fn toggle(&mut self, column: usize) {
        if !self.hidden.remove(&column) && self.shown().count() > 1 && self.order.contains(&column) {
            self.hidden.insert(column);
        }
    }

    /// Moves a column by one place, to the left or to the right.
    pub fn shift(&mut self, column: usize, left: bool) {
        let Some(at) = self.order.iter().position(|each| *each == column) else { return };
        let to = if left { at.checked_sub(1) } else { Some(at + 1) };
        if let Some(to) = to.filter(|to| *to < self.order.len()) {
            self.order.swap(at, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_hidden_shown_and_moved() {
        let mut layout = Layout::usual(View::Memory);
        let before: Vec<_> = layout.shown().collect();
        layout.toggle(2);
        layout.shift(1, true);
        layout.shift(1, true);
        layout.shift(0, false);
        assert_eq!(layout.all().take(4).collect::<Vec<_>>(), [(1, true), (2, false), (0, true), (3, true)]);
        layout.toggle(2);
        assert_eq!(layout.shown().count(), before.len());
        (0..before.len()).for_each(|column| layout.toggle(column));
        assert_eq!(layout.shown().count(), 1, "a view has a column");
        layout.toggle(99);
        layout.shift(99, true);
        assert_eq!(layout.shown().count(), 1);
    }

    #[test]
    fn a_layout_of_unknown_or_repeated_columns_is_still_one() {
        let layout = Layout::of(View::Disk, &[3, 99, 0, 3]);
        assert_eq!(layout.shown().collect::<Vec<_>>(), [3, 0]);
        assert_eq!(layout.all().count(), View::Disk.columns().len());
        assert_eq!(Layout::of(View::Disk, &[99]), Layout::usual(View::Disk));
    }

    #[test]
    fn an_interval_is_a_number_within_bounds() {
        assert_eq!(seconds(" 2.5").unwrap().to_string(), "2.5");
        for text in ["", "0", "-1", "0.1", "3601", "inf", "NaN", "1e99", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
