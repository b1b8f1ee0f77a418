//! The program of a microguest: see [`taut_microguest`].

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use taut_microguest::{self as microguest, Hostility, MicroOptions, NicOptions, VsockOptions};

/// Microguest: a process that stands for a VM on vhost-user sockets.
///
/// Runs small TCP/IP and VMCI socket stacks and answers the agent protocol.
#[derive(Debug, Parser)]
#[command(name = "taut-micro", version)]
struct Arguments {
    /// Host name.
    #[arg(long)]
    name: String,
    /// Unix socket on which the agent listens. Here and below, fd:NUMBER is an inherited socket
    /// that listens already.
    #[arg(long)]
    agent_socket: PathBuf,
    /// A vNIC: socket=PATH,mac=MAC; repeat for several.
    ///
    /// Further KEY=VALUE pairs after commas: ip=ADDRESS/PREFIX, rx=N, tx=N (ring entries),
    /// offloads=on|off, packed=on|off, in-order=on|off.
    #[arg(long = "nic", value_name = "NIC")]
    nics: Vec<NicOptions>,
    /// The VMCI device: socket=PATH, or connect=PATH to a back end that listens.
    ///
    /// Further KEY=VALUE pairs after commas: buffer=BYTES, packet=BYTES, rx=N, tx=N (ring entries),
    /// copy=on|off, silent=N (take nothing any more after N connections).
    #[arg(long, value_name = "VMCI")]
    vmci: Option<String>,
    /// Defaults for --vmci, such as buffer=65580,rx=64.
    #[arg(long, env = "TAUT_MICRO_VMCI", default_value = "", hide_default_value = true, value_name = "VMCI")]
    vmci_defaults: String,
    /// Bytes of memory for the rings and buffers of each device.
    #[arg(long, default_value_t = 64 << 20)]
    memory: u64,
    /// Never sleep: lowest latency, at the cost of a whole CPU.
    #[arg(long)]
    poll: bool,
    /// Break a rule on the first vNIC: avail-index, loop, outside, length or indirect.
    #[arg(long, hide = true)]
    hostile: Option<Hostility>,
}

fn main() -> ExitCode {
    let Arguments { name, agent_socket, nics, vmci, vmci_defaults, memory, poll, hostile } =
        Arguments::parse();
    let read =
        |vmci: String| format!("{vmci_defaults},{vmci}").trim_start_matches(',').parse::<VsockOptions>();
    let vmci = match vmci.map(read).transpose() {
        Ok(vmci) => vmci,
        Err(error) => Arguments::command().error(ErrorKind::InvalidValue, format!("--vmci: {error}")).exit(),
    };
    match microguest::run(MicroOptions { name, agent_socket, nics, vsock: vmci, memory, poll, hostile }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("taut-micro: {error:#}");
            ExitCode::FAILURE
        }
    }
}
