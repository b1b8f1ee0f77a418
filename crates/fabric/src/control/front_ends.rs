//! Front ends: their connections and requests, and the incidents of their queues.

use taut_api::fabric::{FromFabric, PortId};

use super::peer::Tautd;
use super::{Control, chain};
use crate::vhost_user::{Session, SessionError};

/// Largest number of requests that one front end has served in a row.
const REQUESTS: usize = 64;

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
            let hint = error.hint().map(|hint| format!("; hint: {hint}")).unwrap_or_default();
            let reason = chain(&error) + &hint;
            entry.lose(reason.clone(), &self.events);
            self.tautd.send(&FromFabric::SessionEnded { port, reason }, &[]);
        }
        self.workers.recheck(port);
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
