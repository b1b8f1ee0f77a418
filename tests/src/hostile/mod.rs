//! A hostile front end: acts that must harm nobody but the port on which they are done.
//!
//! Each act is one session on a port under attack. It says what must become of the session and
//! which words must explain that, and fails if it could not do what its name claims.

mod chains;
mod crowd;
mod descriptors;
mod flapping;
mod frames;
mod front_end;
mod memory;
mod messages;
mod neighbours;
mod port;
mod rings;
mod shaped;
mod stage;
mod tools;
mod unsealed;

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use vhost::vhost_user::message::FrontendReq;

use front_end::FrontEnd;
pub use neighbours::{Neighbours, Seen};
use port::Port;
pub use stage::Stage;
use tools::Tools;

/// Required end of an act's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The fabric ends it, and `taut port list` has these words as reason.
    Ended(&'static str),
    /// The fabric ends it, and its port is in quarantine. An event has these words.
    Quarantined(&'static str),
    /// The fabric stops its rings, and `taut port list` has these words as reason.
    Broken(&'static str),
    /// The fabric goes on serving it.
    Served,
    /// Served, stopped or ended: the result depends on the host or on timing.
    Any,
    /// The front end itself is gone.
    Left,
}

type Run = Box<dyn Fn(&mut FrontEnd, &Tools) -> io::Result<()> + Send + Sync>;

/// One act.
pub struct Act {
    /// Description of what the front end does.
    pub name: String,
    /// Required end of its session.
    pub effect: Effect,
    /// The act takes seconds.
    pub is_slow: bool,
    /// Port of its session.
    port: Port,
    run: Run,
}

impl fmt::Debug for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Act").field("name", &self.name).field("effect", &self.effect).finish_non_exhaustive()
    }
}

impl Act {
    fn new(
        name: impl Into<String>,
        effect: Effect,
        run: impl Fn(&mut FrontEnd, &Tools) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), effect, is_slow: false, port: Port::Plain, run: Box::new(run) }
    }

    fn slow(self) -> Self {
        Self { is_slow: true, ..self }
    }

    fn on(self, port: Port) -> Self {
        Self { port, ..self }
    }
}

/// Returns all acts.
pub fn acts() -> Vec<Act> {
    let groups = [
        descriptors::acts(),
        memory::acts(),
        unsealed::acts(),
        messages::acts(),
        rings::acts(),
        chains::acts(),
        frames::acts(),
        shaped::acts(),
        flapping::acts(),
        crowd::acts(),
    ];
    groups.into_iter().flatten().collect()
}

/// Returns the error unless the act has done what it claims.
fn claim(done: bool, what: &str) -> io::Result<()> {
    if done { Ok(()) } else { Err(io::Error::other(what.to_owned())) }
}

/// Sends a descriptor as the kick of the first queue.
fn send_kick(front: &FrontEnd, fd: &OwnedFd) -> io::Result<()> {
    front.send(FrontendReq::SET_VRING_KICK, &0_u64.to_ne_bytes(), &[fd.as_fd()])
}
