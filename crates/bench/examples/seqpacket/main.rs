//! Sends messages over `SOCK_SEQPACKET` sockets of `AF_VSOCK` in both directions at once. Each end
//! knows the messages of the other one, and compares boundaries, order, flags and content.

mod phase;
mod plan;
mod refusals;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, accept, bind, connect, listen, socket};
use taut_bench::kernel::vsock::{VsockAddress, set_buffer_size};

use crate::phase::Phase;

/// The port, unless another is named.
const PORT: u32 = 700;
/// The address of sockets that listen (`VMADDR_CID_ANY`).
const ANY: u32 = u32::MAX;
/// Linux' own buffer size.
const USUAL: u32 = 256 << 10;
/// The smallest buffer that is tried.
const SMALLEST: u32 = 8 << 10;
/// Longest message that a guest may send to another one (docs/guide/vmci.md).
const LONGEST: usize = 1 << 20;

/// Tests `SOCK_SEQPACKET` between two machines.
#[derive(Debug, Parser)]
enum Arguments {
    /// Serves clients, one at a time, for ever.
    Serve {
        #[arg(long, default_value_t = PORT)]
        port: u32,
    },
    /// Runs all phases with a server.
    Drive {
        /// Context ID of the server.
        cid: u32,
        #[arg(long, default_value_t = PORT)]
        port: u32,
        /// Messages of the phase with messages of all lengths, in each direction.
        #[arg(long, default_value_t = 100_000)]
        messages: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> Result<()> {
    match Arguments::parse() {
        Arguments::Serve { port } => serve(port),
        Arguments::Drive { cid, port, messages, seed } => drive(VsockAddress { cid, port }, messages, seed),
    }
}

fn serve(port: u32) -> Result<()> {
    let listener = new()?;
    // Connections begin with this size, and may only get larger buffers.
    set_buffer_size(&listener, SMALLEST)?;
    bind(&listener, &VsockAddress { cid: ANY, port }).context("bind")?;
    listen(&listener, 8).context("listen")?;
    println!("seqpacket: serves port {port}.");
    loop {
        let client = accept(&listener).context("accept")?;
        match Phase::serve(&client) {
            Ok((phase, received)) => println!("seqpacket: served {phase:?}: {received:?}"),
            Err(error) => println!("seqpacket: server failed: {error:#}."),
        }
    }
}

fn drive(server: VsockAddress, messages: u64, seed: u64) -> Result<()> {
    let usual = Phase { seed, count: messages, lens: 1..=64 << 10, buffer: USUAL, pause: Duration::ZERO };
    let phases = [
        ("all lengths", usual.clone()),
        // Linux limits the number of packets that a socket holds, whatever their size.
        (
            "short ones, read late",
            Phase { count: 5000, lens: 1..=16, pause: Duration::from_secs(1), ..usual.clone() },
        ),
        (
            "as long as the buffer",
            Phase {
                count: 300,
                lens: 1 << 10..=USUAL as usize,
                pause: Duration::from_secs(1),
                ..usual.clone()
            },
        ),
        (
            "small buffers",
            Phase { count: 2000, lens: 1..=SMALLEST as usize, buffer: SMALLEST, ..usual.clone() },
        ),
        ("large buffers", Phase { count: 100, lens: 1..=LONGEST, buffer: LONGEST as u32, ..usual }),
    ];
    for (name, phase) in phases {
        let outcome = run(server, &phase).with_context(|| format!("seqpacket: failed: {name}"));
        let (received, took) = outcome?;
        println!(
            "seqpacket: {name}: {} messages of {} to {} bytes each way, {} of them read in part, {} bytes, {} ms.",
            received.messages,
            phase.lens.start(),
            phase.lens.end(),
            received.truncated,
            received.bytes,
            took.as_millis()
        );
    }
    refusals::all(server).context("seqpacket: failed: refusals")?;
    println!("seqpacket: all was as planned.");
    Ok(())
}

fn run(server: VsockAddress, phase: &Phase) -> Result<(phase::Received, Duration)> {
    let client = new()?;
    set_buffer_size(&client, phase.buffer)?;
    // The server may still be starting.
    let mut tries = 0;
    while let Err(error) = connect(&client, &server) {
        tries += 1;
        if error != Errno::CONNRESET || tries > 100 {
            return Err(error).context("connect");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let began = Instant::now();
    let received = phase.drive(&client)?;
    Ok((received, began.elapsed()))
}

fn new() -> Result<OwnedFd> {
    socket(AddressFamily::VSOCK, SocketType::SEQPACKET, None).context("AF_VSOCK, SOCK_SEQPACKET")
}
