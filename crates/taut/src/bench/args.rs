//! Command-line arguments of measurements, and the requests that they become.

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
    /// Measure the machine without any switch: cache line between two CPUs, speed of copying
    /// memory.
    Raw(raw::Args),
    /// Measure the time of a cache line between two CPUs, to tell whether two results are
    /// comparable.
    Placement(raw::PlacementArgs),
    /// Send frames through any vhost-user switch with two ports: throughput, or traversal times.
    Switch(switch::Args),
    /// Measure how exactly a port group's ports are shaped: rate and burst, at many rates.
    Shaping(shaping::Args),
    /// Compare interrupt moderation schemes: interrupts, kicks, CPU and latency at given loads.
    Moderation(moderation::Args),
    /// Measure a latency-sensitive VM beside CPU-bound ones: response times and work, normal and
    /// high.
    Neighbours(neighbours::Args),
    /// Measure puts into a Redis server in a VM, one at a time: untuned, tuned, and without a VM.
    Puts(puts::Args),
    /// Measure VMCI sockets (AF_VSOCK) by message and socket size: throughput or round-trip times.
    Vsock(vsock::Args),
}

/// Measurements between two end points.
#[derive(Debug, Subcommand)]
pub(crate) enum Between {
    /// Measure round-trip times of ICMP echo at a fixed interval.
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
    /// Measure round-trip times of TCP request and response, one at a time (netperf's TCP_RR).
    Rr {
        #[command(flatten)]
        common: Common,
        /// Bytes of each request and of each response.
        #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)), value_name = "BYTES")]
        size: u32,
    },
    /// Measure throughput of TCP in one direction (netperf's TCP_STREAM).
    Stream {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        sizes: Sizes,
        /// Number of concurrent connections.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SESSIONS)), value_name = "N")]
        sessions: u32,
    },
}

/// Arguments of every measurement between two end points.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The sender: NAME or vm/NAME, netns/NAMESPACE, host, or agent:SOCKET of a running agent.
    #[arg(value_name = "A")]
    sender: EndPoint,
    /// The receiver, which answers.
    #[arg(value_name = "B")]
    receiver: EndPoint,
    /// A second pair, measured in alternation with the first and compared with it.
    #[arg(long, num_args = 2, value_names = ["A2", "B2"])]
    versus: Option<Vec<EndPoint>>,
    /// Address of B; found automatically if absent.
    #[arg(long, value_name = "IP")]
    address: Option<Ipv4Addr>,
    /// Address of B2; found automatically if absent.
    #[arg(long, value_name = "IP", requires = "versus")]
    versus_address: Option<Ipv4Addr>,
    /// Length of each repeat in seconds.
    #[arg(long, default_value = "10", value_parser = seconds, value_name = "S")]
    duration: Duration,
    /// Number of repeats.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    repeat: u32,
    #[command(flatten)]
    files: Files,
}

/// Arguments of experiments on one VM, whose conditions are measured in alternation.
#[derive(Debug, Args)]
pub(crate) struct OneVm {
    /// Address of the VM; found automatically if absent.
    #[arg(long, value_name = "IP")]
    pub(super) address: Option<Ipv4Addr>,
    /// Bytes of each object, or of each request and of each response.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)), value_name = "BYTES")]
    pub(super) size: u32,
    /// Length of each condition in each repeat, in seconds.
    #[arg(long, default_value = "10", value_parser = seconds, value_name = "S")]
    pub(super) duration: Duration,
    /// Number of repeats of each condition, in alternation with the others.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    pub(super) repeat: u32,
    #[command(flatten)]
    pub(super) files: Files,
}

/// Files for results, besides standard output.
#[derive(Debug, Args)]
pub(crate) struct Files {
    /// Write the results as JSON, with every latency.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Draw a picture of the results.
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
}

/// Sizes of a stream.
#[derive(Debug, Args)]
pub(crate) struct Sizes {
    /// Sizes of socket buffers, sends and receives under one name.
    #[arg(long, value_enum, default_value_t)]
    pattern: Pattern,
    /// Bytes of the sockets' send and receive buffers, instead of the pattern's.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "BYTES")]
    socket_size: Option<u32>,
    /// Bytes of each send call, instead of the pattern's.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)), value_name = "BYTES")]
    send_size: Option<u32>,
    /// Bytes of each receive call, instead of the pattern's.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)), value_name = "BYTES")]
    receive_size: Option<u32>,
}

/// The patterns of VMware's throughput study of ESX, and a modern default.
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
    /// Returns socket, send and receive size.
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
    /// Address of the receiver, if the user gave it.
    pub(super) address: Option<Ipv4Addr>,
}

/// A parsed command.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) pair: Pair,
    pub(super) versus: Option<Pair>,
    pub(super) measurement: Measurement,
    pub(super) settings: Settings,
    pub(super) files: Files,
}

impl Between {
    /// Returns the measurement that the command asks for.
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

/// Parses seconds, from a tenth to a day.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    number(text, 0.1, 86_400.0).map(Duration::from_secs_f64)
}

/// Parses milliseconds, from 1 µs to 10 s.
pub(super) fn milliseconds(text: &str) -> Result<Duration, String> {
    number(text, 0.001, 10_000.0).map(|ms| Duration::from_secs_f64(ms / 1000.0))
}

fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if (least..=most).contains(&number) { Ok(number) } else { Err(format!("it is not in {least} to {most}")) }
}

#[cfg(test)]
mod tests;
