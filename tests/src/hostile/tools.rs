//! Resources of acts besides their connection, and what they look at in the fabric.

use std::io;

use serde_json::Value;

use super::claim;
use super::front_end::FrontEnd;
use super::port::Port;
use crate::Taut;
use crate::fuse::Fuse;

/// Bytes by which the fabric's own memory may differ between two moments.
const SPARE: u64 = 64 << 10;

/// Resources that acts use besides their connection.
#[derive(Debug)]
pub(super) struct Tools {
    /// A file system of the attacker's.
    pub(super) fuse: Fuse,
    /// Ethernet address of a port that accepts no offloads.
    pub(super) sink: [u8; 6],
    /// The fabric's process number.
    pub(super) fabric: i32,
    /// The daemon.
    pub(super) taut: Taut,
}

impl Tools {
    /// Connects to a port under attack.
    ///
    /// # Errors
    /// As [`FrontEnd::connect`].
    pub(super) fn connect(&self, port: Port) -> io::Result<FrontEnd> {
        FrontEnd::connect(&port.socket(&self.taut), port != Port::Trusted)
    }

    /// Calls `round` half of the `rounds` times, then the other half, and fails if the fabric's
    /// memory has grown in the second half.
    ///
    /// # Errors
    /// Its memory has grown or cannot be read, or a round has failed.
    pub(super) fn flat(&self, rounds: usize, mut round: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        (0..rounds / 2).try_for_each(|_| round())?;
        let before = self.memory()?;
        (rounds / 2..rounds).try_for_each(|_| round())?;
        let after = self.memory()?;
        claim(
            after <= before + SPARE,
            &format!("the fabric's memory has grown from {before} to {after} bytes"),
        )
    }

    /// Bytes of the fabric's own memory: neither files nor the memory of guests.
    fn memory(&self) -> io::Result<u64> {
        let sums = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.fabric))?;
        let line = sums.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.map(|kib| kib << 10)
            .ok_or_else(|| io::Error::other("the kernel does not tell the fabric's memory"))
    }

    /// Number of the fabric's mappings.
    pub(super) fn mappings(&self) -> io::Result<usize> {
        Ok(std::fs::read_to_string(format!("/proc/{}/maps", self.fabric))?.lines().count())
    }

    /// All events, in order.
    pub(super) fn events(&self) -> Vec<Value> {
        let mut events: Vec<Value> = Vec::new();
        loop {
            let last = events.last().and_then(|event| event["seq"].as_u64()).unwrap_or_default();
            let Value::Array(page) = self.taut.json(["events", "--since", &last.to_string()]) else {
                return events;
            };
            if page.is_empty() {
                return events;
            }
            events.extend(page);
        }
    }
}
