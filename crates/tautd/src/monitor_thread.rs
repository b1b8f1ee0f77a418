//! Threads that talk to QEMU's monitor, which may be slow.

use std::io;
use std::thread::Builder;

use taut_api::Name;

/// Stack size in bytes: enough to parse an answer with the deepest nesting that the parser accepts,
/// and to write an event. Only the part that is used takes memory.
const STACK: usize = 1 << 20;

/// Runs `work` on a thread of its own, named after the VM. Fails if the host has no room for
/// another thread.
pub(crate) fn spawn(vm: &Name, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Builder::new().name(format!("qmp-{vm}")).stack_size(STACK).spawn(work).map(drop)
}
