//! Operations on one end of a connection.

use std::fmt;
use std::str::FromStr;

macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident $name:literal,)*) => {
        /// A kind of operation. Most take a number of bytes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Kind { $($(#[$about])* $kind,)* }

        impl Kind {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$kind,)*];

            pub(super) fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            fn of(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$kind),)* _ => None }
            }
        }
    };
}

kinds! {
    /// `write(2)`.
    Write "write",
    /// `send(2)`.
    Send "send",
    /// `send(2)` with `MSG_DONTWAIT`.
    SendNow "send-now",
    /// `sendmsg(2)` of three pieces.
    SendMessage "sendmsg",
    /// `write(2)` by a forked child.
    ChildWrites "child-writes",
    /// A stream of the C library (`fdopen`).
    StreamWrites "fdopen",
    /// `sendfile(2)`.
    Sendfile "sendfile",
    /// `splice(2)` from a pipe.
    Splice "splice",
    /// Another process writes, which gets the socket in a message.
    Passed "passed",
    /// Another program writes, which a child has become.
    Executed "exec",
    /// Another program writes, started by `posix_spawn` with the socket as its output.
    Spawned "spawn",
    /// `write(2)` to descriptor 0, after `dup2`.
    Standard "stdin",
    /// `recv(2)`.
    Read "read",
    /// `recv(2)` with `MSG_PEEK`.
    Peek "peek",
    /// `recv(2)` with `MSG_WAITALL`.
    ReadAll "read-all",
    /// `recv(2)` with `MSG_DONTWAIT`.
    ReadNow "read-now",
    /// `readv(2)` into three pieces.
    ReadPieces "readv",
    /// `recv(2)` by a forked child.
    ChildReads "child-reads",
    /// `splice(2)` to a pipe.
    SpliceOut "splice-out",
    /// `recv(2)` with a time limit, while there is nothing.
    ReadInVain "read-in-vain",
    /// `poll(2)` for everything, without waiting.
    Poll "poll",
    /// `select(2)`, without waiting.
    Select "select",
    /// `FIONREAD`.
    Unread "unread",
    /// `epoll_ctl(2)`: watches the connection.
    Watch "watch",
    /// `epoll_wait(2)`, without waiting.
    Events "events",
    /// `epoll_ctl(2)`: no longer.
    Unwatch "unwatch",
    /// `O_NONBLOCK`: on unless the number is 0.
    Nonblocking "nonblocking",
    /// `dup(2)`, and the end of the other number.
    Duplicate "dup",
    /// `shutdown(2)` of writing.
    Shutdown "shutdown",
    /// Waits until so many bytes are unread.
    Settle "settle",
    /// Waits until so many bytes are unread, and the end of the stream is behind them.
    SettleEnd "settle-end",
    /// Waits until the connection is writable.
    Writable "writable",
    /// Writes many bytes, waiting for room.
    Flood "flood",
    /// Reads so many bytes, waiting for them.
    Drain "drain",
    /// Writes until that would wait.
    Fill "fill",
    /// Reads until the stream ends or fails.
    Finish "finish",
    /// Waits for the end of the stream or for an error, and then reads all.
    FinishReset "finish-reset",
    /// `close(2)`.
    Close "close",
    /// `close(2)` with `SO_LINGER` and no time: a reset.
    Reset "reset",
}

impl Kind {
    /// Tells whether a connection leaves its queue pair by this.
    pub(super) fn leaves(self) -> bool {
        matches!(
            self,
            Self::StreamWrites
                | Self::Sendfile
                | Self::Splice
                | Self::SpliceOut
                | Self::Passed
                | Self::Executed
                | Self::Spawned
                | Self::Standard
        )
    }
}

/// An operation with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) count: usize,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.count)
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, count) = text.split_once(' ').ok_or("no number")?;
        let kind = Kind::of(name).ok_or_else(|| format!("unknown operation {name}"))?;
        Ok(Self { kind, count: count.trim().parse().map_err(|_| format!("no number: {count}"))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_as_written() {
        for &kind in Kind::ALL {
            let operation = Operation { kind, count: 77 };
            assert_eq!(operation.to_string().parse(), Ok(operation));
        }
        assert!("fly 1".parse::<Operation>().is_err());
        assert!("read x".parse::<Operation>().is_err());
    }
}
