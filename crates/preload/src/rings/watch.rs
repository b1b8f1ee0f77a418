//! The watch of an epoll instance on a connection with a channel.
//!
//! The instance watches the stream's own socket and the control connection, at their edges, with
//! data of the library. Each event of these only means that the rings have to be looked at. The
//! program's events and data are in the table.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::attach::is_attached;
use super::leave::leave;
use super::nested::is_nested;
use super::record::Pair;
use crate::hidden::is_there;
use crate::state::TABLE;
use crate::sys::at;
use crate::table::{Edge, Watch};

/// Upper half of the library's data. Programs use pointers and small numbers.
const MARK: u64 = 0x7461_7574 << 32;
/// Bit of the control connection's data.
const CONTROL: u64 = 1 << 31;

/// The socket of a queue pair that has an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marked {
    /// The connection.
    pub(super) fd: RawFd,
    /// True for the control connection.
    pub(super) is_control: bool,
}

impl Marked {
    fn data(self) -> EventData {
        EventData::new_u64(MARK | if self.is_control { CONTROL } else { 0 } | u64::from(self.fd as u32))
    }

    /// The socket that an event is about; `None` for an event of the program.
    pub(super) fn of(data: u64) -> Option<Self> {
        if data & !0xffff_ffff != MARK {
            return None;
        }
        Some(Self { fd: (data & (CONTROL - 1)) as RawFd, is_control: data & CONTROL != 0 })
    }
}

/// Events of the stream's own socket. It is writable, so that each change of the watch is an event:
/// a thread that waits already looks at the rings again.
fn of_stream() -> EventFlags {
    EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET
}

/// Prepares an operation of the program with an epoll instance. Returns true if [`control`] has to
/// do it.
pub(crate) fn is_watched_here(epoll: RawFd, operation: i32, fd: RawFd, events: u32) -> bool {
    if !super::concerns(fd) || !is_attached(fd) {
        return false;
    }
    if Pair::of(fd).is_none() {
        super::leave::forget(fd);
        return false;
    }
    let watch = TABLE.watch(fd);
    let is_second = operation == libc::EPOLL_CTL_ADD && !matches!(watch, Ok(None))
        || matches!(watch, Ok(Some(watch)) if TABLE.root(watch.epoll) != TABLE.root(epoll));
    let is_exclusive = events & libc::EPOLLEXCLUSIVE.cast_unsigned() != 0;
    if is_second
        && operation == libc::EPOLL_CTL_ADD
        && matches!(watch, Ok(Some(watch)) if TABLE.root(watch.epoll) == TABLE.root(epoll))
    {
        // The kernel refuses it, or the watch has ended unseen.
        return true;
    }
    if watch.is_err() || is_second || is_exclusive || TABLE.is_duplicated(fd) || is_nested(epoll) {
        leave(fd);
        return false;
    }
    true
}

/// Does what the program has asked an epoll instance for.
pub(crate) fn control(operation: i32, fd: RawFd, watch: Watch) -> Result<(), Errno> {
    let (instance, stream) = (at(watch.epoll)?, at(fd)?);
    let data = Marked { fd, is_control: false }.data();
    // The stream's socket comes last, or is set again at the end: its event has a thread that waits
    // already look.
    match operation {
        libc::EPOLL_CTL_ADD => {
            if matches!(TABLE.watch(fd), Ok(Some(_))) {
                // The kernel refuses a second watch. It accepts this one if the watch in the table
                // has ended unseen.
                epoll::add(instance, stream, data, of_stream())?;
                TABLE.watched(fd, watch);
                if !add_control(instance, fd) {
                    leave(fd);
                    return Ok(());
                }
                return look_again(fd, watch);
            }
            TABLE.watched(fd, watch);
            let is_added = add_control(instance, fd);
            if let Err(error) = epoll::add(instance, stream, data, of_stream()) {
                remove_control(instance, fd);
                TABLE.unwatched(fd, watch.epoll);
                return Err(error);
            }
            if !is_added {
                leave(fd);
            }
        }
        libc::EPOLL_CTL_MOD => {
            let edge = TABLE.edge(fd);
            if !edge.has(Edge::WATCHED) || !matches!(TABLE.watch(fd), Ok(Some(_))) {
                // Not watched: the kernel says so.
                epoll::modify(instance, stream, data, of_stream())?;
                TABLE.watched(fd, watch);
                if !add_control(instance, fd) {
                    leave(fd);
                }
                return Ok(());
            }
            TABLE.watched(fd, watch);
            TABLE.change_edge(fd, Edge::FRESH.and(Edge::ROOM), Edge::SPENT.and(Edge::ENDED));
            if TABLE.waiting_for(watch.epoll) > 0 {
                look_again(fd, watch)?;
            }
        }
        _ => {
            epoll::delete(instance, stream)?;
            remove_control(instance, fd);
            TABLE.unwatched(fd, watch.epoll);
        }
    }
    Ok(())
}

/// Has a thread that waits for the instance look at the rings.
pub(super) fn look_again(fd: RawFd, watch: Watch) -> Result<(), Errno> {
    epoll::modify(at(watch.epoll)?, at(fd)?, Marked { fd, is_control: false }.data(), of_stream())
}

fn remove_control(instance: BorrowedFd<'_>, fd: RawFd) {
    if let Some(control) = TABLE.control(fd).filter(|control| is_there(*control))
        && let Ok(control) = at(control)
    {
        let _ = epoll::delete(instance, control);
    }
    TABLE.end_edge(fd);
}

fn add_control(instance: BorrowedFd<'_>, fd: RawFd) -> bool {
    let data = Marked { fd, is_control: true }.data();
    let events = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    let Some(control) = TABLE.control(fd).filter(|control| is_there(*control)) else { return false };
    let set = Edge::WATCHED.and(Edge::OWN).and(Edge::FRESH).and(Edge::ROOM);
    TABLE.change_edge(fd, set, Edge::SPENT.and(Edge::ENDED));
    let added = at(control).and_then(|control| epoll::add(instance, control, data, events));
    matches!(added, Ok(()) | Err(Errno::EXIST))
}

/// Takes over the watch on a connection that has just got a channel. Returns false if that fails.
pub(super) fn take_over(fd: RawFd) -> bool {
    let Ok(Some(watch)) = TABLE.watch(fd) else { return true };
    if is_nested(watch.epoll) {
        return false;
    }
    let (Ok(instance), Ok(stream)) = (at(watch.epoll), at(fd)) else { return false };
    let is_added = add_control(instance, fd);
    if epoll::modify(instance, stream, Marked { fd, is_control: false }.data(), of_stream()).is_ok() {
        return is_added;
    }
    // The instance or the watch was removed without the library noticing.
    remove_control(instance, fd);
    TABLE.unwatched(fd, watch.epoll);
    true
}

/// Gives the watch back to the kernel, when a connection leaves its channel.
pub(super) fn hand_back(fd: RawFd) {
    let edge = TABLE.edge(fd);
    if !edge.has(Edge::WATCHED) {
        return;
    }
    TABLE.end_edge(fd);
    let Ok(Some(watch)) = TABLE.watch(fd) else { return };
    let (Ok(instance), Ok(stream)) = (at(watch.epoll), at(fd)) else { return };
    let spent = edge.has(Edge::SPENT);
    let events = if spent { EventFlags::empty() } else { EventFlags::from_bits_retain(watch.events) };
    let _ = epoll::modify(instance, stream, EventData::new_u64(watch.data), events);
    remove_control(instance, fd);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_data_are_told_from_a_programs() {
        for fd in [0, 5, 65_535] {
            for is_control in [false, true] {
                let marked = Marked { fd, is_control };
                assert_eq!(Marked::of(marked.data().u64()), Some(marked));
            }
        }
        for data in [0, 5, u64::MAX, 0x7fff_1234_5678_9abc, u64::from(u32::MAX)] {
            assert_eq!(Marked::of(data), None, "{data:x}");
        }
    }
}
