//! Chooses the events of watched connections with channels that `epoll_wait` reports, and ensures
//! that only one thread reports each edge or `EPOLLONESHOT` event.

use std::os::fd::RawFd;

use libc::epoll_event;
use taut_queue_pair::Direction;

use super::plain::plain_events;
use super::record::Pair;
use crate::state::TABLE;
use crate::table::{Edge, Watch, Way};

/// Records that a write has found too little room, so that room is the next event. Returns false if
/// that was recorded already, or nothing watches the connection.
pub(super) fn lacks_room(fd: RawFd) -> bool {
    TABLE.edge(fd).has(Edge::WATCHED) && !TABLE.change_edge(fd, Edge::ROOM, Edge::NONE).has(Edge::ROOM)
}

/// Records that a packet has come, which the ring does not show.
pub(super) fn has_packet(fd: RawFd) {
    TABLE.change_edge(fd, Edge::FRESH, Edge::NONE);
}

/// The events of a watched connection that are to be reported now, and 0 if there are none.
pub(super) fn due(fd: RawFd, watch: Watch, pair: &Pair) -> u32 {
    if TABLE.edge(fd).has(Edge::SPENT) { 0 } else { news(fd, watch, pair, events_of(pair, watch)) }
}

/// The events of a watched connection that are to be reported now, if nothing but bytes has come
/// and gone on it; `None` otherwise.
pub(super) fn due_plainly(fd: RawFd, watch: Watch, pair: &Pair) -> Option<u32> {
    let events = plain_events(pair, watch.events as i16)?;
    Some(if TABLE.edge(fd).has(Edge::SPENT) { 0 } else { news(fd, watch, pair, bits(events)) })
}

/// Tells whether an event of a watched connection would be reported if there were one now.
pub(super) fn would_be_due(fd: RawFd, watch: Watch, pair: &Pair, events: i16) -> bool {
    !TABLE.edge(fd).has(Edge::SPENT) && news(fd, watch, pair, bits(events)) != 0
}

/// The event of a connection that is due, if the caller is to report it. `None` if another thread
/// does.
pub(super) fn take(fd: RawFd, watch: Watch, events: u32, pair: &Pair) -> Option<epoll_event> {
    if watch.events & libc::EPOLLONESHOT.cast_unsigned() != 0 {
        return take_only(fd, pair);
    }
    take_edge(fd, watch, events, pair).then_some(epoll_event { events, u64: watch.data })
}

/// Takes the only event of a watch with `EPOLLONESHOT`. What is due is looked at anew: since the
/// caller has looked, another thread may have reported it and the program may have set the watch
/// again.
fn take_only(fd: RawFd, pair: &Pair) -> Option<epoll_event> {
    loop {
        let before = TABLE.change_edge(fd, Edge::TAKING, Edge::NONE);
        if before.has(Edge::TAKING) {
            return None;
        }
        let watch = TABLE.watch(fd).ok().flatten().filter(|_| !before.has(Edge::SPENT));
        if let Some(watch) = watch {
            let events = news(fd, watch, pair, events_of(pair, watch));
            if events != 0 && take_edge(fd, watch, events, pair) {
                TABLE.change_edge(fd, Edge::SPENT, Edge::TAKING);
                return Some(epoll_event { events, u64: watch.data });
            }
        }
        TABLE.change_edge(fd, Edge::NONE, Edge::TAKING);
        // Other threads have not reported what has come meanwhile.
        if due(fd, watch?, pair) == 0 {
            return None;
        }
    }
}

/// Records that events are reported. Returns false if the watch is for edges (`EPOLLET`) and
/// another thread has reported this one.
fn take_edge(fd: RawFd, watch: Watch, events: u32, pair: &Pair) -> bool {
    if watch.events & libc::EPOLLET.cast_unsigned() == 0 {
        return true;
    }
    let (has_ended, has_room) = (pair.has_ended(), events & ROOM != 0);
    let before = TABLE.change_edge(
        fd,
        if has_ended { Edge::ENDED } else { Edge::NONE },
        if has_room { Edge::FRESH.and(Edge::ROOM) } else { Edge::FRESH },
    );
    let head = pair.channel.load(Direction::In.head());
    TABLE.swap_reported(fd, head) != head
        || before.has(Edge::FRESH)
        || has_room && before.has(Edge::ROOM)
        || has_ended && !before.has(Edge::ENDED)
}

/// Events that say that there is room.
const ROOM: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM).cast_unsigned();

/// Events as epoll has them.
fn bits(events: i16) -> u32 {
    u32::from(events.cast_unsigned())
}

/// The events of a connection, of those that are watched; 0 if it has no channel any more.
fn events_of(pair: &Pair, watch: Watch) -> u32 {
    if !matches!(TABLE.way(pair.fd), Way::Channel(_)) {
        return 0;
    }
    pair.events(watch.events as i16).map_or(0, bits)
}

/// Those of a connection's events that are to be reported: all, or at an edge only (`EPOLLET`).
fn news(fd: RawFd, watch: Watch, pair: &Pair, events: u32) -> u32 {
    if events == 0 || watch.events & libc::EPOLLET.cast_unsigned() == 0 {
        return events;
    }
    let edge = TABLE.edge(fd);
    let (room, rest) = (events & ROOM, events & !ROOM);
    let is_news = pair.channel.load(Direction::In.head()) != TABLE.reported(fd)
        || edge.has(Edge::FRESH)
        || pair.has_ended() && !edge.has(Edge::ENDED);
    if rest != 0 && is_news || room != 0 && edge.has(Edge::ROOM) { events } else { 0 }
}
