//! Shell scripts that stop at a failing command have no pipe whose reader leaves early: then the
//! writer fails, depending on which of the two is faster.

use std::process::Command;

use crate::root;

/// Returns whether a reader of a pipe in this line may leave before it has read everything.
fn leaves_early(line: &str) -> bool {
    let line = line.replace("||", ";").replace("|&", "|");
    line.split('|').skip(1).any(|reader| {
        let command = reader.split([';', '&', ')']).next().unwrap_or_default();
        let mut words = command.split_whitespace();
        match words.next() {
            Some("head" | "read") => true,
            Some("grep") => words
                .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(['q', 'm'])),
            Some("sed") => words.any(|word| word.trim_end_matches(['\'', '"', '}']).ends_with('q')),
            _ => false,
        }
    })
}

#[test]
fn no_reader_of_a_pipe_leaves_early() {
    let output =
        Command::new("git").args(["ls-files", "*.sh", ".ci/run"]).current_dir(root()).output().unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    let (mut found, mut checked) = (Vec::new(), 0);
    for file in files.lines() {
        let Ok(text) = std::fs::read_to_string(root().join(file)) else { continue };
        if text.contains("pipefail") {
            checked += 1;
            let lines = text.lines().enumerate().filter(|(_, line)| leaves_early(line));
            found.extend(lines.map(|(number, line)| format!("{file}:{}: {line}", number + 1)));
        }
    }
    assert!(checked > 5, "{checked} scripts");
    assert!(found.is_empty(), "the reader leaves early:\n{}", found.join("\n"));
}

#[test]
fn readers_that_leave_early_are_found() {
    assert!(leaves_early("apt-cache policy x | grep -q y && z"));
    assert!(leaves_early("find . | sort | head -n 1"));
    assert!(leaves_early("x | grep -E -q y") && leaves_early("x | sed 5q") && leaves_early("x |& head"));
    assert!(!leaves_early("cmd || grep -q x file") && !leaves_early("x | sort && grep -q y z"));
    assert!(!leaves_early("grep -q y file || find . | sed -n 1p"));
    assert!(!leaves_early("grep -c y file | tail -n 1"));
}
