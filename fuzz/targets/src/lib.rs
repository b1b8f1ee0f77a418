//! What fuzzing does with one input, for each border that hostile bytes cross.
//!
//! A target is a function from any bytes to nothing: it must not panic, whatever the bytes are, and its assertions say
//! what else must hold. `fuzz/` gives these functions to libFuzzer (`make fuzz`); `tests/corpus.rs` replays what it found
//! interesting, in the normal test suite. Targets are fast, 50,000 executions a second and more: what is expensive to
//! set up (memory, sockets) is set up once per thread and put back into its first state.

pub mod connection;
pub mod frame;
pub mod handshake;
pub mod message;
pub mod ring;
pub mod session;
pub mod socket;

mod input;
mod setup;
mod world;

/// A target: its name, which is also its corpus's, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const ALL: [Target; 7] = [
    ("ring", ring::run),
    ("frame", frame::run),
    ("message", message::run),
    ("session", session::run),
    ("socket", socket::run),
    ("connection", connection::run),
    ("handshake", handshake::run),
];
