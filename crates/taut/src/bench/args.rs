//! What can be asked for on the command line, and what that means to an agent.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use taut_bench::agent::protocol::MAX_SESSIONS;
use taut_bench::report::Settings;
use taut_bench::wire::MAX_SIZE;

use super::end_point::EndPoint;
use super::measure::Measurement;
use super::{moderation, neighbours, puts, raw, shaping, switch, vsock};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Between(Between),
    /// The machine without any switch: a cache line passed between two CPUs, memory copied.
    Raw(raw::Args),
    /// How long a cache line takes from one CPU to another and back: whether two measurements are comparable.
    Placement(raw::PlacementArgs),
    /// Frames through any vhost-user switch, from one of two ports to the other: throughput, or one traversal at a time.
    Switch(switch::Args),
    /// How exactly a port group's ports are shaped: rate and burst, at many rates.
    Shaping(shaping::Args),
    /// Schemes of interrupt moderation beside each other: interrupts, kicks, CPU and latency at given loads.
    Moderation(moderation::Args),
    /// A latency-sensitive VM beside CPU-bound ones: its response times, and their work, when it is normal and when it is high.
    Neighbours(neighbours::Args),
    /// Puts into a Redis server in a VM, one at a time: untuned, tuned, without a VM.
    Puts(puts::Args),
    /// VMCI sockets (AF_VSOCK) between VMs, microguests and the host: throughput or round-trip times by message and socket size.
    Vsock(vsock::Args),
}

/// Measurements between two end points.
#[derive(Debug, Subcommand)]
pub(crate) enum Between {
    /// ICMP echo at a fixed interval: round-trip times.
    Ping {
        #[command(flatten)]
        common: Common,
        /// Bytes of payload.
        #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(..=65000), value_name = "BYTES")]
        size: u32,
        /// Milliseconds from one request to the next.
        #[arg(long, default_value = "1", value_parser = milliseconds, value_name = "MS")]
        interval: Duration,
    },
    /// TCP request and response, one at a time: round-trip times (netperf's TCP_RR).
    Rr {
        #[command(flatten)]
        common: Common,
        /// Bytes of each request and of each response.
        #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)), value_name = "BYTES")]
        size: u32,
    },
    /// TCP in one direction: throughput (netperf's TCP_STREAM).
    Stream {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        sizes: Sizes,
        /// Connections at the same time.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)), value_name = "N")]
        sessions: u32,
    },
}

/// What every measurement has.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Who sends: NAME or vm/NAME, netns/NAMESPACE, host, or agent:SOCKET of an agent that taut did not start.
    #[arg(value_name = "A")]
    sender: EndPoint,
    /// Who receives or answers.
    #[arg(value_name = "B")]
    receiver: EndPoint,
    /// A second pair, measured in alternation with the first and compared with it.
    #[arg(long, num_args = 2, value_names = ["A2", "B2"])]
    versus: Option<Vec<EndPoint>>,
    /// Address of B; found out when absent.
    #[arg(long, value_name = "IP")]
    address: Option<Ipv4Addr>,
    /// Address of B2; found out when absent.
    #[arg(long, value_name = "IP", requires = "versus")]
    versus_address: Option<Ipv4Addr>,
    /// Seconds that each repeat lasts.
    #[arg(long, default_value = "10", value_parser = seconds, value_name = "S")]
    duration: Duration,
    /// How often it is measured.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    repeat: u32,
    #[command(flatten)]
    files: Files,
}

/// What experiments on one VM have: conditions that are measured in alternation.
#[derive(Debug, Args)]
pub(crate) struct OneVm {
    /// Address of the VM; found out when absent.
    #[arg(long, value_name = "IP")]
    pub(super) address: Option<Ipv4Addr>,
    /// Bytes of each object, or of each request and of each response.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)), value_name = "BYTES")]
    pub(super) size: u32,
    /// Seconds that each condition lasts in each repeat.
    #[arg(long, default_value = "10", value_parser = seconds, value_name = "S")]
    pub(super) duration: Duration,
    /// How often each condition is measured, in alternation with the others.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    pub(super) repeat: u32,
    #[command(flatten)]
    pub(super) files: Files,
}

/// Where results go besides standard output.
#[derive(Debug, Args)]
pub(crate) struct Files {
    /// Write the results as JSON too, every latency included.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Draw a picture of the results.
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

/// Sizes of a stream.
#[derive(Debug, Args)]
pub(crate) struct Sizes {
    /// Sizes of sockets, sends and receives under one name.
    #[arg(long, value_enum, default_value_t)]
    pattern: Pattern,
    /// Bytes of the sockets' send and receive buffers, instead of the pattern's.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "BYTES")]
    socket_size: Option<u32>,
    /// Bytes given to each send call, instead of the pattern's.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)), value_name = "BYTES")]
    send_size: Option<u32>,
    /// Bytes asked of each receive call, instead of the pattern's.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)), value_name = "BYTES")]
    receive_size: Option<u32>,
}

/// The patterns that VMware's throughput study of ESX used, and today's habit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Sockets of 8192 bytes, sends of 8192, receives of 8192.
    #[default]
    Default,
    /// A file server: 8192, 4096, 4096.
    File,
    /// Bulk transfer: 65536, 8192, 8192.
    Bulk,
    /// Socket buffers as the stack chooses them, sends and receives of 65536.
    Auto,
}

impl Pattern {
    /// Socket, send and receive size.
    const fn sizes(self) -> (Option<u32>, u32, u32) {
        match self {
            Self::Default => (Some(8192), 8192, 8192),
            Self::File => (Some(8192), 4096, 4096),
            Self::Bulk => (Some(65536), 8192, 8192),
            Self::Auto => (None, 65536, 65536),
        }
    }
}

/// A pair of end points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) sender: EndPoint,
    pub(super) receiver: EndPoint,
    /// The receiver's, if the user knows it.
    pub(super) address: Option<Ipv4Addr>,
}

/// A whole command.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) pair: Pair,
    pub(super) versus: Option<Pair>,
    pub(super) measurement: Measurement,
    pub(super) settings: Settings,
    pub(super) files: Files,
}

impl Between {
    /// The command as what is to be done.
    pub(super) fn task(self) -> Task {
        let (common, measurement, settings) = match self {
            Self::Ping { common, size, interval } => {
                let interval_us = interval.as_micros() as u64;
                let settings =
                    Settings { size: Some(size), interval_us: Some(interval_us), ..common.settings() };
                let measurement = Measurement::Ping { size, interval_us, duration: common.duration };
                (common, measurement, settings)
            }
            Self::Rr { common, size } => {
                let settings = Settings { size: Some(size), ..common.settings() };
                let measurement =
                    Measurement::Rr { socket_size: None, size, interval_us: None, duration: common.duration };
                (common, measurement, settings)
            }
            Self::Stream { common, sizes, sessions } => {
                let (socket, send, receive) = sizes.pattern.sizes();
                let socket_size = sizes.socket_size.or(socket);
                let send_size = sizes.send_size.unwrap_or(send);
                let receive_size = sizes.receive_size.unwrap_or(receive);
                let as_named = (socket_size, send_size, receive_size) == (socket, send, receive);
                let name = sizes.pattern.to_possible_value().expect("no pattern is hidden");
                let settings = Settings {
                    pattern: as_named.then(|| name.get_name().to_owned()),
                    socket_size,
                    send_size: Some(send_size),
                    receive_size: Some(receive_size),
                    sessions: Some(sessions),
                    ..common.settings()
                };
                let duration = common.duration;
                let measurement = Measurement::Stream {
                    socket_size,
                    send_size,
                    receive_size,
                    sessions,
                    check: false,
                    duration,
                };
                (common, measurement, settings)
            }
        };
        let Common { sender, receiver, versus, address, versus_address, files, .. } = common;
        let versus = versus.and_then(|pair| <[EndPoint; 2]>::try_from(pair).ok());
        Task {
            pair: Pair { sender, receiver, address },
            versus: versus.map(|[sender, receiver]| Pair { sender, receiver, address: versus_address }),
            measurement,
            settings,
            files,
        }
    }
}

impl Common {
    fn settings(&self) -> Settings {
        Settings { duration_s: self.duration.as_secs_f64(), repeats: self.repeat, ..Settings::default() }
    }
}

/// Seconds, from a tenth to a day.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    number(text, 0.1, 86_400.0).map(Duration::from_secs_f64)
}

/// Milliseconds, from 1 µs to 10 s.
pub(super) fn milliseconds(text: &str) -> Result<Duration, String> {
    number(text, 0.001, 10_000.0).map(|ms| Duration::from_secs_f64(ms / 1000.0))
}

fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(format!("it is not in {least} to {most}")) }
}

#[cfg(test)]
mod tests;
