//! Settings of the host, or of a guest from inside, that `taut check` judges (BP).
//!
//! Each topic has a file. [`change`] applies those that can change while the host runs, and undoes
//! it.

pub mod change;
mod cpu;
mod guest;
mod idle;
mod kernel;
mod limits;
mod memory;
mod network;
mod power;

use std::path::Path;

use taut_api::check::{GuestFacts, HostFacts};

use crate::kernel::topology::{self, Topology, TopologyError};
use crate::kernel::tree::Tree;

/// Reads the host whose file system starts at `root` (`/`, or a captured tree).
///
/// # Errors
/// Returns an error if the list of CPUs or the memory cannot be read. Other files may be absent.
pub fn host(root: &Path) -> Result<HostFacts, TopologyError> {
    let topology = topology::read(root)?;
    let (tree, cpus) = (Tree(root), numbers(&topology));
    Ok(HostFacts {
        cpu: cpu::read(tree, &topology),
        power: power::read(tree, &cpus),
        idle: idle::read(tree, &cpus),
        memory: memory::read(tree),
        limits: limits::read(tree),
        kernel: kernel::read(tree),
        network: network::read(tree),
        commitment: None,
    })
}

/// Reads the guest whose file system starts at `root`, from inside.
///
/// # Errors
/// Returns an error if the list of CPUs or the memory cannot be read. Other files may be absent.
pub fn guest(root: &Path) -> Result<GuestFacts, TopologyError> {
    let topology = topology::read(root)?;
    Ok(guest::read(Tree(root), &topology))
}

fn numbers(topology: &Topology) -> Vec<u32> {
    topology.cpus.iter().map(|cpu| cpu.id).collect()
}
