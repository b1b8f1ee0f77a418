//! Programs of a microguest: state machines that its vCPU runs between two polls of the network.

mod connection;
pub(super) mod echo;
mod ping;
mod probe;
mod request_response;
mod server;
mod spin;
mod stream;

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use taut_bench::agent::protocol::{Address, AgentError};

pub(super) use connection::Conversation;
pub(super) use ping::PingTask;
pub(super) use probe::ProbeTask;
pub(super) use request_response::RequestResponseTask;
pub(super) use server::ServerTask;
pub(super) use spin::SpinTask;
pub(super) use stream::StreamTask;

use crate::machine::Machine;

/// A program.
pub(super) trait Task: Send {
    /// Does what can be done now, without waiting.
    fn poll(&mut self, machine: &mut Machine, now: Instant) -> Next;
    /// Releases the program's sockets. Not called after [`Next::Done`].
    fn stop(&mut self, machine: &mut Machine);
}

/// When to poll a program again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// At once: it made progress.
    Again,
    /// When something arrives.
    Idle,
    /// When something arrives, at this time at the latest.
    At(Instant),
    /// Never: it has ended and released its sockets.
    Done,
}

/// Progress of a measurement, for the thread that waits for it.
pub(super) enum Event<T> {
    /// Connections are established and the measurement begins.
    Started,
    /// The measurement has ended.
    Ended(Result<T, AgentError>),
}

/// Sender of a measurement's progress. The receiver may be gone; the measurement does not care.
pub(super) struct Report<T>(pub(super) Sender<Event<T>>);

impl<T> Report<T> {
    fn started(&self) {
        let _ = self.0.send(Event::Started);
    }

    fn end(&self, result: Result<T, AgentError>) -> Next {
        let _ = self.0.send(Event::Ended(result));
        Next::Done
    }
}

/// Time that a connection may take to be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after the end of a measurement to wait for the last responses. Buffers must drain first,
/// and nothing is lost while a connection is established.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the last bytes of a stream to be confirmed. On a host without a free CPU, one of
/// smoltcp's retransmissions waits for 1, 2, 4 and 8 seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest socket buffer: far less than the largest TCP window.
const MAX_BUFFER: usize = 16 << 20;
/// Socket buffer if the caller did not choose a size.
const DEFAULT_BUFFER: usize = 256 << 10;

/// Returns the buffer size for a caller's choice.
pub(super) fn buffer_size(wanted: Option<u32>) -> usize {
    wanted.map_or(DEFAULT_BUFFER, |wanted| (wanted as usize).clamp(1024, MAX_BUFFER))
}

fn connection_failed(to: &Address, port: u16, how: &str) -> AgentError {
    let hint = match to {
        Address::Ip(_) => {
            "start the server; put both on the same port group, or look at the router or firewall between them"
        }
        _ => "start the server, and give both VMs a common VMCI domain",
    };
    AgentError::new(format!("the connection to {to} port {port} {how}"), hint)
}
