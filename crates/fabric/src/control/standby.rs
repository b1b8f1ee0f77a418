//! Standing by: everything is prepared while another fabric still serves it, so that taking over takes no longer than
//! starting the rings.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use taut_api::fabric::message::Attachment;
use taut_api::fabric::{FromFabric, PortId};
use tracing::{info, warn};

use super::attach::{AttachError, Prepared};
use super::entry::Entry;
use super::{Control, send};
use crate::sys::epoll::Epoll;

impl Control {
    /// Begins to stand by; only a fabric that has nothing yet can.
    pub(super) fn stand_by(&mut self) {
        if self.entries.is_empty() && !self.vmci.has_begun() {
            self.standby = true;
        } else {
            warn!("tautd wants a fabric that serves to stand by; disconnected");
            self.peer = None;
        }
    }

    /// Prepares an attachment.
    pub(super) fn prepare(&mut self, port: PortId, via: Attachment, fds: Vec<OwnedFd>) {
        let prepared = match self.entries.get_mut(&port) {
            Some(entry) => entry.prepare(via, fds).map_err(|error| {
                entry.refuse(&error);
                super::chain(&error)
            }),
            None => Err(format!("{port} is not configured")),
        };
        send(&mut self.peer, &FromFabric::Prepared { port, refused: prepared.err() }, &[]);
    }

    /// The other fabric has stopped: serves what was prepared for `ports`.
    pub(super) fn take_over(&mut self, ports: &HashSet<PortId>) {
        self.standby = false;
        self.vmci.begin();
        for (&port, entry) in &mut self.entries {
            let prepared = std::mem::take(&mut entry.prepared);
            if ports.contains(&port)
                && let Err(error) = entry.serve(prepared, &self.events)
            {
                entry.refuse(&error);
            }
            if entry.session.is_none() {
                // Whoever was at it for the other fabric is not there any more.
                entry.device.gone();
            }
        }
        self.vmci.listen();
        let workers = self.config.workers.clone();
        self.switch_over(&workers);
        info!(ports = ports.len(), "took over");
        send(&mut self.peer, &FromFabric::TookOver, &[]);
    }
}

impl Entry {
    /// As [`Entry::attach`], but nothing is served yet.
    fn prepare(&mut self, via: Attachment, fds: Vec<OwnedFd>) -> Result<(), AttachError> {
        match via {
            Attachment::Session(record) => {
                // The old mapping goes first, as at every change of a guest's memory.
                self.prepared.retain(|prepared| !matches!(prepared, Prepared::Session(_)));
                let session = self.resume(record, fds)?;
                self.prepared.push(Prepared::Session(Box::new(session)));
            }
            other => self.prepared = vec![Prepared::Other(other, fds)],
        }
        Ok(())
    }

    fn serve(&mut self, prepared: Vec<Prepared>, events: &Epoll) -> Result<(), AttachError> {
        for prepared in prepared {
            match prepared {
                Prepared::Session(mut session) => {
                    // What it was prepared from is what tautd knows.
                    session.mark_told();
                    self.go_on(*session, events)?;
                }
                Prepared::Other(via, fds) => self.attach(via, fds, events)?,
            }
        }
        Ok(())
    }
}
