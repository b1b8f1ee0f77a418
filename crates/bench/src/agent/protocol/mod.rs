//! The agent's protocol: JSON, one message per line, over any byte stream.
//!
//! A [`Call`] carries an id that its caller chose; every [`Reply`] to it carries the same id. Calls
//! run concurrently, so replies come in any order. A call that measures is first answered with
//! [`Outcome::Started`], once its connections are established; nothing is sent while it measures,
//! because that would disturb the measurement. Each call ends with exactly one [`Outcome::Done`] or
//! [`Outcome::Failed`]. A line that is no call is answered with `Failed` under the id `null`.
//!
//! On a virtio-serial port the host side comes and goes without notice. A caller therefore begins
//! with an empty line, which ends a line that its predecessor left incomplete. Then it sends
//! [`Request::Hello`], which ends what its predecessor started, and ignores replies with ids that
//! it did not choose.
//!
//! ```text
//! {"id":7,"request":{"ping":{"to":"10.0.0.2","size":256,"interval_us":1000,"count":4}}}
//! {"id":7,"reply":"started"}
//! {"id":7,"reply":{"done":{"latency":{"rtt_ns":[[41023,1],[41055,3]],"sent":4,"lost":0, …}}}}
//! ```

mod bounded;
mod load;
mod machine;

use serde::{Deserialize, Serialize};

pub use super::address::Address;
pub use load::{
    Latency, MAX_SESSIONS, MAX_TARGETS, Ping, Probe, Probed, Puts, Rr, Serve, Server, Stream, Target,
    Throughput, WakeUps, Woken, Work,
};
pub use machine::{Check, Checked, Configure, Cpu, Hello, Interface, Kind};

/// Version of this protocol. An agent states its own in [`Hello::protocol`].
pub const PROTOCOL: u32 = 1;
/// Longest line in bytes, with its newline. A longer one is dropped and answered with `Failed`.
pub const MAX_LINE: usize = 1 << 20;

/// Most CPUs of a machine whose wake-ups are measured.
pub const MAX_CPUS: usize = 1024;

/// One line to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Number that the replies carry; the caller chooses it.
    pub id: u64,
    /// The request to execute.
    pub request: Request,
}

/// One line from the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The call's id; none if the line could not be read as a call.
    pub id: Option<u64>,
    /// Progress or result of the call.
    #[serde(rename = "reply")]
    pub outcome: Outcome,
}

/// A request to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Begin a conversation: servers and measurements of the previous one end. Answered with
    /// [`Answer::Hello`].
    Hello,
    /// List network interfaces. Answered with [`Answer::Addresses`].
    Addresses,
    /// Give an interface its IP address. Answered with [`Answer::Ok`].
    Configure(Configure),
    /// Return the machine's vsock context ID. Answered with [`Answer::Cid`].
    Cid,
    /// Start a server. Answered with [`Answer::Server`].
    Serve(Serve),
    /// Measure ICMP echo. Answered with [`Answer::Latency`].
    Ping(Ping),
    /// Measure request/response over one connection. Answered with [`Answer::Latency`].
    #[serde(rename = "tcp_rr")]
    Rr(Rr),
    /// Measure puts into a Redis server, one at a time. Answered with [`Answer::Latency`].
    Puts(Puts),
    /// Measure bulk transfer over one or more connections. Answered with [`Answer::Throughput`].
    #[serde(rename = "tcp_stream")]
    Stream(Stream),
    /// Connect to targets and report which of them answer. Answered with [`Answer::Probed`].
    Probe(Probe),
    /// Measure how late sleeping threads wake up, one thread on each CPU. Answered with
    /// [`Answer::WakeUps`].
    WakeUps(WakeUps),
    /// Return the CPU time used so far. Answered with [`Answer::Cpu`].
    Cpu,
    /// Compute on every CPU until [`Request::Rest`] or the end of the conversation. Answered with
    /// [`Answer::Ok`].
    Spin,
    /// Return the work that [`Request::Spin`] has done so far. Answered with [`Answer::Work`].
    Work,
    /// Stop computing. Answered with [`Answer::Ok`].
    Rest,
    /// Check the machine's settings against best practices. Answered with [`Answer::Checked`].
    Check(Check),
    /// Power the guest off. Answered with [`Answer::Ok`] before it ends.
    Poweroff,
}

/// Progress or result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The measurement has begun.
    Started,
    /// The call has succeeded.
    Done(Answer),
    /// The call has failed.
    Failed(AgentError),
}

/// The result of a successful call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Success without a result.
    Ok,
    /// The agent and its machine.
    Hello(Hello),
    /// Network interfaces, without the loopback.
    Addresses(Vec<Interface>),
    /// A vsock context ID.
    Cid(u32),
    /// A server that listens.
    Server(Server),
    /// Round trips.
    Latency(Latency),
    /// Bytes moved.
    Throughput(Throughput),
    /// One entry for each target, in order.
    Probed(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_TARGETS>")] Vec<Probed>),
    /// One entry for each CPU, at most [`MAX_CPUS`].
    WakeUps(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_CPUS>")] Vec<Woken>),
    /// CPU time.
    Cpu(Cpu),
    /// Work done.
    Work(Work),
    /// The report of a check.
    Checked(Checked),
}

/// The reason why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    /// One sentence with the values that matter.
    pub message: String,
    /// The user's way out of it.
    pub hint: String,
}

impl AgentError {
    /// Creates an error with its hint.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}
