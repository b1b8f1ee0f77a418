//! Standby: this process prepares everything while another one still serves.
//!
//! Taking over then takes no longer than starting the rings.

use std::collections::HashSet;

use taut_api::fabric::message::Attachment;
use taut_api::fabric::{ForeignFd, FromFabric, PortId};
use tracing::{info, warn};

use super::attach::{AttachError, Prepared};
use super::entry::Entry;
use super::{Control, chain};
use crate::sys::epoll::Epoll;

impl Control {
    /// Enters standby. Only a process that serves nothing yet can.
    pub(super) fn stand_by(&mut self) {
        if self.entries.is_empty() && !self.vsock.has_begun() {
            self.standby = true;
        } else {
            warn!("tautd asks a fabric that already serves to stand by; disconnected");
            self.tautd.disconnect();
        }
    }

    /// Prepares an attachment.
    pub(super) fn prepare(&mut self, port: PortId, via: Attachment, fds: Vec<ForeignFd>) {
        let prepared = match self.entries.get_mut(&port) {
            Some(entry) => entry.prepare(via, fds).map_err(|error| {
                entry.refuse(&error);
                chain(&error)
            }),
            None => Err(format!("{port} is not configured")),
        };
        self.tautd.send(&FromFabric::Prepared { port, refused: prepared.err() }, &[]);
    }

    /// Serves what was prepared for `ports`: the other process has stopped.
    pub(super) fn take_over(&mut self, ports: &HashSet<PortId>) {
        self.standby = false;
        self.vsock.begin();
        for (&port, entry) in &mut self.entries {
            let prepared = std::mem::take(&mut entry.prepared);
            if ports.contains(&port)
                && let Err(error) = entry.serve(prepared, &self.events)
            {
                entry.refuse(&error);
            }
            if entry.session.is_none() {
                // The front end that the other process served is gone.
                entry.device.gone();
            }
        }
        self.vsock.listen();
        let workers = self.config.workers.clone();
        self.switch_over(&workers);
        info!(ports = ports.len(), "took over");
        self.tautd.send(&FromFabric::TookOver, &[]);
    }
}

impl Entry {
    /// Prepares an attachment without serving it.
    fn prepare(&mut self, via: Attachment, fds: Vec<ForeignFd>) -> Result<(), AttachError> {
        match via {
            Attachment::Session(record) => {
                // Unmap the guest's memory before it is mapped again.
                self.prepared.retain(|prepared| !matches!(prepared, Prepared::Session(_)));
                let session = self.resume(record, fds)?;
                self.prepared.push(Prepared::Session(Box::new(session)));
            }
            other => self.prepared = vec![Prepared::Other(other, fds)],
        }
        Ok(())
    }

    /// Serves prepared attachments.
    fn serve(&mut self, prepared: Vec<Prepared>, events: &Epoll) -> Result<(), AttachError> {
        for prepared in prepared {
            match prepared {
                Prepared::Session(mut session) => {
                    // tautd holds the record from which the session was prepared.
                    session.mark_recorded();
                    self.serve_resumed(*session, events)?;
                }
                Prepared::Other(via, fds) => self.attach(via, fds, events)?,
            }
        }
        Ok(())
    }
}
