//! All connections, found by number or by the addresses of their ends.

use std::collections::HashMap;

use taut_api::fabric::counters::MAX_CONNECTIONS;

use super::connection::{Address, Connection};
use super::ids::{ConnId, Side};

/// The addresses of both ends, the smaller first: the same for packets of both directions.
type Pair = (Address, Address);

fn pair(a: Address, b: Address) -> Pair {
    if a <= b { (a, b) } else { (b, a) }
}

fn pair_of(connection: &Connection) -> Pair {
    pair(connection.ends[Side::Requester].address, connection.ends[Side::Responder].address)
}

/// The connections of one fabric. Number 0 is never used.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    connections: Vec<Option<Box<Connection>>>,
    by_addresses: HashMap<Pair, ConnId>,
    free: Vec<ConnId>,
    /// Serial number of the newest connection.
    last_serial: u32,
}

impl ConnectionTable {
    /// A table without connections.
    pub(crate) fn new() -> Self {
        Self { connections: vec![None], by_addresses: HashMap::new(), free: Vec::new(), last_serial: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, id: ConnId) -> Option<&Connection> {
        self.connections.get(id.0 as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.connections.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// Finds the connection between two addresses, and the side at which `from` is.
    #[inline]
    pub(crate) fn find(&mut self, from: Address, to: Address) -> Option<(ConnId, Side, &mut Connection)> {
        let &id = self.by_addresses.get(&pair(from, to))?;
        let connection = self.connections[id.0 as usize].as_deref_mut()?;
        let requested = connection.ends[Side::Requester].address == from;
        Some((id, if requested { Side::Requester } else { Side::Responder }, connection))
    }

    /// Numbers of all connections, as they are now.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ConnId> + use<> {
        let present: Vec<_> = self.iter().map(|(id, _)| id).collect();
        present.into_iter()
    }

    /// All connections with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnId, &Connection)> {
        let present = (0..).map(ConnId).zip(&self.connections);
        present.filter_map(|(id, connection)| Some((id, connection.as_deref()?)))
    }

    /// Adds a connection under `id`, or under any free number. Returns `None` if there are too many
    /// connections, or one between the same addresses.
    pub(crate) fn add(&mut self, mut connection: Connection, id: Option<ConnId>) -> Option<ConnId> {
        let key = pair_of(&connection);
        if self.by_addresses.contains_key(&key) {
            return None;
        }
        let id = match id.or_else(|| self.free.pop()) {
            Some(id) => id,
            None if self.connections.len() < MAX_CONNECTIONS => ConnId(self.connections.len() as u32),
            None => return None,
        };
        while self.connections.len() <= id.0 as usize {
            // The numbers in between are free, or taken up later.
            self.connections.push(None);
        }
        self.last_serial = self.last_serial.wrapping_add(1);
        (connection.id, connection.serial) = (id, self.last_serial);
        self.by_addresses.insert(key, id);
        self.connections[id.0 as usize] = Some(Box::new(connection));
        Some(id)
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, id: ConnId) -> Option<Box<Connection>> {
        let connection = self.connections.get_mut(id.0 as usize)?.take()?;
        self.by_addresses.remove(&pair_of(&connection));
        self.free.push(id);
        Some(connection)
    }

    /// Finds the free numbers again, after connections were added under numbers of their own.
    pub(crate) fn collect_free(&mut self) {
        let numbers = 1..self.connections.len() as u32;
        self.free = numbers.map(ConnId).filter(|id| self.connections[id.0 as usize].is_none()).collect();
    }
}
