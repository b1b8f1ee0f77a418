//! The programs with the tests, built and found by cargo.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value;
use taut_tests::{TIERS, built};

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
        static OF_TIERS: LazyLock<Vec<Value>> = LazyLock::new(|| built(&TIERS));
        let (built, name) = match self {
            Self::Host => (&OF_TIERS, "host"),
            Self::Guest => (&OF_TIERS, "guest"),
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
