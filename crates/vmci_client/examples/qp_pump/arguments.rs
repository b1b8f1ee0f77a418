//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use taut_vmci_client::Options;

/// Measures streams and ping-pongs over queue pairs, over packets of AF_VSOCK, or over TCP.
#[derive(Debug, Parser)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve connections.
    Listen(Listen),
    /// Connect, measure and print the results.
    Connect(Connect),
}

#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// Port of AF_VSOCK, or of TCP.
    pub(crate) port: u32,
    /// Listen at this IP address by TCP instead.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) tcp: Option<String>,
    /// End after this many connections.
    #[arg(long, value_name = "COUNT")]
    pub(crate) connections: Option<u64>,
    #[command(flatten)]
    pub(crate) attaching: Attaching,
}

#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// Context ID of the machine that listens. Not used with TCP.
    pub(crate) cid: u32,
    /// Port of AF_VSOCK, or of TCP.
    pub(crate) port: u32,
    /// Connect to this host by TCP instead.
    #[arg(long, value_name = "HOST")]
    pub(crate) tcp: Option<String>,
    /// Bytes of each stream, such as 64M or 1G.
    #[arg(long, default_value = "1G", value_parser = bytes)]
    pub(crate) bytes: u64,
    /// Round trips of each ping-pong.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) rounds: u64,
    /// Longest time of each stream and ping-pong, in seconds.
    #[arg(long, default_value_t = 30)]
    pub(crate) seconds: u64,
    /// Bytes of each write, such as 256 or 64K. Several sizes are measured one after the other.
    #[arg(long, default_value = "256,4K,64K", value_delimiter = ',', value_parser = bytes)]
    pub(crate) size: Vec<u64>,
    /// What to measure.
    #[arg(long, value_enum, default_value = "stream,rr", value_delimiter = ',')]
    pub(crate) measure: Vec<Measure>,
    /// Have the server check every byte of a stream.
    #[arg(long)]
    pub(crate) check: bool,
    /// Try again for so many seconds if nobody listens.
    #[arg(long, default_value_t = 0)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) attaching: Attaching,
}

/// A kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// Bytes in one direction.
    Stream,
    /// Messages that are returned, one at a time.
    Rr,
}

#[derive(Debug, Args)]
pub(crate) struct Attaching {
    /// Do not attach the connections: all bytes go by packets.
    #[arg(long)]
    pub(crate) packets: bool,
    /// Device with the memory for queue pairs, instead of the first one found.
    #[arg(long)]
    pub(crate) device: Option<PathBuf>,
    /// Longest time that a call looks at the rings before it sleeps, in microseconds.
    #[arg(long, default_value_t = 50)]
    pub(crate) poll_us: u64,
}

impl Attaching {
    pub(crate) fn options(&self) -> Option<Options> {
        let (device, poll) = (self.device.clone(), Duration::from_micros(self.poll_us));
        (!self.packets).then(|| Options { device, poll, ..Options::default() })
    }
}

/// Reads a number of bytes with a binary unit.
fn bytes(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.chars().last() {
        Some('K') => (&text[..text.len() - 1], 10),
        Some('M') => (&text[..text.len() - 1], 20),
        Some('G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = number.parse().map_err(|_| "a number, with K, M or G for binary units".to_owned())?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("at least 1, and below 16 EiB".to_owned()),
    }
}
