//! Files that the Markdown documents name exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::root;

const EXTENSIONS: [&str; 10] = ["rs", "sh", "md", "toml", "json", "jsonl", "svg", "txt", "vmx", "c"];

/// Tracked Markdown files.
fn documents() -> Vec<PathBuf> {
    let output = Command::new("git").args(["ls-files", "*.md"]).current_dir(root()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|name| root().join(name)).filter(|path| path.exists()).collect()
}

/// Paths that a document names: code spans that look like one, and targets of links.
fn named(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if is_code {
            continue;
        }
        names.extend(line.split('`').skip(1).step_by(2).filter(|span| is_path(span)));
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        names.extend(targets.filter(|target| !target.contains("://") && !target.starts_with('#')));
        let tests = line.strip_prefix("<!-- run by: ").and_then(|rest| rest.strip_suffix(" -->"));
        names.extend(tests.into_iter().flat_map(|tests| tests.split(", ")));
    }
    names
}

fn is_path(span: &str) -> bool {
    let is_file = Path::new(span).extension().is_some_and(|end| EXTENSIONS.iter().any(|known| end == *known));
    let is_elsewhere = span.starts_with(['/', '_', '<']) || span.starts_with("target/");
    span.contains('/')
        && (is_file || span.ends_with('/'))
        && !is_elsewhere
        && !span.contains([' ', '*', '…', '$'])
        && !span.contains("NNNN")
}

/// Paths are relative to the document, the checkout, its crates, or its tests.
fn exists(document: &Path, name: &str) -> bool {
    let name = name.split('#').next().unwrap_or(name);
    let folders = [document.parent().unwrap().to_owned(), root().to_owned(), root().join("crates")];
    folders.into_iter().chain([root().join("tests/tests")]).any(|folder| folder.join(name).exists())
}

#[test]
fn every_file_that_a_document_names_exists() {
    let mut count = 0;
    let mut missing = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        let names = named(&text);
        count += names.len();
        let gone = names.into_iter().filter(|name| !exists(&document, name));
        missing
            .extend(gone.map(|name| format!("{}: {name}", document.strip_prefix(root()).unwrap().display())));
    }
    assert!(count > 50, "only {count} paths found");
    assert!(missing.is_empty(), "there is no such file:\n{}", missing.join("\n"));
}

/// Anchors of a document's headings, as renderers of Markdown make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Links into documents of the files for Prometheus and Grafana.
fn shipped_links() -> Vec<String> {
    let read = |name: &str| std::fs::read_to_string(root().join("dist/monitoring").join(name)).unwrap();
    let (alerts, dashboard) = (read("alerts.yml"), read("dashboard.json"));
    let runbooks = alerts.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: "));
    let words = dashboard.split(|c: char| c.is_whitespace() || "\",".contains(c));
    let links = runbooks.chain(words.filter(|word| word.starts_with("docs/")));
    links.map(|link| link.trim_end_matches('.').to_owned()).collect()
}

#[test]
fn every_section_that_is_named_exists() {
    let has = |path: &Path, link: &str| {
        let Some((name, anchor)) = link.split_once('#') else { return true };
        let folders = [path.parent().unwrap(), root()].map(Path::to_owned);
        let document = if name.is_empty() { Some(path.to_owned()) } else { None };
        let named = folders.into_iter().map(|folder| folder.join(name));
        let mut found =
            document.into_iter().chain(named).filter_map(|path| std::fs::read_to_string(path).ok());
        found.any(|text| anchors(&text).contains(anchor))
    };
    let mut missing = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        let gone = named(&text).into_iter().filter(|link| !has(&document, link));
        missing.extend(gone.map(|link| format!("{}: {link}", document.display())));
    }
    let shipped = shipped_links();
    assert!(shipped.len() > 12, "{shipped:?}");
    missing.extend(shipped.into_iter().filter(|link| !has(&root().join("README.md"), link)));
    assert!(missing.is_empty(), "there is no such section:\n{}", missing.join("\n"));
}

#[test]
fn paths_and_links_are_found_and_other_code_is_not() {
    let text = "`tools/x.sh` `make test` `a/b` [x](y.md#z) [w](https://x/y.md)\n<!-- run by: q.rs -->\n```\n`n/o.rs`\n```\n";
    assert_eq!(named(text), ["tools/x.sh", "y.md#z", "q.rs"]);
}

/// Tracked Rust files of the crates.
fn sources() -> Vec<PathBuf> {
    let output = Command::new("git").args(["ls-files", "crates/*.rs"]).current_dir(root()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|name| root().join(name)).filter(|path| path.exists()).collect()
}

/// Returns true for the name of a row, such as `LS-3`.
fn is_row(word: &str) -> bool {
    let number = ["LS-", "VN-", "VC-", "DM-"].iter().find_map(|family| word.strip_prefix(family));
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

#[test]
fn every_row_that_the_code_names_is_explained() {
    let text = std::fs::read_to_string(root().join("docs/spec.md")).unwrap();
    let mut count = 0;
    for path in sources() {
        let source = std::fs::read_to_string(&path).unwrap();
        for row in source.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| is_row(word))
        {
            count += 1;
            assert!(
                text.contains(&format!("- **{row} ")),
                "docs/spec.md lacks {row}, which {} names",
                path.display()
            );
        }
    }
    assert!(count > 50, "only {count} rows found");
}
