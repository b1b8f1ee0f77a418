//! Runs every command of README.md and of docs/guide, top to bottom, on a daemon that is new for
//! each document.

mod markdown;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use taut_tests::{Netns, Taut, bin_dir};

use crate::latency::scope::Scope;
use markdown::{Block, Document, replace_word};

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn read(document: &str) -> Document {
    Document::parse(&fs::read_to_string(checkout().join(document)).unwrap())
}

/// README.md and every page of the guide.
fn documents() -> Vec<String> {
    let pages = fs::read_dir(checkout().join("docs/guide")).unwrap();
    let mut names: Vec<String> =
        pages.map(|page| format!("docs/guide/{}", page.unwrap().file_name().to_str().unwrap())).collect();
    names.push("README.md".to_owned());
    names.sort();
    names
}

/// The reader of a document, and the folder in which they work.
struct Reader<'a> {
    taut: &'a Taut,
    dir: PathBuf,
}

impl<'a> Reader<'a> {
    /// Has the checkout's folders that documents name, and a `tautd` that uses the test's
    /// directories.
    fn new(taut: &'a Taut) -> Self {
        let dir = taut.dir().join("reader");
        fs::create_dir_all(dir.join("bin")).unwrap();
        for folder in ["tools", "demo"] {
            symlink(checkout().join(folder), dir.join(folder)).unwrap();
        }
        let daemon = dir.join("bin/tautd");
        let (program, directory) = (bin_dir().join("tautd"), taut.dir().display());
        let text = format!(
            "#!/bin/sh\nexec {} --state-dir {directory}/state --run-dir {directory}/run \\\n  --log-dir \
             {directory}/log \"$@\"\n",
            program.display()
        );
        fs::write(&daemon, text).unwrap();
        fs::set_permissions(&daemon, PermissionsExt::from_mode(0o755)).unwrap();
        Self { taut, dir }
    }

    /// Puts the test's directories and namespaces in the place of those that the text names.
    fn adapt(&self, document: &Document, text: &str) -> String {
        let directory = self.taut.dir().to_str().unwrap();
        let mut text = text.replace("/run/taut", &format!("{directory}/run"));
        text = text.replace("/var/lib/taut", &format!("{directory}/state"));
        text = text.replace("/var/log/taut", &format!("{directory}/log"));
        let lines = document.blocks.iter().flat_map(|block| &block.lines);
        let attached = lines.filter_map(|line| line.strip_prefix("taut netns attach ")?.split(' ').next());
        for name in attached {
            text = replace_word(&text, name, &Netns::name(self.taut, name));
        }
        text
    }

    /// Writes the document's files. Those with an absolute path are for commands that run
    /// elsewhere.
    fn write_files(&self, document: &Document) {
        for (name, content) in document.files.iter().filter(|(name, _)| !name.starts_with('/')) {
            fs::write(self.dir.join(name), self.adapt(document, content)).unwrap();
        }
    }

    /// Runs blocks with one shell.
    fn run(&self, document: &Document, blocks: &[&Block]) {
        let mut script = "set -Eeuo pipefail\n\
            trap 'echo \"failed with status $?: $BASH_COMMAND\" >&2' ERR\n\
            trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
            .to_owned();
        for line in blocks.iter().flat_map(|block| &block.lines) {
            script += &self.adapt(document, line);
            script += "\n";
        }
        let path = std::env::var("PATH").unwrap();
        let output = Command::new("bash")
            .args(["-c", &script])
            .current_dir(&self.dir)
            .env("PATH", format!("{}:{}:{path}", self.dir.join("bin").display(), bin_dir().display()))
            .env("TAUT_SOCKET", self.taut.dir().join("run/tautd.sock"))
            .stdin(Stdio::null())
            .output()
            .expect("bash is installed");
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(output.status.success(), "{}\n{}\n--- the script:\n{script}", said[0], said[1]);
    }
}

/// Runs a document's commands on this daemon and prints how many there were.
fn execute(name: &str, taut: &Taut) {
    let document = read(name);
    let reader = Reader::new(taut);
    reader.write_files(&document);
    let (here, elsewhere): (Vec<&Block>, Vec<&Block>) =
        document.blocks.iter().partition(|block| block.run_by.is_empty());
    reader.run(&document, &here);
    let count = |blocks: &[&Block]| blocks.iter().map(|block| block.lines.len()).sum::<usize>();
    println!("{name}: {} commands executed here, {} elsewhere", count(&here), count(&elsewhere));
    for block in elsewhere {
        for test in &block.run_by {
            assert!(checkout().join(test).exists(), "{name} names {test}, which does not exist");
        }
        println!("{name}: executed by {}: {}", block.run_by.join(", "), block.lines.join("; "));
    }
}

#[test]
fn readme_starts_a_daemon_and_ends_it() {
    let mut taut = Taut::start();
    taut.shut_down();
    execute("README.md", &taut);
    taut.restart_daemon();
}

#[test]
fn networks() {
    execute("docs/guide/networks.md", &Taut::start());
}

#[test]
fn latency() {
    let Some(scope) = Scope::enter() else { return };
    execute("docs/guide/latency.md", &crate::latency::start_daemon(&scope));
}

#[test]
fn resources() {
    execute("docs/guide/resources.md", &Taut::start());
}

#[test]
fn placement() {
    execute("docs/guide/placement.md", &Taut::start());
}

#[test]
fn vmci() {
    execute("docs/guide/vmci.md", &Taut::start());
}

#[test]
fn checks() {
    execute("docs/guide/checks.md", &Taut::start());
}

#[test]
fn page() {
    execute("docs/guide/page.md", &Taut::start());
}

#[test]
fn access() {
    execute("docs/guide/access.md", &Taut::start_with(&["--listen", "127.0.0.1:8443"]));
}

#[test]
fn monitoring() {
    execute("docs/guide/monitoring.md", &Taut::start());
}

#[test]
fn reasons() {
    execute("docs/guide/reasons.md", &Taut::start());
}

/// The page ends the daemon and starts another one, which ends with the page.
#[test]
fn operations() {
    let mut taut = Taut::start();
    execute("docs/guide/operations.md", &taut);
    taut.kill_daemon();
    taut.restart_daemon();
}

#[test]
fn every_page_has_a_test() {
    let this = include_str!("mod.rs");
    for name in documents() {
        assert!(this.contains(&format!("execute(\"{name}\"")), "no test executes {name}");
    }
}

/// A command that is only mentioned in a sentence is the beginning of one that a block executes.
#[test]
fn every_mentioned_command_is_executed_somewhere() {
    let documents: Vec<Document> = documents().iter().map(|name| read(name)).collect();
    let blocks = documents.iter().flat_map(|document| &document.blocks);
    let lines: Vec<&String> = blocks.flat_map(|block| &block.lines).collect();
    let is_executed = |span: &str| {
        let span = span.trim_end_matches(['…', ' ']);
        lines.iter().any(|line| line.starts_with(span) || line.contains(&format!("| {span}")))
    };
    let spans = documents.iter().flat_map(|document| &document.spans);
    let missing: Vec<&String> =
        spans.filter(|span| span.starts_with("taut ")).filter(|span| !is_executed(span)).collect();
    assert!(missing.is_empty(), "mentioned, but executed nowhere: {missing:?}");
}
