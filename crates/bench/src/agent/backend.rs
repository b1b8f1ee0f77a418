//! What an agent's requests run on: kernel sockets, or a microguest's own stack.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::protocol::{
    AgentError, Checked, Configure, Cpu, Hello, Interface, Latency, Ping, Probe, Probed, Puts, Rr, Serve,
    Stream, Throughput, WakeUps, Woken,
};

/// A stack that answers requests. Methods are called from several threads at once; those with a [`Run`] take as long as
/// the measurement does, the others are quick.
pub trait Backend: Sync {
    /// See [`super::protocol::Request::Hello`].
    fn hello(&self) -> Hello;
    /// See [`super::protocol::Request::Addresses`].
    fn addresses(&self) -> Result<Vec<Interface>, AgentError>;
    /// See [`super::protocol::Request::Configure`].
    fn configure(&self, wanted: &Configure) -> Result<(), AgentError>;
    /// See [`super::protocol::Request::Cid`].
    fn cid(&self) -> Result<u32, AgentError>;
    /// Starts a server that lives as long as what is returned.
    fn serve(&self, wanted: &Serve) -> Result<Box<dyn Serving>, AgentError>;
    /// See [`super::protocol::Request::Ping`].
    fn ping(&self, wanted: &Ping, run: &Run<'_>) -> Result<Latency, AgentError>;
    /// See [`super::protocol::Request::Rr`].
    fn rr(&self, wanted: &Rr, run: &Run<'_>) -> Result<Latency, AgentError>;
    /// See [`super::protocol::Request::Puts`]. Only kernel sockets have a client for it.
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
    /// See [`super::protocol::Request::WakeUps`]. Only a Linux has threads that sleep.
    fn wake_ups(&self, _wanted: &WakeUps, _run: &Run<'_>) -> Result<Vec<Woken>, AgentError> {
        Err(AgentError::new("no thread can be woken up here", "ask a guest that runs Linux"))
    }
    /// See [`super::protocol::Request::Cpu`].
    fn cpu(&self) -> Result<Cpu, AgentError>;
    /// Computes on every CPU for as long as what is returned lives; see [`super::protocol::Request::Spin`].
    fn spin(&self) -> Result<Box<dyn Spinning>, AgentError>;
    /// See [`super::protocol::Request::Check`]. Only a Linux has something to look at.
    fn check(&self, _profile: &str) -> Result<Checked, AgentError> {
        Err(AgentError::new("there are no settings to check here", "ask a guest that runs Linux"))
    }
    /// Begins to end the guest; called after the caller was told.
    fn poweroff(&self) -> Result<(), AgentError>;
}

/// A running server; dropping it ends the server and its connections.
pub trait Serving: Send {
    /// The port it listens on.
    fn port(&self) -> u16;
}

/// Programs that compute; dropping it ends them.
pub trait Spinning: Send {
    /// [Units](super::protocol::Work::units) done so far.
    fn units(&self) -> u64;
}

/// A measurement as the session sees it: tells when it starts, and learns when nobody waits for it any more.
pub struct Run<'a> {
    stop: &'a Stop,
    started: &'a (dyn Fn() + Sync),
}

impl<'a> Run<'a> {
    /// A run that ends early when `stop` is raised, and calls `started` when it begins.
    pub fn new(stop: &'a Stop, started: &'a (dyn Fn() + Sync)) -> Self {
        Self { stop, started }
    }

    /// To be called once, when connections stand and the first byte is about to be sent.
    pub fn started(&self) {
        (self.started)();
    }

    /// Has the caller gone? Then whatever is returned is thrown away.
    pub fn is_stopped(&self) -> bool {
        self.stop.raised.load(Ordering::Relaxed)
    }

    /// Has `hurry` called when the caller goes, at once if it has gone already: for waking what would block.
    pub fn on_stop(&self, hurry: impl FnOnce() + Send + 'static) {
        let mut hooks = self.stop.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_stopped() { hurry() } else { hooks.push(Box::new(hurry)) }
    }
}

/// Ends measurements early.
#[derive(Default)]
pub struct Stop {
    raised: AtomicBool,
    hooks: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Stop {
    /// Tells every [`Run`] that looks.
    pub fn raise(&self) {
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        self.raised.store(true, Ordering::Relaxed);
        hooks.drain(..).for_each(|hook| hook());
    }
}
