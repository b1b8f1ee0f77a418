//! The plain case of a data call, in few instructions: the ring has what the call needs, nobody
//! else uses it just now, and nothing but bytes has come and gone on the connection.
//!
//! In all other cases each function here returns `None` and has done nothing. Then [`super::calls`]
//! or [`super::polls`] decide.

use std::os::fd::RawFd;

use taut_queue_pair::Direction;

use super::events::{READABLE, WRITABLE};
use super::input::Input;
use super::output::Output;
use super::record::Pair;
use crate::state::TABLE;
use crate::sys::{Pieces, Room, are_faults_handled, briefly, tick};

/// Receives bytes. The program has asked for nothing but bytes.
#[inline]
pub(crate) fn receive_plainly(fd: RawFd, room: &mut Room<'_>) -> Option<usize> {
    if are_faults_handled() {
        return None;
    }
    briefly(None, || {
        let pair = Pair::now(fd)?;
        if !pair.reads_plainly() {
            return None;
        }
        Input::try_lock(&pair)?.take_plainly(room)
    })
}

/// Sends bytes.
#[inline]
pub(crate) fn send_plainly(fd: RawFd, pieces: &Pieces<'_>) -> Option<usize> {
    if are_faults_handled() {
        return None;
    }
    briefly(None, || {
        let pair = Pair::now(fd)?;
        if !pair.writes_plainly() {
            return None;
        }
        Output::try_lock(&pair)?.put_plainly(pieces)
    })
}

/// The events of a descriptor, of those that a program waits for. `others` gets the first
/// descriptor of which only the kernel knows. Takes no lock.
#[inline]
pub(super) fn events_of(fd: RawFd, wanted: i16, others: &mut Option<RawFd>) -> Option<i16> {
    match Pair::now(fd) {
        Some(pair) => plain_events(&pair, wanted),
        None if super::concerns(fd) || TABLE.is_first_level(fd) => None,
        None => {
            others.get_or_insert(fd);
            Some(0)
        }
    }
}

/// Tells whether a call that has found something need not ask the kernel about the others.
pub(super) fn may_skip(others: Option<RawFd>) -> bool {
    others.is_none_or(|fd| TABLE.may_skip(fd, tick()))
}

/// The events of a connection, of those that a program waits for. Takes no lock.
#[inline]
pub(super) fn plain_events(pair: &Pair, wanted: i16) -> Option<i16> {
    if pair.has_left() || !pair.reads_plainly() || !pair.writes_plainly() {
        return None;
    }
    let mut events = 0;
    if wanted & READABLE != 0 && pair.used(Direction::In)? > 0 {
        events |= READABLE;
    }
    if wanted & WRITABLE != 0 && pair.used(Direction::Out)? <= pair.channel.ring_len() / 2 {
        events |= WRITABLE;
    }
    Some(events & wanted)
}
