//! Captures: each begins with a message of `tautd`, and ends with the other end of its socket or
//! with its port.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use taut_api::fabric::PortId;
use taut_api::fabric::capture::{Directions, Ended, MOST_CAPTURES, Message};
use tracing::{info, warn};

use super::entry::Entry;
use super::{Control, token};
use crate::port::capture::{Capture, Captures};
use crate::sys::epoll::{Epoll, EventFlags, Watched};

/// The captures that run.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// The captures by number, which is a part of the token of their events.
    captures: BTreeMap<u16, Entered>,
    /// Number for the next capture, unless another one has it.
    next: u16,
}

/// A capture that runs.
#[derive(Debug)]
struct Entered {
    port: PortId,
    /// Watched for the end of its reader.
    capture: Watched<Arc<Capture>>,
}

impl Running {
    /// Adds a capture, and watches whether its reader goes.
    fn add(&mut self, port: PortId, capture: &Arc<Capture>, events: &Epoll) -> io::Result<()> {
        // There are far fewer captures than numbers.
        while self.captures.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let token = token::CAPTURE | u64::from(self.next);
        let capture = events.watch(Arc::clone(capture), token, EventFlags::HUP)?;
        self.captures.insert(self.next, Entered { port, capture });
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Returns the captures of a port.
    fn of(&self, port: PortId) -> Captures {
        let of_port = self.captures.values().filter(|entered| entered.port == port);
        of_port.map(|entered| Arc::clone(&*entered.capture)).collect()
    }

    /// Removes a capture and returns its port; `None` if it is not there any more.
    fn remove(&mut self, number: u16) -> Option<PortId> {
        self.captures.remove(&number).map(|entered| entered.port)
    }

    /// Ends the captures of a port that is removed.
    pub(super) fn end_of(&mut self, port: PortId) {
        self.captures.retain(|_, entered| {
            let stays = entered.port != port;
            if !stays {
                // A reader that has gone need not be told.
                entered.capture.tell(&Message::Ended(Ended::NoPort));
            }
            stays
        });
    }

    /// Tells readers how many frames were lost.
    pub(super) fn tell_losses(&self) {
        self.captures.values().for_each(|entered| entered.capture.tell_losses());
    }
}

impl Control {
    /// Begins a capture of a port, with the socket that came with the message.
    pub(super) fn begin_capture(
        &mut self,
        port: PortId,
        snaplen: u32,
        directions: Directions,
        fds: Vec<OwnedFd>,
    ) {
        let Ok([socket]) = <[OwnedFd; 1]>::try_from(fds) else {
            return warn!(port = port.0, "a capture came without its socket");
        };
        let capture = Arc::new(Capture::new(socket, snaplen, directions));
        match self.enter_capture(port, &capture) {
            Ok(()) => capture.begin(),
            // A reader that has gone needs no answer.
            Err(why) => _ = capture.tell(&Message::Ended(why)),
        }
    }

    /// Puts a capture into force.
    fn enter_capture(&mut self, port: PortId, capture: &Arc<Capture>) -> Result<(), Ended> {
        if self.captures.captures.len() >= MOST_CAPTURES {
            return Err(Ended::TooMany);
        }
        if self.entries.get(&port).and_then(Entry::port).is_none() {
            return Err(Ended::NoPort);
        }
        self.captures.add(port, capture, &self.events).map_err(|error| {
            warn!(port = port.0, "cannot watch the socket of a capture: {error}");
            Ended::Failed
        })?;
        self.switch_captures(port);
        info!(port = port.0, "its frames are captured");
        Ok(())
    }

    /// Ends a capture whose reader has gone.
    pub(super) fn end_capture(&mut self, number: u16) {
        if let Some(port) = self.captures.remove(number) {
            self.switch_captures(port);
            info!(port = port.0, "a capture of its frames has ended");
        }
    }

    /// Has the switch capture the frames of a port for those captures that run.
    fn switch_captures(&mut self, port: PortId) {
        if let Some((_, captured)) = self.entries.get(&port).and_then(Entry::port) {
            captured.set_captures(self.captures.of(port));
        }
        let workers = self.config.workers.clone();
        self.switch_over(&workers);
    }
}
