//! Tests that boot VMs in QEMU; emulation is enough.

mod added_queue_pairs;
mod addresses;
mod boot;
mod channel;
mod check;
mod crash;
mod datagrams;
mod disk;
mod emulated;
mod firmware;
mod guide;
mod huge_pages;
mod intruder;
mod isolation;
mod links;
mod mtu;
mod nested;
mod numa;
mod preload;
mod queue_pairs;
mod router;
mod seqpacket;
mod unshared;
mod vmci;

use std::path::Path;

/// Returns the file of a directly booted VM.
fn direct(image: &Path, nic: &str) -> String {
    let image = image.display();
    format!(
        "memory = \"128MiB\"\n[boot]\nkernel = \"{image}/vmlinuz\"\ninitrd = \"{image}/initrd\"\n[[nic]]\nportgroup = \"lan\"\n{nic}\n"
    )
}
