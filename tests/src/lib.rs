//! Fixture that runs the real programs. Every test has a `tautd` with directories of its own, and
//! nothing is left when it ends.
//!
//! `TAUT_BIN` names the folder of the programs (default: the release folder of this checkout),
//! `TAUT_IMAGES` that of the guest images. `TAUT_ALLOW_SKIP` lists what may be missing
//! ([`Prerequisite`]).

mod built;
mod busy_machine;
mod cable;
mod capture;
mod cpu_limit;
mod daemon;
pub mod fuse;
pub mod hostile;
mod leftovers;
mod lingering;
mod long_frame;
mod monitor;
mod netns;
mod prerequisite;
mod process;
mod raw_port;
mod raw_vmci;
mod sender;
mod tls_client;
mod touches;
mod wait;
mod walls;

pub use built::{TIERS, built};
pub use busy_machine::busy_machine;
pub use cable::{Cable, ip};
pub use capture::{Capture, Captured, CapturedFrame};
pub use cpu_limit::CpuLimit;
pub use daemon::{Outcome, Taut};
pub use leftovers::{clear_away, directory, is_left_over, owner};
pub use lingering::lingering;
pub use long_frame::{TCP_HEADERS, long_tcp};
pub use monitor::ask_monitor;
pub use netns::{Netns, Pings};
pub use prerequisite::{Controller, Image, Prerequisite, any_image, image, require, require_found};
pub use process::{Background, Pids, alive, cpu_group, kill_9};
pub use raw_port::RawPort;
pub use raw_vmci::{RawVmci, idle_microguests};
pub use sender::FrameSender;
pub use tls_client::{TlsAnswer, TlsClient};
pub use touches::{Touches, Untouchable, strace};
pub use wait::eventually;
pub use walls::{WallsSeen, missing_walls};

use std::path::{Path, PathBuf};

/// Returns the folder of the programs.
pub fn bin_dir() -> PathBuf {
    std::env::var_os("TAUT_BIN").map_or_else(|| checkout().join("target/release"), PathBuf::from)
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests live in a checkout")
}
