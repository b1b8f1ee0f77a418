//! Threads that talk to QEMU's monitor, which may be slow.

use std::io;
use std::thread::{Builder, JoinHandle};

use taut_api::Name;

/// Stack size in bytes: enough to parse an answer with the deepest nesting that the parser accepts,
/// and to write an event. Only the part that is used takes memory.
const STACK: usize = 1 << 20;

/// Runs `work` on a thread of its own, named after the VM. If the host has no room for another
/// thread, `work` is dropped and the log names the `task` that is not done.
pub(crate) fn spawn(vm: &Name, task: &str, work: impl FnOnce() + Send + 'static) {
    if let Err(error) = try_spawn(vm, work) {
        tracing::warn!(%vm, %error, "{task} is not done: no thread can be started");
    }
}

/// Does the same as [`spawn`], and returns the error.
pub(crate) fn try_spawn(vm: &Name, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(format!("qmp-{vm}")).stack_size(STACK).spawn(work)
}
