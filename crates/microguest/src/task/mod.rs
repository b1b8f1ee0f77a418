//! Programs of a microguest: state machines that its vCPU runs between two looks at the network.

mod connection;
mod ping;
mod probe;
mod request_response;
mod server;
mod spin;
mod stream;

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use taut_bench::agent::protocol::{Address, AgentError};

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
    /// Lets go of its sockets. Not called after [`Next::Done`].
    fn stop(&mut self, machine: &mut Machine);
}

/// What a program wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// To be polled again at once: it did something.
    Again,
    /// To be polled when something arrives.
    Idle,
    /// The same, but at this time at the latest.
    At(Instant),
    /// Nothing: it has ended and let go of its sockets.
    Done,
}

/// What a measurement tells the thread that waits for it.
pub(super) enum Event<T> {
    /// Connections stand, the measurement begins.
    Started,
    /// It has ended.
    Ended(Result<T, AgentError>),
}

/// Where a measurement tells it. Nobody may be listening any more; that is not the measurement's concern.
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

/// How long a connection may take to be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after a measurement's end its connections' last responses are waited for: buffers must drain first, and nothing
/// of a connection is lost while it stands.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stream's last bytes may take to be confirmed: on a host that has no CPU for it, one of smoltcp's retransmissions waits for
/// 1, 2, 4 and 8 seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest socket buffer: what TCP can announce with room to spare.
const MAX_BUFFER: usize = 16 << 20;
/// Socket buffers when nobody said otherwise.
const DEFAULT_BUFFER: usize = 256 << 10;

/// Buffer size for what a caller asked for.
pub(super) fn buffer_size(wanted: Option<u32>) -> usize {
    wanted.map_or(DEFAULT_BUFFER, |wanted| (wanted as usize).clamp(1024, MAX_BUFFER))
}

fn connection_failed(to: &Address, port: u16, how: &str) -> AgentError {
    let hint = match to {
        Address::Ip(_) => "is the server running, and are both on the same port group?",
        _ => "is the server running, and have both VMs a VMCI domain in common?",
    };
    AgentError::new(format!("the connection to {to} port {port} {how}"), hint)
}
