//! How the host, or a guest from inside, is set: everything that `taut check` judges (SPEC BP), one topic a file, and
//! [`change`]: applying what can be changed while the host runs, and taking it back.

pub mod change;
mod cpu;
mod guest;
mod idle;
mod kernel;
mod memory;
mod network;
mod power;

use std::path::Path;

use taut_api::check::{GuestFacts, HostFacts};

use taut_api::host::Topology;

use crate::kernel::topology::{self, TopologyError};
use crate::kernel::tree::Tree;

/// Reads the host whose file system starts at `root` (`/`, or a captured tree).
///
/// # Errors
/// When the list of CPUs or the memory cannot be read; everything else may be absent.
pub fn host(root: &Path) -> Result<HostFacts, TopologyError> {
    let topology = topology::read(root)?;
    let (tree, cpus) = (Tree(root), numbers(&topology));
    Ok(HostFacts {
        cpu: cpu::read(tree, &topology),
        power: power::read(tree, &cpus),
        idle: idle::read(tree, &cpus),
        memory: memory::read(tree),
        kernel: kernel::read(tree),
        network: network::read(tree),
        commitment: None,
    })
}

/// Reads the guest whose file system starts at `root`, from inside.
///
/// # Errors
/// When the list of CPUs or the memory cannot be read; everything else may be absent.
pub fn guest(root: &Path) -> Result<GuestFacts, TopologyError> {
    let topology = topology::read(root)?;
    Ok(guest::read(Tree(root), &topology))
}

fn numbers(topology: &Topology) -> Vec<u32> {
    topology.cpus.iter().map(|cpu| cpu.id).collect()
}
