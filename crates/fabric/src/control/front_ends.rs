//! Front ends: their connections and requests, and the incidents of their queues.

use taut_api::fabric::{FromFabric, PortId};

use super::peer::Tautd;
use super::{Control, chain};
use crate::vhost_user::{Session, SessionError};

/// Largest number of requests that one front end has served in a row.
const REQUESTS: usize = 64;

/// What a front end has done to this process, if anything.
fn harm(session: &Session) -> Option<&'static str> {
    if session.has_blocked() { Some(BLOCKED) } else { session.has_lost_memory().then_some(LOST) }
}

/// Pages of guest memory were taken away while they were in use.
const LOST: &str = "pages of the guest's memory have vanished: its file was shortened, no huge page was left, or the \
                    host's memory is faulty; hint: restart the VM";

/// A full eventfd was made blocking.
const BLOCKED: &str = "the front end filled up an event descriptor and made it blocking, which stopped a thread of \
                       the fabric; hint: restart the VM";

impl Control {
    /// Accepts a front end at a port's listening socket.
    pub(super) fn accept_front_end(&mut self, port: PortId) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        if let Err(error) = entry.accept(&self.events) {
            entry.lose(error.to_string(), &self.events);
        }
        if let Some(session) = &mut entry.session {
            self.tautd.record(session);
        }
        self.workers.recheck(port);
    }

    /// Carries out a front end's requests.
    pub(super) fn serve_front_end(&mut self, port: PortId) {
        let Some(entry) = self.entries.get_mut(&port) else { return };
        let Some(session) = &mut entry.session else { return };
        let served = serve_requests(&mut self.tautd, session);
        self.tautd.record_changes(session);
        if let Err(error) = served {
            // Waits for a thread that is just signalling the front end, which may be about to run
            // away from what it has done.
            entry.device.stop();
            let harm = entry.session.as_ref().and_then(|session| harm(session));
            let reason = if let Some(harm) = harm {
                entry.shut_out(harm.to_owned());
                harm.to_owned()
            } else {
                let hint = error.hint().map(|hint| format!("; hint: {hint}")).unwrap_or_default();
                let reason = chain(&error) + &hint;
                entry.lose(reason.clone(), &self.events);
                reason
            };
            let quarantined = harm.is_some();
            self.tautd.send(&FromFabric::SessionEnded { port, reason, quarantined }, &[]);
        }
        self.workers.recheck(port);
    }

    /// Ends the session of each front end that has harmed this process. `tautd` lets none of them
    /// come back.
    pub(super) fn handle_harm(&mut self) {
        self.blocked.clear();
        self.lost.clear();
        for (&port, entry) in &mut self.entries {
            let harm = entry.session.as_ref().and_then(|session| harm(session));
            let Some(reason) = harm.map(str::to_owned) else { continue };
            entry.shut_out(reason.clone());
            self.tautd.send(&FromFabric::SessionEnded { port, reason, quarantined: true }, &[]);
            self.workers.recheck(port);
        }
    }

    /// Handles queues that stopped working.
    pub(super) fn handle_incidents(&mut self) {
        for incident in self.workers.take_incidents() {
            if let Some(entry) = self.entries.get_mut(&incident.port) {
                entry.fail(incident.queue, incident.failure, &self.events);
            }
        }
    }
}

/// Carries out requests, and records each change before its reply is sent.
fn serve_requests(tautd: &mut Tautd, session: &mut Session) -> Result<(), SessionError> {
    for _ in 0..REQUESTS {
        let Some((header, request)) = session.receive()? else { return Ok(()) };
        let reply = session.apply(&header, request)?;
        if reply.is_awaited() {
            tautd.record_changes(session);
            session.reply(&reply)?;
        }
    }
    Ok(())
}
