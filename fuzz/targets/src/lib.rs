//! Fuzz targets, one for each border that hostile bytes cross.
//!
//! A target is a function that takes any bytes. It must not panic, its assertions say what else
//! must hold, and each execution has a [`Budget`] of time and memory. `fuzz/` passes targets to
//! libFuzzer (`make fuzz`); `tests/` replays the kept corpus in the normal test suite, and changes
//! it. Fast targets reach 50,000 executions a second: expensive state (memory, sockets) is set up
//! once per thread and reset for each input.

pub mod agent;
pub mod connection;
pub mod console;
pub mod control;
pub mod descriptors;
pub mod document;
pub mod frame;
pub mod handshake;
pub mod launch;
pub mod message;
pub mod multicast;
pub mod qcow2;
pub mod qmp;
pub mod queue_pair;
pub mod ring;
pub mod session;
pub mod socket;
pub mod statement;
pub mod vmdk;
pub mod vmx;

mod budget;
mod heap;
mod image_file;
mod input;
mod setup;
mod vm_file;
mod world;

pub use budget::{Budget, OVER};

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is also that of its corpus and its fuzz program.
    pub name: &'static str,
    run: fn(&[u8]),
    budget: Budget,
}

impl Target {
    /// Runs one input.
    ///
    /// # Panics
    /// If the input shows a fault, or exceeds the budget.
    pub fn execute(&self, input: &[u8]) {
        self.budget.spend(|| (self.run)(input));
    }
}

/// All targets.
pub const ALL: [Target; 20] = [
    ring::TARGET,
    frame::TARGET,
    message::TARGET,
    multicast::TARGET,
    statement::TARGET,
    session::TARGET,
    descriptors::TARGET,
    socket::TARGET,
    connection::TARGET,
    handshake::TARGET,
    queue_pair::TARGET,
    qcow2::TARGET,
    vmdk::TARGET,
    launch::TARGET,
    qmp::TARGET,
    agent::TARGET,
    control::TARGET,
    console::TARGET,
    vmx::TARGET,
    document::TARGET,
];
