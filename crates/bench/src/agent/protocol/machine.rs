//! Requests and answers about the machine that the agent runs on.

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// The agent and its machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The agent's [`PROTOCOL`](super::PROTOCOL).
    pub protocol: u32,
    /// taut's version.
    pub version: String,
    /// The kind of machine.
    pub kind: Kind,
    /// Host name.
    pub hostname: String,
    /// `uname -r`, or the name of a microguest's network stack.
    pub kernel: String,
}

/// The kind of machine that an agent runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A virtual machine.
    Guest,
    /// A network namespace of the host.
    Netns,
    /// The host.
    Host,
    /// A microguest.
    Micro,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// MAC address as six lower-case hexadecimal pairs.
    pub mac: String,
    /// IPv4 addresses.
    pub ips: Vec<Ipv4Net>,
    /// The link is up.
    pub carrier: bool,
    /// Number of times that the link went up or down since the interface exists; 0 for a
    /// microguest.
    pub carrier_changes: u64,
}

/// Gives an interface its IP address and sets it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configure {
    /// MAC address of the interface.
    pub mac: String,
    /// The interface's new IP address.
    pub ip: Ipv4Net,
}

/// Checks the machine's settings against best practices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Purpose of the machine: `latency`, `throughput` or `dense`.
    pub profile: String,
}

/// The report of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Text for people.
    pub text: String,
    /// The same as a JSON document.
    pub json: String,
}

/// CPU time used so far, summed over all CPUs, in µs. Callers compare two answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Number of CPUs in the sum.
    pub cpus: u32,
    /// Programs.
    pub user_us: u64,
    /// Kernel, with interrupts.
    pub system_us: u64,
    /// Idle, or waiting for a disk.
    pub idle_us: u64,
    /// Ready to run while the hypervisor ran something else.
    pub steal_us: u64,
    /// The agent's own process; part of the times above.
    pub process_us: u64,
}
