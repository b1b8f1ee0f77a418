//! The checkout's own tests, examples and scripts as parts of rows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Lab;
use crate::machine::{Command, Ended, Text, Words};
use crate::reason::{Measured, require};

/// Tests that ran, with what they printed.
#[derive(Debug, Clone)]
pub struct Tests {
    /// Number of tests that passed.
    pub passed: f64,
    /// Number of tests that failed.
    pub failed: f64,
    /// Output of the tests.
    pub text: Text,
    /// Time that they took.
    pub took: Duration,
}

impl Lab<'_> {
    /// Returns a command that runs in the checkout, apart from the lab's daemon. Tests that it runs
    /// may not be skipped.
    pub fn in_checkout(&self, program: impl AsRef<Path>) -> Command {
        Command::new(program)
            .folder(&self.setup.checkout)
            .env("TAUT_BIN", &self.setup.programs)
            .env("TAUT_IMAGES", &self.setup.images)
            .without_env("TAUT_SOCKET")
            .without_env("TAUT_ALLOW_SKIP")
            .limit(7200)
    }

    /// Runs `cargo test` with these words. Fails if a test fails or is skipped, or if none ran.
    pub fn cargo_test(&mut self, words: impl Words) -> Measured<Tests> {
        let command = self.in_checkout("cargo").args("test").args(words).record("cargo-test");
        self.tests(&command)
    }

    /// Runs a command of [`Lab::in_checkout`] that runs tests. Fails like [`Lab::cargo_test`].
    pub fn tests(&mut self, command: &Command) -> Measured<Tests> {
        let ended = self.machine.run(command)?.success()?;
        let passed: f64 = ended.stdout.numbers_between("test result: ok. ", " passed")?.iter().sum();
        require(passed > 0.0, format!("`{}` ran no test", ended.command))?;
        Ok(Tests { passed, failed: 0.0, text: ended.stdout, took: ended.took })
    }

    /// Runs a command of [`Lab::in_checkout`] that runs tests, for a row that judges the figures of
    /// tests which fail, too. Fails if none ran, or if the command failed without a failed test:
    /// the build failed, or a test program died.
    pub fn tests_that_may_fail(&mut self, command: &Command) -> Measured<Tests> {
        let ended = self.machine.run(command)?;
        let count = |before: &str, after: &str| -> Measured<f64> {
            Ok(ended.stdout.numbers_between(before, after)?.iter().sum())
        };
        let failed = count(" passed; ", " failed; ")?;
        let passed = count("test result: ok. ", " passed; ")? + count("test result: FAILED. ", " passed; ")?;
        let ended = if failed > 0.0 { ended } else { ended.success()? };
        require(passed + failed > 0.0, format!("`{}` ran no test", ended.command))?;
        Ok(Tests { passed, failed, text: ended.stdout, took: ended.took })
    }

    /// Builds an optimised example and returns its path.
    pub fn example(&mut self, package: &str, name: &str) -> Measured<PathBuf> {
        let build =
            self.in_checkout("cargo").args(format!("build -q --release -p {package} --example {name}"));
        self.run(&build)?;
        Ok(self.target().join("release/examples").join(name))
    }

    /// Cargo's target folder, which is above the programs' folder.
    pub fn target(&self) -> PathBuf {
        self.setup.programs.parent().unwrap_or(&self.setup.programs).to_owned()
    }

    /// Runs git in the checkout.
    pub fn git(&mut self, words: impl Words) -> Measured<Ended> {
        let command = self.in_checkout("git").args(words);
        self.run(&command)
    }

    /// Clones the checkout as it was committed, and returns the clone's folder.
    pub fn clone_checkout(&mut self) -> Measured<PathBuf> {
        let clone = self.folder.join("clone");
        let command = Command::new("git").args("clone -q").arg(&self.setup.checkout).arg(&clone);
        self.run(&command)?;
        Ok(clone)
    }
}
