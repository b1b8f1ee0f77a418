//! The agent's language: JSON, one message a line, over any byte stream.
//!
//! A [`Call`] carries an id that its caller chose; every [`Reply`] to it carries the same. Calls run at the same time, so
//! replies come in any order. A call that measures is first answered with [`Outcome::Started`], once its connections
//! stand; nothing is sent while it measures, as that would disturb what is measured. Each call ends with exactly one
//! [`Outcome::Done`] or [`Outcome::Failed`]. A line that is no call is answered with `Failed` under the id `null`.
//!
//! On a virtio-serial port the host side comes and goes without notice. A caller therefore begins with an empty line,
//! which ends whatever half line its predecessor left, then says hello, which ends whatever its predecessor started, and
//! ignores replies with ids that it did not choose.
//!
//! ```json
//! {"id":7,"request":{"ping":{"to":"10.0.0.2","size":256,"interval_us":1000,"count":4}}}
//! {"id":7,"reply":"started"}
//! {"id":7,"reply":{"done":{"latency":{"rtt_ns":[[41023,1],[41055,3]],"sent":4,"lost":0,"duplicates":0,"elapsed_us":3041}}}}
//! ```

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

pub use super::address::Address;
use crate::measure::latencies::Latencies;

/// Version of this language; an agent of another version is told apart by [`Hello::protocol`].
pub const PROTOCOL: u32 = 1;
/// Longest line in bytes, its newline included. A longer one is dropped and answered with `Failed`.
pub const MAX_LINE: usize = 1 << 20;

/// One line to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Chosen by the caller.
    pub id: u64,
    /// What to do.
    pub request: Request,
}

/// One line from the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The call's id; none if the line could not be read as a call.
    pub id: Option<u64>,
    /// What became of it.
    #[serde(rename = "reply")]
    pub outcome: Outcome,
}

/// What an agent can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Who are you? Begins a conversation: servers and measurements of the one before end. Answered with
    /// [`Answer::Hello`].
    Hello,
    /// Network interfaces. Answered with [`Answer::Addresses`].
    Addresses,
    /// Give an interface its address. Answered with [`Answer::Ok`].
    Configure(Configure),
    /// The own context ID, of machines with VMCI sockets. Answered with [`Answer::Cid`].
    Cid,
    /// Start a server. Answered with [`Answer::Server`].
    Serve(Serve),
    /// ICMP echo. Answered with [`Answer::Latency`].
    Ping(Ping),
    /// Request/response over one connection. Answered with [`Answer::Latency`].
    #[serde(rename = "tcp_rr")]
    Rr(Rr),
    /// Puts into a Redis server, one at a time. Answered with [`Answer::Latency`].
    Puts(Puts),
    /// Bulk transfer over one or more. Answered with [`Answer::Throughput`].
    #[serde(rename = "tcp_stream")]
    Stream(Stream),
    /// Who answers, and how soon. Answered with [`Answer::Probed`].
    Probe(Probe),
    /// How late threads wake up that sleep until a time, one on each CPU. Answered with [`Answer::WakeUps`].
    WakeUps(WakeUps),
    /// CPU time used so far; differences of two answers are what a caller wants. Answered with [`Answer::Cpu`].
    Cpu,
    /// Begin to compute, on every CPU, until told to rest, or until the conversation ends. Answered with [`Answer::Ok`].
    Spin,
    /// What has been computed so far; differences of two answers are what a caller wants. Answered with [`Answer::Work`].
    Work,
    /// Compute no more. Answered with [`Answer::Ok`].
    Rest,
    /// Best practices, seen from inside. Answered with [`Answer::Checked`].
    Check(Check),
    /// End the guest. Answered with [`Answer::Ok`] before it ends.
    Poweroff,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The measurement has begun.
    Started,
    /// It is done.
    Done(Answer),
    /// It failed.
    Failed(AgentError),
}

/// What a successful call brings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Nothing to say.
    Ok,
    /// Who this is.
    Hello(Hello),
    /// Interfaces, the loopback left out.
    Addresses(Vec<Interface>),
    /// A context ID.
    Cid(u32),
    /// A server listens.
    Server(Server),
    /// Round trips.
    Latency(Latency),
    /// Bytes moved.
    Throughput(Throughput),
    /// What was found at each target, in order.
    Probed(Vec<Probed>),
    /// How late threads woke up, on each CPU.
    WakeUps(Vec<Woken>),
    /// CPU time.
    Cpu(Cpu),
    /// Work done.
    Work(Work),
    /// What was found.
    Checked(Checked),
}

/// What [`Request::Spin`] has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Units of 10,000 dependent integer operations each, over all CPUs.
    pub units: u64,
    /// Since it began, in µs.
    pub elapsed_us: u64,
}

impl Work {
    /// Units per second from `self` to `later`; zero when no time passed.
    pub fn per_second(self, later: Self) -> f64 {
        let us = later.elapsed_us.saturating_sub(self.elapsed_us);
        if us == 0 { 0.0 } else { later.units.saturating_sub(self.units) as f64 * 1e6 / us as f64 }
    }
}

/// See [`Request::WakeUps`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeUps {
    /// Time from one wake-up to the next in µs, at least 1.
    #[serde(default = "wake_up_interval")]
    pub interval_us: u64,
    /// How long, in ms.
    #[serde(default = "duration")]
    pub duration_ms: u64,
}

/// How late the thread on one CPU woke up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Woken {
    /// The machine's own number of the CPU.
    pub cpu: u32,
    /// From when it was to wake up until it looked at the clock; to about 1 %.
    pub late_ns: Latencies,
}

/// See [`Request::Check`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// What the machine is for: `latency`, `throughput` or `dense`.
    pub profile: String,
}

/// See [`Answer::Checked`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// For people.
    pub text: String,
    /// For programs: a JSON document.
    pub json: String,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    /// One sentence with the values that matter.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl AgentError {
    /// An error with its hint.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// taut's version.
    pub version: String,
    /// Where the agent runs.
    pub kind: Kind,
    /// Host name.
    pub hostname: String,
    /// `uname -r`, or the name of the stack of a microguest.
    pub kernel: String,
}

/// Where an agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// In a virtual machine.
    Guest,
    /// In a network namespace of the host.
    Netns,
    /// On the host.
    Host,
    /// In a microguest.
    Micro,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// Ethernet address as six lower-case hexadecimal pairs.
    pub mac: String,
    /// IPv4 addresses.
    pub ips: Vec<Ipv4Net>,
    /// Is the link up?
    pub carrier: bool,
    /// How often the link went up or down since the interface exists; 0 for a microguest.
    pub carrier_changes: u64,
}

/// Gives an interface its address and sets it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configure {
    /// Ethernet address of the interface.
    pub mac: String,
    /// The address that it gets.
    pub ip: Ipv4Net,
}

/// Starts a server that speaks [`crate::wire`]. It ends with the conversation that it was started in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Serve {
    /// Own address to listen on; all IPv4 addresses when absent.
    pub address: Option<Address>,
    /// Port to listen on; 0 for any free one.
    pub port: u16,
    /// Size of the sockets' send and receive buffers in bytes; the stack's own choice when absent.
    pub socket_size: Option<u32>,
}

/// A server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its port.
    pub port: u16,
}

/// Sends ICMP echo requests at a steady pace, whether or not replies come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Who is asked.
    pub to: Ipv4Addr,
    /// Bytes of payload, 0 to 65000.
    #[serde(default = "ping_size")]
    pub size: u32,
    /// Time from one request to the next in µs, at least 1.
    #[serde(default = "ping_interval")]
    pub interval_us: u64,
    /// How long requests are sent, in ms.
    #[serde(default = "duration")]
    pub duration_ms: u64,
    /// Requests after which it ends even if `duration_ms` is not over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// Sends a request, waits for its response, and so on, over one connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rr {
    /// Address of the server.
    pub to: Address,
    /// Port of the server.
    pub port: u16,
    /// Size of the socket's send and receive buffer in bytes; the stack's own choice when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_size: Option<u32>,
    /// Bytes per request and per response, 1 to [`crate::wire::MAX_SIZE`].
    #[serde(default = "rr_size")]
    pub size: u32,
    /// Time from one request to the next in µs; those that are late are made up for. At once after the response when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_us: Option<u64>,
    /// How long, in ms.
    #[serde(default = "duration")]
    pub duration_ms: u64,
}

/// Puts an object into a Redis server, waits until that is confirmed, and so on, over one connection.
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
    /// How long, in ms.
    #[serde(default = "duration")]
    pub duration_ms: u64,
}

/// Sends as fast as the connections take it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Address of the server.
    pub to: Address,
    /// Port of the server.
    pub port: u16,
    /// Size of the sockets' send and receive buffers in bytes; the stack's own choice when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_size: Option<u32>,
    /// Bytes per send, 1 to [`crate::wire::MAX_SIZE`].
    #[serde(default = "stream_size")]
    pub send_size: u32,
    /// Bytes that the server reads at a time, 1 to [`crate::wire::MAX_SIZE`].
    #[serde(default = "stream_size")]
    pub receive_size: u32,
    /// Every byte is one that the server knows, and compares: it takes longer, and fails if a single one is lost, doubled or wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check: bool,
    /// Connections at the same time, 1 to [`MAX_SESSIONS`].
    #[serde(default = "one")]
    pub sessions: u32,
    /// How long, in ms.
    #[serde(default = "duration")]
    pub duration_ms: u64,
}

impl Stream {
    /// What a session whose server confirms so many bytes of those sent has brought; an error if it was checked and they differ.
    pub fn confirmed(&self, sent: u64, confirmed: u64) -> Result<u64, AgentError> {
        if self.check && sent != confirmed {
            let Self { to, port, .. } = self;
            return Err(AgentError::new(
                format!("of {sent} bytes sent to {to} port {port} only the first {confirmed} are right"),
                "bytes were lost, doubled or changed on the way: this is a fault of taut",
            ));
        }
        Ok(confirmed)
    }
}

/// Connects to one target after the other, and again as often as that is asked for; what stands is closed at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Whom, 1 to [`MAX_TARGETS`].
    pub targets: Vec<Target>,
    /// How often each.
    #[serde(default = "one")]
    pub rounds: u32,
}

/// Somebody to connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Address.
    pub to: Address,
    /// Port.
    pub port: u16,
}

/// Most targets of one [`Probe`].
pub const MAX_TARGETS: usize = 4096;

impl Probe {
    /// Nothing found yet.
    pub fn begin(&self) -> Result<Vec<Probed>, AgentError> {
        let count = self.targets.len();
        if (1..=MAX_TARGETS).contains(&count) {
            return Ok(vec![Probed::default(); count]);
        }
        Err(AgentError::new(format!("{count} targets were asked for"), format!("name 1 to {MAX_TARGETS}")))
    }
}

/// What was found at a target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    /// Connections that stood.
    pub connected: u64,
    /// Answers that there is none to be had.
    pub refused: u64,
    /// No answer at all within two seconds.
    pub silent: u64,
    /// How long answers took, of either kind; as JSON, pairs of nanoseconds and how many took that long.
    pub took_ns: Latencies,
}

/// Most connections of one [`Stream`].
pub const MAX_SESSIONS: u32 = 256;

const fn ping_size() -> u32 {
    256
}
const fn ping_interval() -> u64 {
    1000
}
const fn wake_up_interval() -> u64 {
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

/// Round trips: of echo requests, or of requests and their responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Every round trip that ended; as JSON, pairs of nanoseconds and how many took that long.
    pub rtt_ns: Latencies,
    /// Requests sent.
    pub sent: u64,
    /// Requests that stayed without a reply until a second after the last was sent.
    pub lost: u64,
    /// Replies that came once more.
    pub duplicates: u64,
    /// From the first request to the last reply, in µs.
    pub elapsed_us: u64,
}

/// Bytes moved in one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throughput {
    /// Bytes that the server confirms, over all sessions.
    pub bytes: u64,
    /// From the first byte to the last confirmation, in µs.
    pub elapsed_us: u64,
    /// Bytes of each session.
    pub sessions: Vec<u64>,
}

impl Throughput {
    /// How alike the sessions were: (Σx)²/(n·Σx²) of their bytes; none for a single one, or when nothing was moved.
    pub fn fairness(&self) -> Option<f64> {
        let of = |each: fn(f64) -> f64| self.sessions.iter().map(|bytes| each(*bytes as f64)).sum::<f64>();
        let squares = self.sessions.len() as f64 * of(|x| x * x);
        (self.sessions.len() > 1 && squares > 0.0).then(|| of(|x| x).powi(2) / squares)
    }

    /// Payload in Mbit/s (10^6 bits); zero when no time passed.
    pub fn mbit_s(&self) -> f64 {
        if self.elapsed_us == 0 { 0.0 } else { self.bytes as f64 * 8.0 / self.elapsed_us as f64 }
    }
}

/// CPU time used so far, summed over all CPUs, in µs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// CPUs that this sum is over.
    pub cpus: u32,
    /// Programs.
    pub user_us: u64,
    /// Kernel, interrupts included.
    pub system_us: u64,
    /// Nothing to do, or waiting for a disk.
    pub idle_us: u64,
    /// Wanted to run, but the hypervisor ran something else.
    pub steal_us: u64,
    /// The agent's own process, which is part of the above.
    pub process_us: u64,
}
