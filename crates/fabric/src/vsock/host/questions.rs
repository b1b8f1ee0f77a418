//! Connections for which `tautd` has been asked: only `tautd` can connect to a program on the host.

use std::collections::{HashMap, HashSet};

use crate::vsock::proto::{ConnId, GuestIdx};

/// A question that `tautd` has not answered.
#[derive(Debug)]
struct Question {
    guest: GuestIdx,
    /// The connection that waits for the answer; `None` once the guest has given up.
    connection: Option<ConnId>,
}

/// All questions that are open, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: HashMap<u32, Question>,
    /// Numbers of the open questions of each guest.
    of_guests: HashMap<GuestIdx, HashSet<u32>>,
    /// Number of the newest question.
    newest: u32,
}

impl Questions {
    /// Number of questions of a guest that are open.
    pub(crate) fn count(&self, guest: GuestIdx) -> usize {
        self.of_guests.get(&guest).map_or(0, HashSet::len)
    }

    /// Adds a question for a connection, and returns its number.
    pub(crate) fn add(&mut self, guest: GuestIdx, connection: ConnId) -> u32 {
        self.newest = self.newest.wrapping_add(1);
        self.open.insert(self.newest, Question { guest, connection: Some(connection) });
        self.of_guests.entry(guest).or_default().insert(self.newest);
        self.newest
    }

    /// Ends a question with its answer. Returns the connection that waits for it.
    pub(crate) fn answer(&mut self, question: u32) -> Option<ConnId> {
        let Question { guest, connection } = self.open.remove(&question)?;
        if let Some(open) = self.of_guests.get_mut(&guest) {
            open.remove(&question);
        }
        connection
    }

    /// Notes that the connection is over. The answer is not for the next connection of its number.
    pub(crate) fn give_up(&mut self, question: u32) {
        if let Some(question) = self.open.get_mut(&question) {
            question.connection = None;
        }
    }

    /// Forgets the questions of a removed guest.
    pub(crate) fn forget(&mut self, guest: GuestIdx) {
        for question in self.of_guests.remove(&guest).unwrap_or_default() {
            self.open.remove(&question);
        }
    }

    /// The connections that wait for an answer.
    #[cfg(any(test, feature = "rig"))]
    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnId> {
        self.open.values().filter_map(|question| question.connection)
    }
}
