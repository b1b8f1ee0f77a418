//! Calls that SEQPACKET does not offer are refused at once, with an error that says so.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, connect, socket};
use taut_bench::kernel::vsock::VsockAddress;

/// Context ID of the host.
const HOST: u32 = 2;
/// A port without a listener.
const NOBODY: u32 = 4242;
/// Longest time of a refusal. A connect that nobody answers takes two seconds.
const AT_ONCE: Duration = Duration::from_millis(1500);

/// Tries everything that the machine's device does not offer. `server` listens with
/// `SOCK_SEQPACKET`.
pub(crate) fn all(server: VsockAddress) -> Result<()> {
    let refused = |what: &str, kind: SocketType, to: VsockAddress| -> Result<()> {
        let socket = socket(AddressFamily::VSOCK, kind, None)?;
        let began = Instant::now();
        match connect(&socket, &to) {
            Err(Errno::CONNRESET) => {}
            Err(error) => return Err(error).with_context(|| what.to_owned()),
            Ok(()) => bail!("{what} is accepted"),
        }
        let took = began.elapsed();
        ensure!(took < AT_ONCE, "{what} is refused after {took:?}");
        Ok(())
    };
    refused("SOCK_STREAM to SOCK_SEQPACKET", SocketType::STREAM, server)?;
    let nobody = VsockAddress { port: NOBODY, ..server };
    refused("SOCK_SEQPACKET to nobody", SocketType::SEQPACKET, nobody)?;
    let host = VsockAddress { cid: HOST, ..server };
    refused("SOCK_SEQPACKET to the host", SocketType::SEQPACKET, host)?;
    // The kernel has no virtio driver for datagrams.
    match socket(AddressFamily::VSOCK, SocketType::DGRAM, None) {
        Err(Errno::NODEV) => Ok(()),
        Err(error) => Err(error).context("SOCK_DGRAM"),
        Ok(_) => bail!("SOCK_DGRAM is offered"),
    }
}
