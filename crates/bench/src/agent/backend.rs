//! The interface between an agent and the stack on which its requests run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::protocol::{
    AgentError, Checked, Configure, Cpu, Hello, Interface, Latency, Ping, Probe, Probed, Puts, Rr, Serve,
    Stream, Throughput, WakeUps, Woken,
};

/// A stack that runs requests: kernel sockets, or a microguest's own stack.
///
/// Several threads call it at once. Methods with a [`Run`] take as long as the measurement, the
/// others return quickly.
pub trait Backend: Sync {
    /// See [`super::protocol::Request::Hello`].
    fn hello(&self) -> Hello;
    /// See [`super::protocol::Request::Addresses`].
    fn addresses(&self) -> Result<Vec<Interface>, AgentError>;
    /// See [`super::protocol::Request::Configure`].
    fn configure(&self, wanted: &Configure) -> Result<(), AgentError>;
    /// See [`super::protocol::Request::Cid`].
    fn cid(&self) -> Result<u32, AgentError>;
    /// Starts a server that lives as long as the returned value.
    fn serve(&self, wanted: &Serve) -> Result<Box<dyn Serving>, AgentError>;
    /// See [`super::protocol::Request::Ping`].
    fn ping(&self, wanted: &Ping, run: &Run<'_>) -> Result<Latency, AgentError>;
    /// See [`super::protocol::Request::Rr`].
    fn rr(&self, wanted: &Rr, run: &Run<'_>) -> Result<Latency, AgentError>;
    /// See [`super::protocol::Request::Puts`]. Only kernel sockets have a Redis client.
    fn puts(&self, _wanted: &Puts, _run: &Run<'_>) -> Result<Latency, AgentError> {
        Err(AgentError::new(
            "there is no client of Redis here",
            "ask the agent of a namespace or of a guest that runs Linux",
        ))
    }
    /// See [`super::protocol::Request::Stream`].
    fn stream(&self, wanted: &Stream, run: &Run<'_>) -> Result<Throughput, AgentError>;
    /// See [`super::protocol::Request::Probe`].
    fn probe(&self, wanted: &Probe, run: &Run<'_>) -> Result<Vec<Probed>, AgentError>;
    /// See [`super::protocol::Request::WakeUps`]. Only Linux has sleeping threads.
    fn wake_ups(&self, _wanted: &WakeUps, _run: &Run<'_>) -> Result<Vec<Woken>, AgentError> {
        Err(AgentError::new("no thread can be woken up here", "ask a guest that runs Linux"))
    }
    /// See [`super::protocol::Request::Cpu`].
    fn cpu(&self) -> Result<Cpu, AgentError>;
    /// Computes on every CPU as long as the returned value lives; see
    /// [`super::protocol::Request::Spin`].
    fn spin(&self) -> Result<Box<dyn Spinning>, AgentError>;
    /// See [`super::protocol::Request::Check`]. Only Linux has settings to check.
    fn check(&self, _profile: &str) -> Result<Checked, AgentError> {
        Err(AgentError::new("there are no settings to check here", "ask a guest that runs Linux"))
    }
    /// Begins to power the guest off. The caller has its answer already.
    fn poweroff(&self) -> Result<(), AgentError>;
}

/// A running server. Dropping it ends the server and its connections.
pub trait Serving: Send {
    /// Returns the port on which the server listens.
    fn port(&self) -> u16;
}

/// Programs that compute. Dropping it ends them.
pub trait Spinning: Send {
    /// Returns the [units](super::protocol::Work::units) done so far.
    fn units(&self) -> u64;
}

/// The session's side of a running measurement: reports its start, and asks it to end early.
pub struct Run<'a> {
    stop: &'a Stop,
    started: &'a (dyn Fn() + Sync),
}

impl<'a> Run<'a> {
    /// Creates a run that ends early when `stop` is raised, and calls `started` when it begins.
    pub fn new(stop: &'a Stop, started: &'a (dyn Fn() + Sync)) -> Self {
        Self { stop, started }
    }

    /// Reports the start. Called once, when connections are established and before the first byte.
    pub fn started(&self) {
        (self.started)();
    }

    /// Returns whether the caller has gone. The result of the measurement is discarded then.
    pub fn is_stopped(&self) -> bool {
        self.stop.raised.load(Ordering::Relaxed)
    }

    /// Registers `wake`, which is called when the caller goes, to wake a thread that blocks. Calls
    /// it at once if the caller has gone already.
    pub fn on_stop(&self, wake: impl FnOnce() + Send + 'static) {
        let mut hooks = self.stop.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped() { wake() } else { hooks.push(Box::new(wake)) }
    }
}

/// Ends measurements early.
#[derive(Default)]
pub struct Stop {
    raised: AtomicBool,
    hooks: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Stop {
    /// Asks every [`Run`] to end.
    pub fn raise(&self) {
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        self.raised.store(true, Ordering::Relaxed);
        hooks.drain(..).for_each(|hook| hook());
    }
}
