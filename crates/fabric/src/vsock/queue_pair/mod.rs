//! Queue pairs: regions of guests, whose rings carry payload of connections instead of packets.
//!
//! A guest's program opens a control connection to the fabric itself and names a connection of its
//! guest. The fabric attaches that end to a channel of the guest's region. From then on the end's
//! payload goes through the two rings of the channel. The other end may be attached to a channel of
//! its own guest, or use packets, or be a program on the host.
//!
//! * [`region`]: a guest's region, and which of its channels are in use.
//! * [`channel`]: one end that is attached: the fabric's side of the two rings.
//! * [`fault`]: what a guest's words say that cannot be.
//! * [`control`]: a control connection: the request, the answer, and signals to the program.
//!
//! A stream that goes through a channel ends in steps, each noted by whoever sees it:
//!
//! | noted | meaning | set by |
//! |---|---|---|
//! | `Flow::ended` | the sender sends no more | the guest's shutdown or reset, its end word |
//! | `AttachedEnd::is_final` | no later byte of ring OUT counts | the look after `ended`, a leave |
//! | `Flow::cut` | bytes were lost | whoever discards them |
//! | `AttachedEnd::announced` | the program was told of the end | the move of the last byte |
//! | `Flow::is_read` | the program has read the last byte | the move that finds its ring IN empty |
//! | `Flow::over` | the receiver's kernel knows of the connection's end | the reset to or from it |
//!
//! This layer knows connections only by their numbers. Whoever takes bytes out of a channel, or
//! puts bytes into one, names the connection with its serial number, and gets the channel only if
//! the channel is attached to just that connection ([`QueuePairs::end`]). So a channel that was
//! given to another connection meanwhile is not found.

mod channel;
mod control;
mod fault;
mod region;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use taut_api::vmci::Cid;
use taut_queue_pair::SERVICE_PORT;

pub(crate) use self::channel::{AttachedEnd, EndId, Missed, Noted};
pub(crate) use self::control::{CONTROL_CREDIT, CONTROL_WORDS, Control, Taken};
pub(crate) use self::fault::PairFault;
pub(crate) use self::region::GuestRegion;
pub use self::region::{RegionPlace, RegionRefused};
use super::proto::{Address, ChannelIdx, ConnId, Connection, GuestIdx, Party, Side};

/// Longest time for which the fabric delivers what is left in the ring of a program that is gone.
pub(crate) const MAX_DRAIN: Duration = Duration::from_secs(10);

/// Something that a move of bytes has caused and that concerns other connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The program at a control connection is to look at its rings.
    Signal(ConnId),
    /// A channel that its program has left may be empty.
    MayBeEmpty(GuestIdx, ChannelIdx),
    /// The words of a guest's channel contradict the protocol.
    Fault(GuestIdx, EndId, PairFault),
}

/// All regions and control connections.
#[derive(Debug, Default)]
pub(crate) struct QueuePairs {
    regions: HashMap<GuestIdx, GuestRegion>,
    controls: HashMap<ConnId, Control>,
    /// What is to be done after the present move.
    news: Vec<News>,
    /// Channels whose programs are gone, and until when what they have written is delivered. The
    /// earliest is first. The number tells a channel from the same one in another use.
    draining: VecDeque<(Instant, GuestIdx, ChannelIdx, u64)>,
    /// Largest number of a use in regions that are gone. The next region of the same guest, or of
    /// another guest with the same index, goes on from it.
    newest: u64,
    /// The guest of the end that was patrolled last.
    last_patrolled: Option<GuestIdx>,
}

/// Tells whether an address is that of the service.
pub(crate) fn is_service(address: Address) -> bool {
    address.cid == Cid::HOST && address.port == SERVICE_PORT
}

/// Regions and channels.
impl QueuePairs {
    /// A guest's region.
    pub(crate) fn region(&self, guest: GuestIdx) -> Option<&GuestRegion> {
        self.regions.get(&guest)
    }

    /// A guest's region, to change which channels are in use.
    pub(crate) fn region_mut(&mut self, guest: GuestIdx) -> Option<&mut GuestRegion> {
        self.regions.get_mut(&guest)
    }

    /// Sets the region of a guest. Nothing may be attached to the one before.
    pub(crate) fn set_region(&mut self, guest: GuestIdx, mut region: GuestRegion) {
        self.remove_region(guest);
        region.number_after(self.newest);
        self.regions.insert(guest, region);
    }

    /// Forgets the region of a guest that is removed.
    pub(crate) fn remove_region(&mut self, guest: GuestIdx) {
        if let Some(region) = self.regions.remove(&guest) {
            self.newest = self.newest.max(region.newest());
        }
    }

    /// The channel that a side of a connection is attached to.
    pub(crate) fn end(&mut self, connection: &Connection, side: Side) -> Option<&mut AttachedEnd> {
        let channel = connection.channels[side]?;
        let Party::Guest(guest) = connection.ends[side].party else { return None };
        let end = self.regions.get_mut(&guest)?.end_mut(channel)?;
        end.is_of(connection, side).then_some(end)
    }

    /// The channels that both sides of a connection between guests are attached to.
    pub(crate) fn both_ends(
        &mut self,
        connection: &Connection,
        side: Side,
    ) -> Option<(&mut AttachedEnd, &mut AttachedEnd)> {
        let sides = [side, side.other()];
        let [Some(one), Some(other)] = sides.map(|side| connection.channels[side]) else { return None };
        let [Party::Guest(a), Party::Guest(b)] = sides.map(|side| connection.ends[side].party) else {
            return None;
        };
        // No guest is at both ends.
        if a == b {
            return None;
        }
        let [Some(one_region), Some(other_region)] = self.regions.get_disjoint_mut([&a, &b]) else {
            return None;
        };
        let (one, other) = (one_region.end_mut(one)?, other_region.end_mut(other)?);
        (one.is_of(connection, side) && other.is_of(connection, side.other())).then_some((one, other))
    }

    /// All attached ends, with their guests and channels.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (GuestIdx, ChannelIdx, &AttachedEnd)> {
        let ends = |(&guest, region): (&GuestIdx, _)| {
            GuestRegion::ends(region).map(move |(channel, end)| (guest, channel, end))
        };
        self.regions.iter().flat_map(ends)
    }

    /// Number of attached ends.
    pub(crate) fn attached(&self) -> usize {
        self.regions.values().map(GuestRegion::attached).sum()
    }

    /// Takes at most `most` ends to be patrolled, none of which was patrolled less than a `period`
    /// before `now`. Guests take turns with one end each: how long the round of a guest takes
    /// depends on its own ends and on the number of guests, not on how many ends those have.
    pub(crate) fn next_to_patrol(
        &mut self,
        most: usize,
        period: Duration,
        now: Instant,
    ) -> Vec<(GuestIdx, ChannelIdx)> {
        let mut guests: Vec<_> = self.regions.keys().copied().collect();
        guests.sort_unstable();
        let first = guests.partition_point(|&guest| Some(guest) <= self.last_patrolled);
        guests.rotate_left(first);
        let mut guests = VecDeque::from(guests);
        let mut ends = Vec::new();
        while ends.len() < most
            && let Some(guest) = guests.pop_front()
        {
            let region = self.regions.get_mut(&guest);
            if let Some(channel) = region.and_then(|region| region.next_to_patrol(period, now)) {
                ends.push((guest, channel));
                self.last_patrolled = Some(guest);
                guests.push_back(guest);
            }
        }
        ends
    }
}

/// Control connections.
impl QueuePairs {
    pub(crate) fn add_control(&mut self, id: ConnId, control: Control) {
        self.controls.insert(id, control);
    }

    pub(crate) fn control(&mut self, id: ConnId) -> Option<&mut Control> {
        self.controls.get_mut(&id)
    }

    pub(crate) fn remove_control(&mut self, id: ConnId) {
        self.controls.remove(&id);
    }

    /// All control connections.
    pub(crate) fn controls(&self) -> impl Iterator<Item = (ConnId, &Control)> {
        self.controls.iter().map(|(&id, control)| (id, control))
    }
}

/// News, and channels whose programs are gone.
impl QueuePairs {
    /// Notes something that is to be done after the present move.
    pub(crate) fn note(&mut self, news: News) {
        if self.news.last() != Some(&news) {
            self.news.push(news);
        }
    }

    /// Tells whether there is something to do after a move.
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Notes that the program of a channel is to look at its rings.
    pub(crate) fn signal(&mut self, control: Option<ConnId>) {
        if let Some(control) = control {
            self.note(News::Signal(control));
        }
    }

    /// Takes the news since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Notes the channels that a connection's sides have left: something of it was handed over or
    /// discarded.
    pub(crate) fn note_left(&mut self, connection: &Connection) {
        for side in Side::BOTH.into_iter().filter(|&side| connection.has_left[side]) {
            if let (Some(channel), Party::Guest(guest)) =
                (connection.channels[side], connection.ends[side].party)
            {
                self.note(News::MayBeEmpty(guest, channel));
            }
        }
    }

    /// Limits the time for which what is left in a channel is delivered, unless it is limited
    /// already.
    pub(crate) fn drain(&mut self, guest: GuestIdx, channel: ChannelIdx, now: Instant) {
        let end = self.regions.get_mut(&guest).and_then(|region| region.end_mut(channel));
        if let Some(end) = end
            && !std::mem::replace(&mut end.drains, true)
        {
            self.draining.push_back((now + MAX_DRAIN, guest, channel, end.number));
        }
    }

    /// Takes a channel in which something is left and whose time is over.
    pub(crate) fn due_drain(&mut self, now: Instant) -> Option<(GuestIdx, ChannelIdx)> {
        while let Some(&(_, guest, channel, number)) = self.draining.front().filter(|(at, ..)| *at <= now) {
            self.draining.pop_front();
            let end = self.regions.get(&guest).and_then(|region| region.end(channel));
            if end.is_some_and(|end| end.number == number && end.control.is_none()) {
                return Some((guest, channel));
            }
        }
        None
    }

    /// Time at which [`Self::due_drain`] is to be asked next.
    pub(crate) fn next_drain(&self) -> Option<Instant> {
        self.draining.front().map(|(at, ..)| *at)
    }
}
