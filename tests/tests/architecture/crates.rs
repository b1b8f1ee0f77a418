//! The table of rooms against the crates' manifests: the same crates, the same arrows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::{root, table};

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Maps each crate's folder to the folders of the workspace crates that its non-test build uses.
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

/// Reads the same from the table whose last column lists what a crate uses.
fn arrows_of_document() -> Arrows {
    let (mut arrows, mut name) = (Arrows::new(), String::new());
    for cells in table::rows("| crate | what") {
        // A row without a name continues the one above.
        if let Ok([new]) = <[String; 1]>::try_from(table::names(&cells[0])) {
            name = new;
        }
        arrows.entry(name.clone()).or_default().extend(table::names(&cells[2]));
    }
    arrows
}

#[test]
fn documented_crate_arrows_match_the_manifests() {
    assert_eq!(arrows_of_document(), arrows_of_manifests());
}
