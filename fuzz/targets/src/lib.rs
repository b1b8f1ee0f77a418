//! Fuzz targets, one for each border that hostile bytes cross.
//!
//! A target is a function that takes any bytes. It must not panic, and its assertions say what else
//! must hold. `fuzz/` passes these functions to libFuzzer (`make fuzz`); `tests/corpus.rs` replays
//! the kept corpus in the normal test suite. Fast targets reach 50,000 executions a second:
//! expensive state (memory, sockets) is set up once per thread and reset for each input.

pub mod connection;
pub mod frame;
pub mod handshake;
pub mod launch;
pub mod message;
pub mod qcow2;
pub mod ring;
pub mod session;
pub mod socket;
pub mod vmdk;

mod image_file;
mod input;
mod setup;
mod world;

/// A target: its name, which is also that of its corpus, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const ALL: [Target; 10] = [
    ("ring", ring::run),
    ("frame", frame::run),
    ("message", message::run),
    ("session", session::run),
    ("socket", socket::run),
    ("connection", connection::run),
    ("handshake", handshake::run),
    ("qcow2", qcow2::run),
    ("vmdk", vmdk::run),
    ("launch", launch::run),
];
