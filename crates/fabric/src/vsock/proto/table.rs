//! All connections, found by number or by the addresses of their ends.

use std::collections::HashMap;

use taut_api::fabric::counters::MAX_CONNECTIONS;

use super::connection::{Address, Connection, Party};
use super::ids::{BySide, ConnId, GuestIdx, PerGuest, Side};

/// The addresses of both ends, the smaller first: the same for packets of both directions.
type Pair = (Address, Address);

fn pair(a: Address, b: Address) -> Pair {
    if a <= b { (a, b) } else { (b, a) }
}

fn pair_of(connection: &Connection) -> Pair {
    pair(connection.ends[Side::Requester].address, connection.ends[Side::Responder].address)
}

/// A connection in the table.
#[derive(Debug)]
struct Entry {
    connection: Box<Connection>,
    /// Places of the connection in the lists of the guests at its ends.
    places: BySide<u32>,
}

/// The connections of one fabric. Number 0 is never used.
#[derive(Debug)]
pub(crate) struct ConnectionTable {
    entries: Vec<Option<Entry>>,
    by_addresses: HashMap<Pair, ConnId>,
    /// The connections of each guest, in no particular order. So whatever concerns one guest does
    /// not have to look at the connections of all others.
    of_guests: PerGuest<Vec<ConnId>>,
    free: Vec<ConnId>,
    /// Serial number of the newest connection.
    last_serial: u32,
    looks: Looks,
}

impl ConnectionTable {
    /// A table without connections.
    pub(crate) fn new() -> Self {
        Self {
            entries: vec![None],
            by_addresses: HashMap::new(),
            of_guests: PerGuest::default(),
            free: Vec::new(),
            last_serial: 0,
            looks: Looks::default(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: ConnId) -> Option<&Connection> {
        self.looks.count();
        Some(&self.entries.get(id.0 as usize)?.as_ref()?.connection)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Connection> {
        self.looks.count();
        Some(&mut self.entries.get_mut(id.0 as usize)?.as_mut()?.connection)
    }

    /// Finds the connection between two addresses, and the side at which `from` is.
    #[inline]
    pub(crate) fn find(&mut self, from: Address, to: Address) -> Option<(ConnId, Side, &mut Connection)> {
        let &id = self.by_addresses.get(&pair(from, to))?;
        let connection = self.get_mut(id)?;
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
        let numbers = (0..self.entries.len() as u32).map(ConnId);
        numbers.filter_map(|id| Some((id, self.get(id)?)))
    }

    /// Numbers of a guest's connections, as they are now.
    pub(crate) fn ids_of(&self, guest: GuestIdx) -> impl Iterator<Item = ConnId> + use<> {
        self.list_of(guest).to_vec().into_iter()
    }

    /// A guest's connections.
    pub(crate) fn of(&self, guest: GuestIdx) -> impl Iterator<Item = &Connection> {
        self.list_of(guest).iter().filter_map(|&id| self.get(id))
    }

    /// Tells whether a guest is at an end of any connection.
    pub(crate) fn names(&self, guest: GuestIdx) -> bool {
        !self.list_of(guest).is_empty()
    }

    fn list_of(&self, guest: GuestIdx) -> &[ConnId] {
        if self.of_guests.contains(guest) { &self.of_guests[guest] } else { &[] }
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
            None if self.entries.len() < MAX_CONNECTIONS => ConnId(self.entries.len() as u32),
            None => return None,
        };
        while self.entries.len() <= id.0 as usize {
            // The numbers in between are free, or taken up later.
            self.entries.push(None);
        }
        self.last_serial = self.last_serial.wrapping_add(1);
        (connection.id, connection.serial) = (id, self.last_serial);
        self.by_addresses.insert(key, id);
        let places = BySide(connection.ends.0.map(|end| self.append(end.party, id)));
        self.entries[id.0 as usize] = Some(Entry { connection: Box::new(connection), places });
        Some(id)
    }

    /// Appends a connection to the list of a guest. Returns its place there; any for the host, who
    /// has no list.
    fn append(&mut self, party: Party, id: ConnId) -> u32 {
        let Party::Guest(guest) = party else { return 0 };
        while !self.of_guests.contains(guest) {
            self.of_guests.push(Vec::new());
        }
        let list = &mut self.of_guests[guest];
        list.push(id);
        list.len() as u32 - 1
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, id: ConnId) -> Option<Box<Connection>> {
        let Entry { connection, places } = self.entries.get_mut(id.0 as usize)?.take()?;
        for side in Side::BOTH {
            if let Party::Guest(guest) = connection.ends[side].party {
                self.take_out(guest, places[side]);
            }
        }
        self.by_addresses.remove(&pair_of(&connection));
        self.free.push(id);
        Some(connection)
    }

    /// Removes the connection at a place of a guest's list. The last one of the list moves there.
    fn take_out(&mut self, guest: GuestIdx, place: u32) {
        let list = &mut self.of_guests[guest];
        list.swap_remove(place as usize);
        let Some(&moved) = list.get(place as usize) else { return };
        if let Some(Entry { connection, places }) = &mut self.entries[moved.0 as usize] {
            places[connection.side_of(guest)] = place;
        }
    }

    /// Finds the free numbers again, after connections were added under numbers of their own.
    pub(crate) fn collect_free(&mut self) {
        let numbers = 1..self.entries.len() as u32;
        self.free = numbers.map(ConnId).filter(|id| self.entries[id.0 as usize].is_none()).collect();
    }
}

/// In tests, the number of times that somebody has looked for a connection: the work that a step
/// of the switch takes.
#[derive(Debug, Default)]
struct Looks(#[cfg(test)] std::cell::Cell<u64>);

impl Looks {
    #[inline]
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "counts in tests only"))]
    fn count(&self) {
        #[cfg(test)]
        self.0.set(self.0.get() + 1);
    }
}

#[cfg(test)]
impl ConnectionTable {
    /// Number of looks so far.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.0.get()
    }
}

#[cfg(any(test, feature = "rig"))]
impl ConnectionTable {
    /// Checks that each connection is in the lists of its guests, at its places, and that nothing
    /// else is.
    pub(crate) fn check_lists(&self) {
        let mut listed = 0;
        for (id, entry) in (0..).map(ConnId).zip(&self.entries) {
            let Some(Entry { connection, places }) = entry else { continue };
            for side in Side::BOTH {
                if let Party::Guest(guest) = connection.ends[side].party {
                    assert_eq!(self.of_guests[guest][places[side] as usize], id, "{connection:?}");
                    listed += 1;
                }
            }
        }
        assert_eq!(listed, self.of_guests.iter().map(|(_, list)| list.len()).sum::<usize>());
    }
}
