//! Virtual machines as files and as processes: from what a user wrote to a command that runs it.
//!
//! * [`definition`]: a VM file (taut's TOML, or VMware's `.vmx` read by [`vmx`]) → a checked [`taut_api::vm::VmSpec`];
//! * [`launch`]: that spec → a QEMU or microguest command;
//! * [`image`]: kernels and initial RAM file systems for direct boot;
//! * [`qmp`]: talking to the QEMU that was started;
//! * [`replug`]: giving it another VMCI device in the place of one that lost its back end;
//! * [`probe`]: which QEMU there is, and whether KVM really runs guests here.

pub mod definition;
mod error;
pub mod image;
pub mod launch;
pub mod parsed;
pub mod probe;
pub mod qmp;
pub mod replug;
pub mod vmx;
