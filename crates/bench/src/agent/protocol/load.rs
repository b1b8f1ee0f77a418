//! Requests that generate load, and what they measure.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::{Address, AgentError};
use crate::measure::latencies::Latencies;

/// Most targets of one [`Probe`].
pub const MAX_TARGETS: usize = 4096;
/// Most connections of one [`Stream`].
pub const MAX_SESSIONS: u32 = 256;

/// Starts a server that speaks [`crate::wire`]. It ends with the conversation that it was started
/// in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Serve {
    /// Own address to listen on; all IPv4 addresses if absent.
    pub address: Option<Address>,
    /// Port to listen on; 0 for any free one.
    pub port: u16,
    /// Size of the sockets' send and receive buffers in bytes; the stack's default if absent.
    pub socket_size: Option<u32>,
}

/// A server that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its port.
    pub port: u16,
}

/// Sends ICMP echo requests at a steady pace, whether or not replies come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Address that answers.
    pub to: Ipv4Addr,
    /// Bytes of payload, 0 to 65000.
    #[serde(default = "ping_size")]
    pub size: u32,
    /// Time from one request to the next in µs, at least 1.
    #[serde(default = "interval")]
    pub interval_us: u64,
    /// Time during which requests are sent, in ms.
    #[serde(default = "duration")]
    pub duration_ms: u64,
    /// Number of requests after which it ends before `duration_ms` is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// Sends a request and waits for its response, again and again, over one connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rr {
    /// Address of the server.
    pub to: Address,
    /// Port of the server.
    pub port: u16,
    /// Size of the socket's send and receive buffer in bytes; the stack's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_size: Option<u32>,
    /// Bytes per request and per response, 1 to [`crate::wire::MAX_SIZE`].
    #[serde(default = "rr_size")]
    pub size: u32,
    /// Time from one request to the next in µs. After a late response the next requests follow
    /// at once until the pace is reached again. If absent, each response is followed by a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_us: Option<u64>,
    /// Length of the measurement in ms.
    #[serde(default = "duration")]
    pub duration_ms: u64,
}

/// Puts an object into a Redis server and waits for the confirmation, again and again, over one
/// connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Puts {
    /// Address of the server.
    pub to: Address,
    /// Port of the server.
    pub port: u16,
    /// Bytes of each object, 1 to [`crate::wire::MAX_SIZE`].
    #[serde(default = "put_size")]
    pub size: u32,
    /// Length of the measurement in ms.
    #[serde(default = "duration")]
    pub duration_ms: u64,
}

/// Sends as fast as the connections accept data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Address of the server.
    pub to: Address,
    /// Port of the server.
    pub port: u16,
    /// Size of the sockets' send and receive buffers in bytes; the stack's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_size: Option<u32>,
    /// Bytes per send, 1 to [`crate::wire::MAX_SIZE`].
    #[serde(default = "stream_size")]
    pub send_size: u32,
    /// Bytes that the server reads at a time, 1 to [`crate::wire::MAX_SIZE`].
    #[serde(default = "stream_size")]
    pub receive_size: u32,
    /// Send a known pattern that the server compares. This takes longer, and fails if a single byte
    /// is lost, repeated or wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check: bool,
    /// Number of concurrent connections, 1 to [`MAX_SESSIONS`].
    #[serde(default = "one")]
    pub sessions: u32,
    /// Length of the measurement in ms.
    #[serde(default = "duration")]
    pub duration_ms: u64,
}

impl Stream {
    /// Returns the bytes of a session that count: those that the server confirmed. Fails if the
    /// stream was checked and the server did not confirm all bytes sent.
    pub fn confirmed(&self, sent: u64, confirmed: u64) -> Result<u64, AgentError> {
        if self.check && sent != confirmed {
            let Self { to, port, .. } = self;
            return Err(AgentError::new(
                format!("of {sent} bytes sent to {to} port {port} only the first {confirmed} are right"),
                "bytes were lost, repeated or changed on the way: report this as a fault of taut",
            ));
        }
        Ok(confirmed)
    }
}

/// Connects to one target after the other, and repeats that. An established connection is closed at
/// once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Servers, 1 to [`MAX_TARGETS`].
    pub targets: Vec<Target>,
    /// Connections to each target.
    #[serde(default = "one")]
    pub rounds: u32,
}

/// A server to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Address.
    pub to: Address,
    /// Port.
    pub port: u16,
}

impl Probe {
    /// Returns an empty result for each target. Fails if the number of targets is out of range.
    pub fn begin(&self) -> Result<Vec<Probed>, AgentError> {
        let count = self.targets.len();
        if (1..=MAX_TARGETS).contains(&count) {
            return Ok(vec![Probed::default(); count]);
        }
        Err(AgentError::new(format!("{count} targets were asked for"), format!("name 1 to {MAX_TARGETS}")))
    }
}

/// Connections to one target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    /// Connections that were established.
    pub connected: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Connections without an answer within two seconds.
    pub silent: u64,
    /// Time until the answer of either kind; as JSON, pairs of nanoseconds and count.
    pub took_ns: Latencies,
}

/// Lets one thread on each CPU sleep until given times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeUps {
    /// Time from one wake-up to the next in µs, at least 1.
    #[serde(default = "interval")]
    pub interval_us: u64,
    /// Length of the measurement in ms.
    #[serde(default = "duration")]
    pub duration_ms: u64,
}

/// Wake-ups of the thread on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Woken {
    /// The machine's number of the CPU.
    pub cpu: u32,
    /// Time from when it was to wake up until it read the clock; exact to about 1 %.
    pub late_ns: Latencies,
}

/// Work done since [`Request::Spin`](super::Request::Spin). Callers compare two answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Units of 10,000 dependent integer operations each, over all CPUs.
    pub units: u64,
    /// Time since it began, in µs.
    pub elapsed_us: u64,
}

impl Work {
    /// Returns the units per second from `self` to `later`; zero if no time passed.
    pub fn per_second(self, later: Self) -> f64 {
        let us = later.elapsed_us.saturating_sub(self.elapsed_us);
        if us == 0 { 0.0 } else { later.units.saturating_sub(self.units) as f64 * 1e6 / us as f64 }
    }
}

/// Round trips: of echo requests, or of requests and their responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Every round trip that ended; as JSON, pairs of nanoseconds and count.
    pub rtt_ns: Latencies,
    /// Requests sent.
    pub sent: u64,
    /// Requests without a reply until one second after the last request.
    pub lost: u64,
    /// Replies that repeated an earlier one.
    pub duplicates: u64,
    /// Time from the first request to the last reply, in µs.
    pub elapsed_us: u64,
}

/// Bytes moved in one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throughput {
    /// Bytes that the server confirmed, over all sessions.
    pub bytes: u64,
    /// Time from the first byte to the last confirmation, in µs.
    pub elapsed_us: u64,
    /// Bytes of each session.
    pub sessions: Vec<u64>,
}

impl Throughput {
    /// Returns Jain's fairness index of the sessions' bytes, (Σx)²/(n·Σx²); none for a single
    /// session, or if nothing was moved.
    pub fn fairness(&self) -> Option<f64> {
        let of = |each: fn(f64) -> f64| self.sessions.iter().map(|bytes| each(*bytes as f64)).sum::<f64>();
        let squares = self.sessions.len() as f64 * of(|x| x * x);
        (self.sessions.len() > 1 && squares > 0.0).then(|| of(|x| x).powi(2) / squares)
    }

    /// Returns the payload in Mbit/s (10⁶ bits); zero if no time passed.
    pub fn mbit_s(&self) -> f64 {
        if self.elapsed_us == 0 { 0.0 } else { self.bytes as f64 * 8.0 / self.elapsed_us as f64 }
    }
}

const fn ping_size() -> u32 {
    256
}
const fn interval() -> u64 {
    1000
}
const fn rr_size() -> u32 {
    256
}
const fn put_size() -> u32 {
    1024
}
const fn stream_size() -> u32 {
    8192
}
const fn one() -> u32 {
    1
}
const fn duration() -> u64 {
    10_000
}
