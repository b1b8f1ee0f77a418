//! Stream sockets at many message and socket sizes: VMCI sockets, and TCP beside them. The figures of S2, redrawn.

mod picture;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{EndPoint, Figures, Host, PictureError};

/// Everything that one `taut bench vsock` found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SocketResults {
    /// What was measured.
    pub mode: SocketMode,
    /// Length of each repeat in seconds.
    pub duration_s: f64,
    /// Where.
    pub host: Host,
    /// Who sends.
    pub sender: EndPoint,
    /// Who receives or answers.
    pub receiver: EndPoint,
    /// One entry for everything that was measured alike, in order.
    pub cells: Vec<SocketCell>,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketMode {
    /// Messages in one direction, as fast as they go.
    Stream,
    /// A message, then the answer to it, one at a time.
    Rr,
}

/// What the bytes went over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// VMCI sockets.
    Vsock,
    /// TCP, over the vNICs.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Vsock => "vsock",
            Self::Tcp => "tcp",
        })
    }
}

/// All repeats of one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SocketCell {
    /// Over what.
    pub transport: Transport,
    /// Bytes of socket buffer asked for at both ends.
    pub socket: u32,
    /// Bytes of each message.
    pub message: u32,
    /// Connections at the same time.
    pub sessions: u32,
    /// One entry a repeat, in order.
    pub repeats: Vec<Figures>,
    /// The median of each figure over the repeats; without histogram.
    pub median: Figures,
}

impl SocketCell {
    /// A measurement without repeats yet.
    pub fn new(transport: Transport, socket: u32, message: u32, sessions: u32) -> Self {
        Self { transport, socket, message, sessions, repeats: Vec::new(), median: Figures::default() }
    }

    /// Is it the same measurement?
    pub fn is_of(&self, other: &Self) -> bool {
        let key = |cell: &Self| (cell.transport, cell.socket, cell.message, cell.sessions);
        key(self) == key(other)
    }

    /// Counts one more repeat.
    pub fn add(&mut self, figures: Figures) {
        self.repeats.push(figures);
        self.median = Figures::median(&self.repeats);
    }
}

impl SocketResults {
    /// The values that a field takes, each once, ascending.
    fn values<T: Ord>(&self, field: impl Fn(&SocketCell) -> T) -> Vec<T> {
        let mut values: Vec<_> = self.cells.iter().map(field).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// What is compared at each message size: transport and socket size.
    fn series(&self) -> Vec<(Transport, u32)> {
        self.values(|cell| (cell.transport, cell.socket))
    }

    /// What was found, if it was measured.
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

    /// Aligned text: throughput by message size, or percentiles, and what it was measured with.
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// An SVG picture: a chart for each number of sessions, bars by message size.
    ///
    /// # Errors
    /// Only by a fault of the drawing library.
    pub fn svg(&self) -> Result<String, PictureError> {
        picture::render(self)
    }
}

/// A size as people say it.
fn size(bytes: u32) -> String {
    if bytes >= 1024 && bytes.is_multiple_of(1024) {
        format!("{} KiB", bytes / 1024)
    } else {
        format!("{bytes} B")
    }
}
