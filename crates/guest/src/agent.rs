//! `taut-guest agent`: answers calls on whichever channel the host has.

use std::fs;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread;

use clap::{Args, ValueEnum};
use taut_workload::agent;
use taut_workload::agent::protocol::Kind;
use taut_workload::kernel::Kernel;

use crate::port::Port;

/// Arguments of `taut-guest agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    channel: Channel,
    /// Where this runs.
    #[arg(long, value_enum, default_value_t = Place::Guest)]
    kind: Place,
}

/// How calls come in.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Channel {
    /// A virtio-serial port.
    #[arg(long, value_name = "PATH")]
    device: Option<PathBuf>,
    /// Standard input and output, until the input ends.
    #[arg(long)]
    stdio: bool,
    /// A Unix socket, made here; each connection is a conversation.
    #[arg(long, value_name = "PATH")]
    listen: Option<PathBuf>,
}

/// Where an agent on kernel sockets can run.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Place {
    /// In a virtual machine.
    Guest,
    /// In a network namespace of the host.
    Netns,
    /// On the host.
    Host,
}

/// Answers calls until the channel ends for good.
pub(crate) fn run(args: &AgentArgs) -> io::Result<()> {
    let kernel = Kernel::new(match args.kind {
        Place::Guest => Kind::Guest,
        Place::Netns => Kind::Netns,
        Place::Host => Kind::Host,
    });
    match &args.channel {
        Channel { device: Some(path), .. } => {
            let port = Port::open(path)?;
            loop {
                port.wait_for_host()?;
                agent::serve(&port, &port, &kernel)?;
            }
        }
        Channel { listen: Some(path), .. } => {
            let listener = UnixListener::bind(path)?;
            let _socket = Unlink(path.clone());
            thread::scope(|scope| {
                for connection in listener.incoming() {
                    let connection = connection?;
                    let kernel = &kernel;
                    scope.spawn(move || agent::serve(&connection, &connection, kernel));
                }
                Ok(())
            })
        }
        Channel { .. } => agent::serve(io::stdin(), io::stdout(), &kernel),
    }
}

/// Removes a socket's file at the end.
struct Unlink(PathBuf);

impl Drop for Unlink {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
