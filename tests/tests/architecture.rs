//! ARCHITECTURE.md's table of rooms against the crates' manifests: the same crates, the same arrows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

type Arrows = BTreeMap<String, BTreeSet<String>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Crate folder → folders of the workspace crates it uses in its non-test build.
fn arrows_of_manifests() -> Arrows {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let folder = |path: &str| Path::new(path).file_name().unwrap().to_str().unwrap().to_owned();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| package["name"] != "taut-tests" && package["name"] != "taut-fuzz-targets")
        .map(|package| {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap());
            let uses = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|dependency| dependency["kind"].is_null())
                .filter_map(|dependency| dependency["path"].as_str().map(folder))
                .collect();
            (folder(manifest.parent().unwrap().to_str().unwrap()), uses)
        })
        .collect()
}

/// The same, from the table whose header is `| crate |`.
fn arrows_of_document() -> Arrows {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    text.lines()
        .skip_while(|line| !line.starts_with("| crate |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").collect();
            let [name] = names(cells[0]).try_into().unwrap();
            (name, names(cells[2]).into_iter().collect())
        })
        .collect()
}

#[test]
fn the_documented_arrows_are_the_real_ones() {
    let documented = arrows_of_document();
    assert!(documented.len() > 5, "no table of crates found in ARCHITECTURE.md");
    assert_eq!(documented, arrows_of_manifests());
}
