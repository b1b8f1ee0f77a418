//! Stream sockets at many message and socket sizes: vsock, and TCP beside it (the figures of S2).

mod picture;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{EndPoint, Figures, Host, PictureError};

/// Results of one `taut bench vsock`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SocketResults {
    /// Pattern of the messages.
    pub mode: SocketMode,
    /// Length of each repeat in seconds.
    pub duration_s: f64,
    /// The host.
    pub host: Host,
    /// The sending end.
    pub sender: EndPoint,
    /// The end that receives or answers.
    pub receiver: EndPoint,
    /// One entry for each combination of settings, in order.
    pub cells: Vec<SocketCell>,
}

/// A pattern of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketMode {
    /// Messages in one direction, as fast as possible.
    Stream,
    /// A message and its answer, one at a time.
    Rr,
}

/// The transport of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Vsock, whose bytes go in packets.
    Vsock,
    /// Vsock with a queue pair at each end that is in a VM.
    Ring,
    /// TCP over the vNICs.
    Tcp,
    /// TCP over the vNICs with buffers of the kernels' own sizes, which follow the traffic.
    #[serde(rename = "tcp-auto")]
    TcpAuto,
}

impl Transport {
    /// Bytes of socket buffer that an end asks for, of those that were wanted. A size that is asked
    /// for turns the kernel's own choice off.
    pub fn asked_for(self, wanted: u32) -> Option<u32> {
        (self != Self::TcpAuto).then_some(wanted)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vsock => "vsock",
            Self::Ring => "ring",
            Self::Tcp => "tcp",
            Self::TcpAuto => "tcp-auto",
        })
    }
}

/// All repeats with the same settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SocketCell {
    /// Transport.
    pub transport: Transport,
    /// Bytes of socket buffer requested at both ends, except by [`Transport::TcpAuto`].
    pub socket: u32,
    /// Bytes of each message.
    pub message: u32,
    /// Number of concurrent connections.
    pub sessions: u32,
    /// One entry for each repeat, in order.
    pub repeats: Vec<Figures>,
    /// The median of each figure over the repeats; without histogram.
    pub median: Figures,
}

impl SocketCell {
    /// Creates a cell without repeats.
    pub fn new(transport: Transport, socket: u32, message: u32, sessions: u32) -> Self {
        Self { transport, socket, message, sessions, repeats: Vec::new(), median: Figures::default() }
    }

    /// Returns whether `other` has the same settings.
    pub fn is_of(&self, other: &Self) -> bool {
        let key = |cell: &Self| (cell.transport, cell.socket, cell.message, cell.sessions);
        key(self) == key(other)
    }

    /// Adds a repeat.
    pub fn add(&mut self, figures: Figures) {
        self.repeats.push(figures);
        self.median = Figures::median(&self.repeats);
    }
}

impl SocketResults {
    /// Returns the values of a field, each once, ascending.
    fn values<T: Ord>(&self, field: impl Fn(&SocketCell) -> T) -> Vec<T> {
        let mut values: Vec<_> = self.cells.iter().map(field).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// Returns the combinations of transport and socket size that are compared at each message
    /// size.
    fn series(&self) -> Vec<(Transport, u32)> {
        self.values(|cell| (cell.transport, cell.socket))
    }

    /// Returns the median with these settings, if they were measured.
    pub fn median(
        &self,
        (transport, socket): (Transport, u32),
        message: u32,
        sessions: u32,
    ) -> Option<&Figures> {
        let wanted = |cell: &&SocketCell| {
            (cell.transport, cell.socket, cell.message, cell.sessions)
                == (transport, socket, message, sessions)
        };
        self.cells.iter().find(wanted).map(|cell| &cell.median)
    }

    /// Returns aligned text: throughput by message size, or percentiles, and the settings.
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// Returns an SVG picture: a chart for each number of sessions, with bars by message size.
    ///
    /// # Errors
    /// Only if the drawing library fails.
    pub fn svg(&self) -> Result<String, PictureError> {
        picture::render(self)
    }
}

/// Formats a size with its unit.
fn size(bytes: u32) -> String {
    if bytes >= 1024 && bytes.is_multiple_of(1024) {
        format!("{} KiB", bytes / 1024)
    } else {
        format!("{bytes} B")
    }
}
