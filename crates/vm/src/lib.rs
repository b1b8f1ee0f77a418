//! Virtual machines as files and as processes: from what a user wrote to a command that runs the
//! VM.
//!
//! * [`definition`]: a VM file (taut's TOML, or VMware's `.vmx` read by [`vmx`]) → a checked
//!   [`taut_api::vm::VmSpec`] ([`parsed`]);
//! * [`launch`]: that spec → a command that runs QEMU or a microguest;
//! * [`image`]: kernels and initial RAM file systems for direct boot;
//! * [`qmp`]: a client for the monitor of a running QEMU;
//! * [`hotplug`]: adds memory for queue pairs to a running QEMU;
//! * [`replug`]: replaces a VMCI device that lost its back end;
//! * [`named_file`]: opens files that a stranger named;
//! * [`probe`]: finds QEMU, and tests whether KVM runs guests on this host.

pub mod definition;
mod error;
pub mod hotplug;
pub mod image;
pub mod launch;
pub mod named_file;
pub mod parsed;
pub mod probe;
pub mod qmp;
pub mod replug;
pub mod vmx;
