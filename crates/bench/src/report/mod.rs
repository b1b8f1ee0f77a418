//! Results of measurements as tables, JSON and pictures (spec row WL).
//!
//! A result has the raw figures of each repeat, with the settings, host and end points that they
//! came from. Its JSON is the type itself, by serde.

mod compare;
mod conditions;
mod drawing;
mod figures;
mod moderation;
mod picture;
mod raw;
mod sockets;
mod switches;
mod table;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::agent::protocol::Address;

pub use compare::{Comparison, Figure};
pub use conditions::{Beside, Condition, ConditionResults, Experiment};
pub use figures::{Cpu, Figures};
pub use moderation::{Cell, ModerationResults};
pub use picture::PictureError;
pub use raw::RawResults;
pub use sockets::{SocketCell, SocketMode, SocketResults, Transport};
pub use switches::{Cores, Generator, Machine, SwitchResults, SwitchSample};

/// Results of one `taut bench ping`, `rr` or `stream`. Its JSON keeps its shape, because programs
/// read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Kind of measurement.
    pub kind: Kind,
    /// Settings of the measurement.
    pub settings: Settings,
    /// The host.
    pub host: Host,
    /// The configuration measured.
    pub a: Configuration,
    /// The configuration that it is compared with, measured in alternation with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<Configuration>,
    /// Difference between B and A.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// A kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// ICMP echo at a fixed interval.
    Ping,
    /// TCP request and response, one at a time (netperf's TCP_RR).
    Rr,
    /// TCP in one direction (netperf's TCP_STREAM).
    Stream,
}

impl Kind {
    /// Returns the name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Rr => "rr",
            Self::Stream => "stream",
        }
    }
}

/// Settings of a measurement. Those that do not apply to the [`Kind`] are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Length of each repeat in seconds.
    pub duration_s: f64,
    /// Repeats of each configuration.
    pub repeats: u32,
    /// Bytes of payload of an echo, request or response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u32>,
    /// Time between two echo requests in µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_us: Option<u64>,
    /// The pattern of spec row S1, if one was chosen by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Bytes of socket buffer requested at both ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_size: Option<u32>,
    /// Bytes of each send call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_size: Option<u32>,
    /// Bytes of each receive call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_size: Option<u32>,
    /// Number of concurrent TCP connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
}

/// The host of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Host name.
    pub hostname: String,
    /// CPU model.
    pub cpu_model: String,
    /// pCPUs online.
    pub cpus: usize,
    /// Distribution.
    pub os: String,
    /// `uname -r`.
    pub kernel: String,
    /// Accelerator of VMs: `kvm` or `tcg`.
    pub accelerator: String,
    /// QEMU's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<String>,
    /// taut's version.
    pub taut: String,
}

impl fmt::Display for Host {
    /// Writes one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hostname, cpu_model, cpus, os, kernel, accelerator, qemu, taut } = self;
        write!(f, "{hostname}: {cpus} × {cpu_model}, {os}, Linux {kernel}, {accelerator}")?;
        if let Some(qemu) = qemu {
            write!(f, ", QEMU {qemu}")?;
        }
        write!(f, ", taut {taut}")
    }
}

/// A pair of end points, and what was measured between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// `SENDER → RECEIVER`.
    pub name: String,
    /// The sending end.
    pub sender: EndPoint,
    /// The end that receives or answers.
    pub receiver: EndPoint,
    /// One entry for each repeat, in order.
    pub repeats: Vec<Figures>,
    /// The median of each figure over the repeats; without histogram.
    pub median: Figures,
}

impl Configuration {
    /// Computes the median of repeats between two end points.
    pub fn new(sender: EndPoint, receiver: EndPoint, repeats: Vec<Figures>) -> Self {
        let name = format!("{} → {}", sender.name, receiver.name);
        let median = Figures::median(&repeats);
        Self { name, sender, receiver, repeats, median }
    }
}

/// One end of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndPoint {
    /// Name on the command line.
    pub name: String,
    /// `guest`, `micro`, `netns` or `host`.
    pub kind: String,
    /// Kernel, or the network stack of a microguest.
    pub kernel: String,
    /// Address of the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// Accelerator of a VM: `kvm`, `tcg` or `native`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
}

impl Report {
    /// Combines results. With a second configuration, computes the comparison.
    pub fn new(
        kind: Kind,
        settings: Settings,
        host: Host,
        a: Configuration,
        b: Option<Configuration>,
    ) -> Self {
        let comparison = b.as_ref().and_then(|b| Comparison::new(kind, &a.repeats, &b.repeats));
        Self { kind, settings, host, a, b, comparison }
    }

    /// Returns the configurations measured: A, then B.
    pub fn configurations(&self) -> impl Iterator<Item = &Configuration> {
        std::iter::once(&self.a).chain(&self.b)
    }

    /// Returns the configurations with their names in results, which start with a letter if there
    /// are two.
    fn named(&self) -> impl Iterator<Item = (String, &Configuration)> {
        let letters = if self.b.is_some() { ["A: ", "B: "] } else { [""; 2] };
        letters.into_iter().zip(self.configurations()).map(|(letter, c)| (format!("{letter}{}", c.name), c))
    }

    /// Returns aligned text: a line for each repeat, their median, the comparison, and the
    /// settings.
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// Returns an SVG picture: percentile curves of latencies, or bars of throughput.
    pub fn svg(&self) -> Result<String, PictureError> {
        drawing::render(self)
    }
}

/// The host of results in tests.
#[cfg(test)]
fn example_host() -> Host {
    Host {
        hostname: "lab1".to_owned(),
        cpu_model: "Example CPU".to_owned(),
        cpus: 2,
        os: "Debian".to_owned(),
        kernel: "6.18.0".to_owned(),
        accelerator: "tcg".to_owned(),
        qemu: None,
        taut: "0.1.0".to_owned(),
    }
}

#[cfg(test)]
mod tests;
