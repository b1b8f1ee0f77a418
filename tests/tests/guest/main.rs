//! Tests that boot VMs in QEMU; emulation is enough. A missing kernel image is reported and its
//! part left out.

mod boot;
mod channel;
mod check;
mod crash;
mod disk;
mod emulated;
mod firmware;
mod guide;
mod huge_pages;
mod intruder;
mod isolation;
mod nested;
mod numa;
mod preload;
mod unshared;
mod vmci;

use std::path::Path;

use taut_tests::image;

/// Returns the file of a directly booted VM.
fn direct(image: &Path, nic: &str) -> String {
    let image = image.display();
    format!(
        "memory = \"128MiB\"\n[boot]\nkernel = \"{image}/vmlinuz\"\ninitrd = \"{image}/initrd\"\n[[nic]]\nportgroup = \"lan\"\n{nic}\n"
    )
}

/// Returns the image of this name. If there is none, prints that its part of the test is left out.
fn image_or_say(name: &str) -> Option<std::path::PathBuf> {
    let found = image(name);
    if found.is_none() {
        eprintln!("no image {name}: this Debian has no such kernel; its part of the test is left out");
    }
    found
}

/// Returns the image with the oldest cloud kernel; at least one must exist.
fn any_image() -> std::path::PathBuf {
    ["debian-6.1", "debian-6.12"].into_iter().find_map(image).expect("make images made at least one image")
}
