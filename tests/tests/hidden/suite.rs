//! The programs with the tests, built and found by cargo.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::Value;

/// A program with tests, as `make test` builds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    Host,
    Guest,
    /// Unit tests of `taut-bench`.
    Bench,
    /// A TCP program with and without `libtaut_vmci.so`.
    Preload,
}

/// A program with tests, and the folder in which cargo runs it.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Suite {
    pub(crate) fn program(self) -> Program {
        static UNIT: LazyLock<Vec<Value>> =
            LazyLock::new(|| built(&["--workspace", "--exclude", "taut-tests"]));
        static TIERS: LazyLock<Vec<Value>> =
            LazyLock::new(|| built(&["-p", "taut-tests", "--test", "host", "--test", "guest"]));
        let (built, name) = match self {
            Self::Host => (&TIERS, "host"),
            Self::Guest => (&TIERS, "guest"),
            Self::Bench => (&UNIT, "taut_bench"),
            Self::Preload => (&UNIT, "program"),
        };
        let found = built.iter().find(|program| program["target"]["name"] == name).expect("cargo built it");
        let manifest = Path::new(found["manifest_path"].as_str().unwrap());
        Program {
            path: found["executable"].as_str().unwrap().into(),
            folder: manifest.parent().unwrap().to_owned(),
        }
    }
}

/// Builds tests with the selection of `make test`, and returns cargo's message about each program.
fn built(selection: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--no-run", "--message-format=json"])
        .args(selection)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    let messages = String::from_utf8(output.stdout).unwrap();
    let messages = messages.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    messages
        .filter(|message| message["profile"]["test"] == true && !message["executable"].is_null())
        .collect()
}
