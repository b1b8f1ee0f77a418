//! Comments and Markdown keep to 100 columns; rustfmt checks code only.

use std::process::Command;

use crate::root;

const WIDEST: usize = 100;

/// Returns true if a line of this file is Markdown or has a comment.
fn is_checked(file: &str, line: &str) -> bool {
    let has = |mark: &str| line.starts_with(mark) || line.contains(&format!(" {mark}"));
    match file.rsplit('.').next() {
        Some("md") => true,
        Some("rs") => has("//"),
        _ => has("#"),
    }
}

#[test]
fn comments_and_markdown_keep_to_100_columns() {
    let patterns = ["ls-files", "*.md", "*.rs", "*.sh", "*.toml", "Makefile"];
    let output = Command::new("git").args(patterns).current_dir(root()).output().unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    let mut wide = Vec::new();
    for file in files.lines() {
        // A file that was deleted and is not committed yet.
        let Ok(text) = std::fs::read_to_string(root().join(file)) else { continue };
        let lines = text.lines().enumerate();
        let too_wide = lines.filter(|(_, line)| line.chars().count() > WIDEST && is_checked(file, line));
        wide.extend(too_wide.map(|(number, _)| format!("{file}:{}", number + 1)));
    }
    assert!(wide.is_empty(), "{} lines are wider than {WIDEST} columns:\n{}", wide.len(), wide.join("\n"));
}
