//! Front ends: their connections and requests, and the incidents of their queues.

use taut_api::fabric::{FromFabric, PortId};

use super::entry::Entry;
use super::peer::Tautd;
use super::{Control, chain};
use crate::vhost_user::{Session, SessionError};

/// Largest number of requests that one front end has served in a row.
const REQUESTS: usize = 64;

/// Reason for the end of a session whose guest memory has lost pages.
const LOST: &str = "pages of the guest's memory have vanished: its file was shortened, no huge page was left, or the \
                    host's memory is faulty; hint: restart the VM";

/// Reason for the end of a session whose front end has blocked a thread.
const BLOCKED: &str = "the front end filled up an event descriptor and made it blocking, which stopped a thread of \
                       the fabric; hint: restart the VM";

/// Reason for the end of an attachment whose descriptors cannot be closed.
const CLOGGED: &str = "the front end sent descriptors whose close does not end; hint: end the server of that file \
                       system or the peer of that socket, then restart the VM";

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
            // Stopping the rings waits for a thread that is signalling this front end. Only then is
            // it known whether the front end has blocked it.
            entry.device.stop();
            if !shut_out_if_harmful(&mut self.tautd, port, entry) {
                let hint = error.hint().map(|hint| format!("; hint: {hint}")).unwrap_or_default();
                let reason = chain(&error) + &hint;
                entry.lose(reason.clone(), &self.events);
                self.tautd.send(&FromFabric::SessionEnded { port, reason, quarantined: false }, &[]);
            }
        }
        self.workers.recheck(port);
    }

    /// Ends the session of each front end that has harmed this process. `tautd` lets none of them
    /// come back.
    pub(super) fn handle_harm(&mut self) {
        self.blocked.clear();
        self.lost.clear();
        self.shut_out_harmful();
    }

    /// Ends what is attached to each port whose front end has harmed this process, or sends more
    /// descriptors than can be closed.
    pub(super) fn shut_out_harmful(&mut self) {
        for (&port, entry) in &mut self.entries {
            if shut_out_if_harmful(&mut self.tautd, port, entry) {
                self.workers.recheck(port);
            }
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

/// Ends the session of a front end that has harmed this process, and has `tautd` attach no other
/// one. Returns `false` if it has done no harm.
fn shut_out_if_harmful(tautd: &mut Tautd, port: PortId, entry: &mut Entry) -> bool {
    let reason = match &entry.session {
        Some(session) if session.has_blocked() => BLOCKED,
        Some(session) if session.has_lost_memory() => LOST,
        _ if entry.is_clogged() => CLOGGED,
        _ => return false,
    };
    entry.shut_out(reason.to_owned());
    let ended = FromFabric::SessionEnded { port, reason: reason.to_owned(), quarantined: true };
    tautd.send(&ended, &[]);
    true
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
