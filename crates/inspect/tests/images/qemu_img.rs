//! Runs `qemu-img`.

use std::path::Path;
use std::process::Command;

/// Runs `qemu-img` in a folder and returns what it prints.
pub(crate) fn qemu_img(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("qemu-img").args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("qemu-img: {error}\nhint: make setup-test"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "qemu-img {}: {said}", arguments.join(" "));
    String::from_utf8(output.stdout).unwrap()
}
