//! The stage of the acts: a daemon, the ports under attack, and their neighbours.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Act, Effect, Neighbours, Port, Tools};
use crate::fuse::Fuse;
use crate::{Taut, eventually};

/// Time between two questions to `tautd`.
const LOOK: Duration = Duration::from_millis(20);
/// Longest wait until `tautd` tells about an act.
const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon with ports under attack.
#[derive(Debug)]
pub struct Stage {
    /// The honest ports.
    pub neighbours: Neighbours,
    tools: Tools,
}

impl Stage {
    /// Starts a daemon, its neighbours and the ports under attack.
    pub fn start() -> Self {
        let taut = Taut::start().with_lan();
        let neighbours = Neighbours::start(&taut, "lan");
        let fuse = Fuse::mount(&taut.dir().join("fuse")).expect("root can mount FUSE");
        Port::create_groups(&taut);
        for port in Port::ALL {
            port.attach(&taut);
        }
        let fabric = taut.fabric_pid();
        Self { neighbours, tools: Tools { fuse, sink: Neighbours::sink(), fabric, taut } }
    }

    /// The daemon.
    pub fn taut(&self) -> &Taut {
        &self.tools.taut
    }

    /// Performs an act once. With `explained`, what the port's user is told about it is checked,
    /// too.
    ///
    /// # Errors
    /// The act did not do what it claims, or did not have its effect.
    pub fn perform(&self, act: &Act, explained: bool) -> Result<(), String> {
        if explained {
            // The reason that the last act had left is gone after an honest session.
            self.behave_on(act.port)?;
        }
        let seen = if explained { self.last_event() } else { 0 };
        let judged = self.judge(act, explained, seen);
        if matches!(act.effect, Effect::Quarantined(_)) {
            self.taut().ok(["port", "detach", act.port.name()]);
            act.port.attach(self.taut());
        }
        judged
    }

    /// Performs an act, and checks its effect. Events up to the number `seen` explain nothing: they
    /// were there before.
    fn judge(&self, act: &Act, explained: bool, seen: u64) -> Result<(), String> {
        let failed = |why: &str| format!("{}: {why}", act.name);
        let mut front = self.tools.connect(act.port).map_err(|error| failed(&error.to_string()))?;
        let done = (act.run)(&mut front, &self.tools);
        done.map_err(|error| failed(&format!("it could not be done: {error}")))?;
        match act.effect {
            Effect::Ended(words) => {
                require(front.is_ended(), || failed("the session goes on"))?;
                if explained {
                    self.await_reason(act.port, words).map_err(|why| failed(&why))?;
                }
            }
            Effect::Quarantined(words) => {
                require(front.is_ended(), || failed("the session goes on"))?;
                self.await_reason(act.port, "in quarantine").map_err(|why| failed(&why))?;
                if explained {
                    self.await_event("port.quarantined", words, seen).map_err(|why| failed(&why))?;
                }
            }
            Effect::Broken(words) => {
                require(front.is_broken(), || failed("no ring is broken"))?;
                if explained {
                    self.await_reason(act.port, words).map_err(|why| failed(&why))?;
                }
                require(front.is_served(), || failed("a broken ring has ended the session"))?;
            }
            Effect::Served => {
                require(front.is_served(), || {
                    failed(&format!("the session was ended: {}", self.reason(act.port)))
                })?;
            }
            Effect::Any => _ = front.is_served(),
            Effect::Left => {}
        }
        Ok(())
    }

    /// Calls `meanwhile` while a thread of the fabric waits for the close of a descriptor.
    pub fn while_a_close_waits(&self, meanwhile: impl FnOnce()) {
        let front = self.tools.connect(Port::Plain).expect("the port listens");
        front.negotiate().expect("the fabric takes a session");
        self.tools.fuse.withhold();
        let file = self.tools.fuse.open().expect("the file system answers this process");
        super::send_kick(&front, &file).expect("the session goes on");
        drop(file);
        eventually("the fabric closes the file", || (self.tools.fuse.waiting() > 0).then_some(()));
        meanwhile();
        self.tools.fuse.release();
    }

    /// Begins a session as an honest front end does, and ends it.
    ///
    /// # Errors
    /// The fabric does not serve it.
    pub fn behave(&self) -> Result<(), String> {
        self.behave_on(Port::Plain)
    }

    fn behave_on(&self, port: Port) -> Result<(), String> {
        let mut front = self.tools.connect(port).map_err(|error| error.to_string())?;
        front.set_up().map_err(|error| format!("an honest session: {error}"))?;
        require(front.is_served(), || "an honest session was ended".to_owned())
    }

    /// Returns why the port's link is not up.
    fn reason(&self, port: Port) -> String {
        let ports = self.taut().json(["port", "list"]);
        let owner = format!("external/{}", port.name());
        let port = ports.as_array().and_then(|all| all.iter().find(|port| port["owner"] == *owner));
        port.and_then(|port| port["reason"].as_str()).unwrap_or("no reason").to_owned()
    }

    /// Waits until the port's reason has these words.
    fn await_reason(&self, port: Port, words: &str) -> Result<(), String> {
        let mut reason = String::new();
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            reason = self.reason(port);
            if reason.contains(words) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err(format!("the reason is `{reason}` instead of `{words}`"))
    }

    /// Number of the newest event.
    fn last_event(&self) -> u64 {
        self.tools.events().last().and_then(|event| event["seq"].as_u64()).unwrap_or(0)
    }

    /// Waits for an event of this kind with these words, and with a number above `seen`.
    ///
    /// # Errors
    /// It does not come.
    pub fn await_event(&self, kind: &str, words: &str, seen: u64) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        let told = |event: &Value| {
            event["kind"] == kind
                && event["seq"].as_u64() > Some(seen)
                && event["message"].as_str().is_some_and(|text| text.contains(words))
        };
        while Instant::now() < end {
            if self.tools.events().iter().any(told) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err(format!("no event {kind} with `{words}`"))
    }
}

fn require(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
