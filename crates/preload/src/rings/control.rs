//! The two sockets of a connection with a channel: what is sent and received there besides bytes of
//! the stream.

use std::sync::atomic::Ordering::SeqCst;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use taut_queue_pair::message::GIVE_UP;

use super::record::{Pair, Stop};
use super::words::flag;
use crate::hidden::is_there;
use crate::state::TABLE;
use crate::sys::at;
use crate::table::Way;

/// Most signals that are counted at once.
pub(super) const MOST_SIGNALS: usize = 64;

impl Pair {
    /// Asks the fabric to look at the channel. If the socket is full, it was asked already. Returns
    /// false if this process cannot ask, since it has closed a number unseen: then another process
    /// that has the connection has to.
    pub(super) fn bell(&self) -> bool {
        loop {
            match at(self.control)
                .and_then(|socket| send(socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL))
            {
                Ok(_) | Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                Err(Errno::BADF | Errno::NOTSOCK) => {
                    self.on_closed_number();
                    return false;
                }
                Err(_) => {
                    self.set(flag::ENDED);
                    return true;
                }
            }
        }
    }

    /// Handles a number of this process that is closed, or is another file by now: forgets the
    /// channel of the connection's number. If the kernel tells that this number is still open, only
    /// that of the control connection is gone. Then ends the connection, also for other processes
    /// that have it.
    pub(super) fn on_closed_number(&self) {
        let is_known = matches!(TABLE.way(self.fd), Way::Channel(index) if index == self.channel.index())
            && TABLE.cookie(self.fd) == Some(self.cookie());
        // After a close through the library the table has changed, and the next step of the call
        // finds that.
        if !is_known {
            return;
        }
        if self.is_open() == Some(true) {
            // The program has closed the control connection alone, by a system call.
            self.set(flag::ENDED);
        } else {
            super::leave::forget(self.fd);
        }
    }

    /// Ends the use of the channel because its words cannot be believed. The fabric resets the
    /// connection, and the next call of the program is told of it.
    pub(super) fn give_up(&self) {
        if !self.set(flag::FAULT)
            && is_there(self.control)
            && let Ok(control) = at(self.control)
        {
            let _ = send(control, &[GIVE_UP], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            let _ = shutdown(control, Shutdown::Both);
        }
    }

    /// As [`Self::give_up`], in a call that is told of it at once.
    pub(super) fn fail(&self) -> Stop {
        self.give_up();
        self.reset()
    }

    /// The error of a call after a reset: told once, as with TCP.
    pub(super) fn reset(&self) -> Stop {
        Stop::Failed(if self.set(flag::TOLD) { Errno::PIPE } else { Errno::CONNRESET })
    }

    /// Has the next call told of a reset again, since the present one succeeds with the bytes that
    /// it has moved before.
    pub(super) fn take_back_reset(&self) {
        self.unset(flag::TOLD);
    }

    /// Tells whether the peer still receives: nothing is sent, but the kernel checks the connection
    /// first.
    pub(super) fn peer_receives(&self) -> bool {
        let sent =
            at(self.fd).and_then(|stream| send(stream, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL));
        if matches!(sent, Err(Errno::BADF | Errno::NOTSOCK)) {
            self.on_closed_number();
            return true;
        }
        matches!(sent, Ok(_) | Err(Errno::AGAIN | Errno::INTR))
    }

    /// Number of signals that have come, at most [`MOST_SIGNALS`]. They stay.
    pub(super) fn count_signals(&self) -> usize {
        self.receive_signals(MOST_SIGNALS, RecvFlags::PEEK)
    }

    /// Takes at most this number of signals. Returns how many there were.
    pub(super) fn take_signals(&self, count: usize) -> usize {
        let taken = self.receive_signals(count, RecvFlags::empty());
        self.unread_signals().store(0, SeqCst);
        taken
    }

    fn receive_signals(&self, most: usize, flags: RecvFlags) -> usize {
        let mut bytes = [0; MOST_SIGNALS];
        let Some(bytes) = bytes.get_mut(..most).filter(|bytes| !bytes.is_empty()) else { return 0 };
        loop {
            match at(self.control).and_then(|control| recv(control, &mut *bytes, RecvFlags::DONTWAIT | flags))
            {
                Ok((_, count)) if count > 0 => return count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return 0,
                Err(Errno::BADF | Errno::NOTSOCK) => {
                    self.on_closed_number();
                    return 0;
                }
                _ => {
                    self.set(flag::ENDED);
                    return 0;
                }
            }
        }
    }
}
