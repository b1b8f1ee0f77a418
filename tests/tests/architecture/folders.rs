//! The table of folders against the code: no folder of a crate imports from one above or beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use crate::source::{Import, Source};
use crate::{root, table};

/// Folder that stands for `lib.rs`, `main.rs`, or the `mod.rs` of the folder that a row names.
const ROOT: &str = "(root)";

/// One row: the folders of a crate, or of a folder of it.
struct Row {
    /// Crate, or crate and folder, such as `fabric/vsock`.
    name: String,
    /// From the bottom up. Folders of one layer do not import from each other either.
    layers: Vec<Vec<String>>,
}

/// Outcome for one row.
#[derive(Debug, Default)]
struct Report {
    /// Each import that does not point downwards: `file:line from → to`.
    upward: BTreeSet<String>,
    /// Each set of folders that reach each other.
    circles: Vec<String>,
    /// Folders that the row lists and the code lacks, or the other way round.
    unlisted: Vec<String>,
    /// Number of different arrows between two folders.
    arrows: usize,
}

/// Rows of the table. A row without a name continues the one above it.
fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for cells in table::rows("| crate | folders") {
        let layers = cells[1].split('·').map(table::names);
        match (table::names(&cells[0]).pop(), rows.last_mut()) {
            (Some(name), _) => rows.push(Row { name, layers: layers.collect() }),
            (None, Some(row)) => row.layers.extend(layers),
            (None, None) => panic!("the first row has no name"),
        }
    }
    rows
}

/// Checks one row against the crate's code. `base` is the module whose folders the row lists.
fn check(source: &Source, base: &[String], layers: &[Vec<String>], src: &Path) -> Report {
    let mut report = Report::default();
    let height: BTreeMap<&str, usize> =
        layers.iter().enumerate().flat_map(|(at, names)| names.iter().map(move |n| (&**n, at))).collect();
    let inside = source.modules.iter().filter(|module| module.len() == base.len() + 1);
    let real: BTreeSet<&str> =
        inside.filter_map(|module| Some(&**module.strip_prefix(base)?.first()?)).collect();
    for &name in height.keys().filter(|name| !real.contains(**name)) {
        report.unlisted.push(format!("{name} is listed, but there is no such folder"));
    }
    for name in real.iter().filter(|name| !height.contains_key(**name)) {
        report.unlisted.push(format!("{name} is not listed"));
    }
    let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in &source.imports {
        let Some((from, to)) = ends(source, base, import) else { continue };
        if from == to || from == ROOT {
            continue;
        }
        arrows.entry(from).or_default().insert(to);
        let is_downward = height.get(to).is_some_and(|to| Some(to) < height.get(from));
        if !is_downward {
            let file = import.file.strip_prefix(src).unwrap_or(&import.file);
            report.upward.insert(format!("{}:{} {from} → {to}", file.display(), import.line));
        }
    }
    report.arrows = arrows.values().map(BTreeSet::len).sum();
    report.circles = circles(&arrows);
    report
}

/// Returns the folders at both ends of an import, or `None` when one end is outside of `base`.
fn ends<'a>(source: &'a Source, base: &[String], import: &'a Import) -> Option<(&'a str, &'a str)> {
    let from = import.from.strip_prefix(base)?.first().map_or(ROOT, |name| name);
    let mut to = &import.to[..];
    // A name that the root only passes on belongs to the folder behind it.
    for _ in 0..4 {
        let name = to.strip_prefix(base)?.first();
        let Some(name) = name else { return Some((from, ROOT)) };
        if source.modules.iter().any(|module| module.strip_prefix(base).is_some_and(|rest| rest == [&**name]))
        {
            return Some((from, name));
        }
        match source.aliases.get(&(base.to_vec(), name.clone())) {
            Some(behind) => to = behind,
            None => return Some((from, ROOT)),
        }
    }
    None
}

/// Returns each set of folders that reach each other, such as `port ⇄ switch`.
fn circles(arrows: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    let reachable = |from: &str| {
        let mut found: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> = arrows.get(from).into_iter().flatten().copied().collect();
        while let Some(folder) = next.pop() {
            if found.insert(folder) {
                next.extend(arrows.get(folder).into_iter().flatten());
            }
        }
        found
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> = arrows.keys().map(|from| (*from, reachable(from))).collect();
    let sets: BTreeSet<Vec<&str>> = reach
        .iter()
        .filter(|(from, found)| found.contains(*from))
        .map(|(from, found)| {
            found.iter().copied().filter(|to| reach.get(to).is_some_and(|r| r.contains(from))).collect()
        })
        .collect();
    sets.into_iter().map(|set| set.join(" ⇄ ")).collect()
}

/// Returns the row that the code itself would have, from the bottom up, for the error message.
fn row_of_code(source: &Source, base: &[String]) -> String {
    let inside = source.modules.iter().filter(|module| module.len() == base.len() + 1);
    let mut left: BTreeSet<&str> =
        inside.filter_map(|module| Some(&**module.strip_prefix(base)?.first()?)).collect();
    let arrows: BTreeSet<(&str, &str)> = source
        .imports
        .iter()
        .filter_map(|import| ends(source, base, import))
        .filter(|(from, to)| from != to)
        .collect();
    let mut row = String::new();
    while !left.is_empty() {
        let is_bottom = |name: &&&str| !arrows.iter().any(|(from, to)| *from == **name && left.contains(to));
        let layer: Vec<&str> = left.iter().filter(is_bottom).copied().collect();
        if layer.is_empty() {
            return format!("{row}… in a circle or above one: {left:?}");
        }
        left.retain(|name| !layer.contains(name));
        let _ = write!(row, "{}`{}`", if row.is_empty() { "" } else { " · " }, layer.join("`, `"));
    }
    row
}

#[test]
fn folders_import_only_from_folders_below_them() {
    let (mut upward, mut circles, mut arrows, mut problems) = (0, 0, 0, String::new());
    let rows = rows();
    for Row { name, layers } in &rows {
        let (krate, base) = name.split_once('/').unwrap_or((name, ""));
        let base: Vec<String> = base.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let src = root().join("crates").join(krate).join("src");
        let source = Source::read(&src);
        let report = check(&source, &base, layers, root());
        (upward, circles) = (upward + report.upward.len(), circles + report.circles.len());
        arrows += report.arrows;
        let circles = report.circles.iter().map(|circle| format!("circle: {circle}"));
        let lines: Vec<_> = report.unlisted.into_iter().chain(report.upward).chain(circles).collect();
        if !lines.is_empty() {
            let _ = writeln!(problems, "{name}:\n  {}", lines.join("\n  "));
            let _ = writeln!(problems, "  by the code it would be: {}", row_of_code(&source, &base));
        }
    }
    println!("folders: {arrows} arrows in {} rows, {upward} upward, {circles} circles", rows.len());
    assert!(problems.is_empty(), "\n{problems}");
}

#[test]
fn every_crate_has_a_row() {
    let listed: BTreeSet<String> =
        rows().into_iter().map(|row| row.name).filter(|name| !name.contains('/')).collect();
    let folders = std::fs::read_dir(root().join("crates")).unwrap();
    let names = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let missing: Vec<String> = names.filter(|name| !listed.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?} have no row");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a small crate and checks it against `low · middle · high`.
    fn check_crate(files: &[(&str, &str)]) -> Report {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let layers = ["low", "middle", "high"].map(|name| vec![name.to_owned()]);
        check(&Source::read(dir.path()), &[], &layers, dir.path())
    }

    const ROOT_FILE: (&str, &str) = ("lib.rs", "mod high;\nmod low;\nmod middle;\npub use high::Top;\n");

    #[test]
    fn downward_imports_and_tests_are_accepted() {
        let report = check_crate(&[
            ROOT_FILE,
            (
                "high/mod.rs",
                "mod part;\npub struct Top;\n#[cfg(test)]\nmod tests { use crate::high::Top; }\n",
            ),
            ("high/part.rs", "use super::Top;\nuse super::super::middle;\nfn f() { crate::low::g() }\n"),
            ("middle.rs", "use crate::low::{g, h as i};\n#[cfg(test)]\nuse crate::high::Top;\n"),
            ("low.rs", "pub fn g() {}\n#[cfg(test)]\nmod tests { fn t() { crate::high::part::f() } }\n"),
        ]);
        assert_eq!((report.upward.len(), report.circles.len(), report.unlisted.len()), (0, 0, 0));
        assert_eq!(report.arrows, 3, "high → middle, high → low, middle → low");
    }

    #[test]
    fn an_upward_import_is_reported_with_its_line() {
        let report = check_crate(&[
            ROOT_FILE,
            ("high/mod.rs", "pub struct Top;"),
            ("middle.rs", "//! Doc.\n\nuse std::fmt;\nuse crate::{low, high::{self, Top}};\n"),
            ("low.rs", "fn f() {\n    println!(\"{}\", crate::middle::X);\n    g(super::Top);\n}\n"),
        ]);
        let expected = ["low.rs:2 low → middle", "low.rs:3 low → high", "middle.rs:4 middle → high"];
        assert_eq!(report.upward, expected.map(str::to_owned).into());
    }

    #[test]
    fn a_circle_is_reported_once() {
        let report = check_crate(&[
            ROOT_FILE,
            ("high/mod.rs", "use crate::low::A;"),
            ("middle.rs", "use crate::low::A;"),
            ("low.rs", "use crate::high::Top;\npub struct A;"),
        ]);
        assert_eq!(report.circles, ["high ⇄ low"]);
        assert_eq!(report.upward, ["low.rs:1 low → high".to_owned()].into());
    }

    #[test]
    fn missing_and_superfluous_folders_are_reported() {
        let report = check_crate(&[("lib.rs", "mod low;\nmod other;\n"), ("low.rs", ""), ("other.rs", "")]);
        assert_eq!(report.unlisted.len(), 3, "{:?}", report.unlisted);
    }

    #[test]
    fn an_item_of_the_root_is_above_every_folder() {
        let report = check_crate(&[
            ("lib.rs", "mod high;\nmod low;\nmod middle;\npub fn all() {}\n"),
            ("high/mod.rs", "use crate::all;"),
            ("middle.rs", ""),
            ("low.rs", ""),
        ]);
        assert_eq!(report.upward, ["high/mod.rs:1 high → (root)".to_owned()].into());
    }
}
