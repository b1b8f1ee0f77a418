//! Shell scripts that stop at a failing command have no pipe whose reader leaves early: then the
//! writer fails, depending on which of the two is faster.

use std::process::Command;

use crate::root;

/// Returns whether a reader of a pipe in this line may leave before it has read everything.
fn leaves_early(line: &str) -> bool {
    let readers = line.split('|').skip(1).map(|reader| reader.split_whitespace().collect::<Vec<_>>());
    let mut leaving = readers.filter(|words| match words.as_slice() {
        ["head", ..] => true,
        ["grep", options, ..] => options.starts_with('-') && options.contains('q'),
        _ => false,
    });
    leaving.next().is_some()
}

#[test]
fn no_reader_of_a_pipe_leaves_early() {
    let output =
        Command::new("git").args(["ls-files", "*.sh", ".ci/run"]).current_dir(root()).output().unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    let mut found = Vec::new();
    for file in files.lines() {
        let Ok(text) = std::fs::read_to_string(root().join(file)) else { continue };
        if text.contains("pipefail") {
            let lines = text.lines().enumerate().filter(|(_, line)| leaves_early(line));
            found.extend(lines.map(|(number, line)| format!("{file}:{}: {line}", number + 1)));
        }
    }
    assert!(found.is_empty(), "the reader leaves early:\n{}", found.join("\n"));
}

#[test]
fn readers_that_leave_early_are_found() {
    assert!(leaves_early("apt-cache policy x | grep -q y && z"));
    assert!(leaves_early("find . | sort | head -n 1"));
    assert!(!leaves_early("grep -q y file || find . | sed -n 1p"));
    assert!(!leaves_early("grep -c y file | tail -n 1"));
}
