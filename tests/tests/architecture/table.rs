//! Tables of ARCHITECTURE.md.

use crate::root;

/// Rows of the first table whose header line begins with `header`, as cells without their bars.
pub(crate) fn rows(header: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows: Vec<Vec<String>> = text
        .lines()
        .skip_while(|line| !line.starts_with(header))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    assert!(!rows.is_empty(), "no table with the header `{header}` found in ARCHITECTURE.md");
    rows
}

/// Names that a cell puts between backquotes.
pub(crate) fn names(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
