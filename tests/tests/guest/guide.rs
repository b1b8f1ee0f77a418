//! The commands of the guide that need a guest with an operating system, on a Debian guest.

#[path = "../host/guide/markdown.rs"]
#[allow(dead_code, reason = "shared with the tests of the host")]
mod markdown;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use markdown::Document;
use taut_tests::{Taut, any_image, bin_dir};

use crate::direct;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/guide")
}

/// Names and contents of the files that a page has its reader write.
pub(crate) fn files_of(page: &str) -> Vec<(String, String)> {
    Document::parse(&std::fs::read_to_string(folder().join(page)).unwrap()).files
}

/// Lines of the guide's blocks that name this test as the one that runs them.
pub(crate) fn commands_for(test: &str) -> Vec<String> {
    let pages = std::fs::read_dir(folder()).unwrap();
    let texts = pages.map(|page| std::fs::read_to_string(page.unwrap().path()).unwrap());
    texts
        .flat_map(|text| Document::parse(&text).blocks)
        .filter(|block| block.run_by.iter().any(|named| named == test))
        .flat_map(|block| block.lines)
        .collect()
}

#[test]
fn commands_for_a_guest_with_an_operating_system_succeed() {
    let taut = Taut::start().with_lan();
    taut.boot("linux1", &direct(&any_image(), "ip = \"10.72.0.1/24\""));
    let commands = commands_for("tests/tests/guest/guide.rs");
    assert!(!commands.is_empty());
    let path = format!("{}:{}", bin_dir().display(), std::env::var("PATH").unwrap());
    for line in &commands {
        let output = Command::new("bash")
            .args(["-c", line])
            .env("PATH", &path)
            .env("TAUT_SOCKET", taut.dir().join("run/tautd.sock"))
            .stdin(Stdio::null())
            .output()
            .expect("bash is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}\n{}", taut.logs());
    }
    println!("the guide: {} commands executed with a Debian guest", commands.len());
}
