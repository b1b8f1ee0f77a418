//! Programs with tests, built and found by cargo.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::checkout;

/// Selection of the tiers that need root: that of the Makefile, so that nothing is built twice.
pub const TIERS: [&str; 9] =
    ["--workspace", "--test", "launch", "--test", "host", "--test", "guest", "--test", "hidden"];

/// Builds tests with a selection of `make test`, and returns cargo's message about each program.
///
/// # Panics
/// If they cannot be built.
pub fn built(selection: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--no-run", "--message-format=json"])
        .args(selection)
        .current_dir(checkout())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo can be run");
    assert!(output.status.success());
    let messages = String::from_utf8(output.stdout).expect("cargo writes JSON");
    let messages =
        messages.lines().map(|line| serde_json::from_str::<Value>(line).expect("cargo writes JSON"));
    messages
        .filter(|message| message["profile"]["test"] == true && !message["executable"].is_null())
        .collect()
}
