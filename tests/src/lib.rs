//! A fixture that runs the real programs: every test has a `tautd` with directories of its own, and when it ends
//! nothing of it is left.
//!
//! `TAUT_BIN` names the folder of the built programs (default: the release folder of this checkout), `TAUT_IMAGES`
//! that of the guest images.

mod daemon;
mod leftovers;
mod netns;
mod process;
mod raw_port;
mod raw_vmci;
mod wait;

pub use daemon::{Outcome, Taut};
pub use leftovers::{clear_away, directory, is_left_over, owner};
pub use netns::{Netns, Pings};
pub use process::{Background, Pids, alive, kill_9};
pub use raw_port::RawPort;
pub use raw_vmci::{RawVmci, idle_microguests};
pub use wait::eventually;

use std::path::{Path, PathBuf};

/// Folder of the built programs.
pub fn bin_dir() -> PathBuf {
    std::env::var_os("TAUT_BIN").map_or_else(|| checkout().join("target/release"), PathBuf::from)
}

/// Folder of one guest image, if this system's Debian has its kernel.
pub fn image(name: &str) -> Option<PathBuf> {
    let images =
        std::env::var_os("TAUT_IMAGES").map_or_else(|| checkout().join("target/images"), PathBuf::from);
    Some(images.join(name)).filter(|folder| folder.join("info.json").exists())
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests live in a checkout")
}
