//! The sets, one folder each with one file a row.

mod ci;
mod dp;
mod hm;
mod hs;
mod pg;
mod pl;
mod qp;
mod se;
mod sk;
mod sw;
mod up;
mod vc_g;

use crate::row::Row;

/// A set of rows.
#[derive(Debug, Clone, Copy)]
pub struct Set {
    /// Name, such as `SK`.
    pub name: &'static str,
    /// Common subject of its rows.
    pub what: &'static str,
    /// Its rows, in order.
    pub rows: &'static [&'static Row],
}

/// All sets.
pub const ALL: &[Set] =
    &[sk::SET, dp::SET, vc_g::SET, pl::SET, hs::SET, hm::SET, se::SET, up::SET, qp::SET, pg::SET, sw::SET];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Rust files of a folder of this crate, without those for tests.
    fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.display().to_string(), text));
            }
        }
    }

    #[test]
    fn rows_and_labs_reach_the_outside_only_through_the_machine() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut found = Vec::new();
        sources(&src.join("sets"), &mut found);
        sources(&src.join("lab"), &mut found);
        for (path, text) in found {
            let code = text.split("#[cfg(test)]").next().unwrap();
            for way in [
                "std::fs",
                "std::process::Command",
                "std::net",
                "std::os",
                "thread::sleep",
                "rustix",
                "nix::",
            ] {
                assert!(!code.contains(way), "{path} uses {way}: the fault tests would reach this machine");
            }
        }
    }

    #[test]
    fn names_of_sets_rows_and_goals_are_unique() {
        let mut goals = BTreeSet::new();
        for set in ALL {
            let mut rows = BTreeSet::new();
            for row in set.rows {
                assert!(rows.insert(row.id), "{} twice", row.id);
                assert!(!row.goals.is_empty(), "{} has no goal", row.id);
                for goal in row.goals {
                    assert!(goals.insert(goal.id), "{} twice", goal.id);
                    assert!(goal.id.starts_with(row.id), "{} is a goal of {}", goal.id, row.id);
                    assert!(!goal.bounds.is_empty(), "{} has no bound", goal.id);
                }
            }
        }
    }
}
