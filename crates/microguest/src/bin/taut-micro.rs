//! A process that stands for a VM: see [`taut_microguest`].

use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use taut_microguest::{self as microguest, Hostility, MicroOptions, NicOptions, VsockOptions};

/// A microguest: listens on vhost-user sockets like a VM, runs small stacks of TCP/IP and VMCI sockets, and answers the agent protocol.
#[derive(Debug, Parser)]
#[command(name = "taut-micro", version)]
struct Arguments {
    /// Host name.
    #[arg(long)]
    name: String,
    /// Unix socket on which the agent listens.
    #[arg(long)]
    agent_socket: PathBuf,
    /// A vNIC, as socket=PATH,mac=MAC[,ip=A/P][,rx=N][,tx=N][,offloads=on|off][,packed=on|off][,in-order=on|off]; once for each.
    #[arg(long = "nic", value_name = "NIC")]
    nics: Vec<NicOptions>,
    /// The VMCI device, as socket=PATH, or connect=PATH to a back end that listens, and [,buffer=BYTES][,packet=BYTES][,rx=N][,tx=N][,copy=on|off].
    #[arg(long, value_name = "VMCI")]
    vmci: Option<String>,
    /// What --vmci does not say, such as buffer=65580,rx=64.
    #[arg(long, env = "TAUT_MICRO_VMCI", default_value = "", hide_default_value = true, value_name = "VMCI")]
    vmci_defaults: String,
    /// Memory in bytes for the rings and buffers of each device.
    #[arg(long, default_value_t = 64 << 20)]
    memory: u64,
    /// Never sleep: lowest latency, a whole CPU.
    #[arg(long)]
    poll: bool,
    /// Break the rules on the first vNIC: avail-index, loop, outside, length or indirect.
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
