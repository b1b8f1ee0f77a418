//! Tests that run out of descriptors, each in a process of its own: other tests need theirs.

use std::env;
use std::fs::File;
use std::iter;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Environment variable of such a process.
const ALONE: &str = "TAUT_SHORTAGE_TEST";
/// Most descriptors of such a process.
const LIMIT: u64 = 64;

/// Runs the body of the calling test in a process of its own, which may have 64 descriptors.
/// `module` is the path of the test's module, with the crate, and `name` the test's name.
pub(crate) fn alone(module: &str, name: &str, body: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        let limit = Rlimit { current: Some(LIMIT), ..getrlimit(Resource::Nofile) };
        setrlimit(Resource::Nofile, limit).unwrap();
        return body();
    }
    let (_, module) = module.split_once("::").unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{name}"), "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "{text}");
}

/// Opens files until the process may open no more than `free` others. The descriptors are free
/// again once these files are dropped.
pub(crate) fn leave_free(free: usize) -> Vec<File> {
    let mut files: Vec<_> = iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.truncate(files.len() - free);
    files
}
