//! One end of a connection, and what operations on it return, as text.

use std::io::{IoSliceMut, Read as _};
use std::mem::ManuallyDrop;
use std::net::TcpStream;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::operation::{Kind, Operation};
use super::writes::{self, fill};
use crate::calls::{
    close, dup, epoll, epoll_ctl, epoll_wait, fcntl, in_child, linger_reset, pipe, poll, receive_timeout,
    recv, select_readable, select_writable, send, setsockopt, shutdown, splice, stream_of, unread,
};

/// Longest time until bytes or the end of a stream are seen.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit of a read in vain.
const VAIN: Duration = Duration::from_millis(20);
/// Time by which the kernel may round a limit.
const SLACK: Duration = Duration::from_millis(4);
/// Size of the buffer for sending.
const BUFFER: i32 = 200_000;
/// Bytes of one read of many.
const PIECE: usize = 64 << 10;
const EVENTS: i32 = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP;

/// One end of a connection.
pub(super) struct End {
    fd: RawFd,
    /// Directions of what it sends and of what it receives.
    out: u8,
    sent: usize,
    received: usize,
    watch: Option<OwnedFd>,
}

impl End {
    /// Takes an end. `out` names the direction of what it sends.
    pub(super) fn new(stream: TcpStream, out: u8) -> Self {
        let fd = stream.into_raw_fd();
        // TCP's own sizes depend on the network. These have room for all that is on its way.
        setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, BUFFER).unwrap();
        Self { fd, out, sent: 0, received: 0, watch: None }
    }

    pub(super) fn execute(&mut self, Operation { kind, count }: Operation) -> String {
        match kind {
            Kind::Read => self.receive(count, 0),
            Kind::ReadAll => self.receive(count, libc::MSG_WAITALL),
            Kind::ReadNow => self.receive(count, libc::MSG_DONTWAIT),
            Kind::Peek => self.receive(count, libc::MSG_PEEK),
            Kind::ReadPieces => self.read_pieces(count),
            Kind::ChildReads => self.child_reads(count),
            Kind::SpliceOut => self.splice_out(count),
            Kind::ReadInVain => self.read_in_vain(),
            Kind::Poll => {
                format!("{:#x}", poll(self.fd, libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP, 0))
            }
            Kind::Select => format!("{} {}", select_readable(self.fd), select_writable(self.fd)),
            Kind::Unread => unread(self.fd).to_string(),
            Kind::Watch => {
                let instance = epoll();
                let watched =
                    epoll_ctl(instance.as_raw_fd(), libc::EPOLL_CTL_ADD, self.fd, EVENTS, 7).map(drop);
                self.watch = Some(instance);
                format!("{watched:?}")
            }
            Kind::Events => {
                let instance = self.watch.as_ref().map(OwnedFd::as_raw_fd);
                format!("{:x?}", instance.and_then(|instance| epoll_wait(instance, 0)))
            }
            Kind::Unwatch => {
                let Some(instance) = self.watch.take() else { return "not watched".to_owned() };
                format!("{:?}", epoll_ctl(instance.as_raw_fd(), libc::EPOLL_CTL_DEL, self.fd, 0, 0))
            }
            Kind::Nonblocking => {
                format!("{:?}", fcntl(self.fd, libc::F_SETFL, if count > 0 { libc::O_NONBLOCK } else { 0 }))
            }
            Kind::Duplicate => {
                let other = dup(self.fd);
                let closed = close(self.fd);
                self.fd = other;
                format!("{closed:?}")
            }
            Kind::Shutdown => format!("{:?}", shutdown(self.fd, libc::SHUT_WR)),
            Kind::Settle => self.settle(count, false),
            Kind::SettleEnd => self.settle(count, true),
            Kind::Writable => format!("{:#x}", poll(self.fd, libc::POLLOUT, PATIENCE.as_millis() as i32)),
            Kind::Drain => self.drain(count),
            Kind::Fill => self.fill(),
            Kind::Finish => self.finish(),
            Kind::FinishReset => {
                let wait = Instant::now() + PATIENCE;
                let ended = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
                while poll(self.fd, libc::POLLRDHUP, 100) & ended == 0 && Instant::now() < wait {}
                self.finish()
            }
            Kind::Close | Kind::Reset => {
                self.watch = None;
                if kind == Kind::Reset {
                    linger_reset(self.fd);
                }
                format!("{:?}", close(self.fd))
            }
            _ => {
                let outcome = writes::write(kind, self.fd, (self.out, self.sent), count);
                if let Ok(count) = outcome {
                    self.sent += count;
                }
                format!("{outcome:?}")
            }
        }
    }

    /// Says whether bytes that were received are those that were sent.
    fn check(&mut self, bytes: &[u8], takes: bool) -> String {
        let mut expected = vec![0; bytes.len()];
        fill(1 - self.out, self.received, &mut expected);
        if takes {
            self.received += bytes.len();
        }
        format!("{} {}", bytes.len(), if expected == bytes { "right" } else { "WRONG" })
    }

    fn receive(&mut self, count: usize, flags: i32) -> String {
        let mut bytes = vec![0; count];
        match recv(self.fd, &mut bytes, flags) {
            Ok(count) => self.check(&bytes[..count], flags & libc::MSG_PEEK == 0),
            Err(error) => error,
        }
    }

    /// Uses the descriptor as a stream, without owning it.
    fn stream(&self) -> ManuallyDrop<TcpStream> {
        stream_of(self.fd)
    }

    /// Reads until all that was asked for has come, or all that is there. The number of short
    /// results is behind a colon, since it may differ.
    fn read_pieces(&mut self, count: usize) -> String {
        let (mut total, mut right, mut short) = (0, true, 0);
        loop {
            let mut bytes = vec![0; count - total];
            let part = (bytes.len() / 3).max(1).min(bytes.len());
            let (first, rest) = bytes.split_at_mut(part);
            let (second, third) = rest.split_at_mut(part.min(rest.len()));
            let mut pieces = [first, second, third].map(IoSliceMut::new);
            match self.stream().read_vectored(&mut pieces) {
                Ok(got) => {
                    right &= self.check(&bytes[..got], true).ends_with("right");
                    total += got;
                    if got == 0 || total == count || unread(self.fd) == 0 {
                        return format!("{total} {}:{short}", if right { "right" } else { "WRONG" });
                    }
                    short += 1;
                }
                Err(error) => return format!("{}:{short}", super::writes::name(&error)),
            }
        }
    }

    fn child_reads(&mut self, count: usize) -> String {
        let code = in_child(|| {
            let said = self.receive(count, libc::MSG_WAITALL);
            u8::from(said == format!("{count} right"))
        });
        self.received += count;
        format!("child: {code}")
    }

    fn splice_out(&mut self, count: usize) -> String {
        let (from, to) = pipe();
        let mut spliced = splice(self.fd, to.as_raw_fd(), count);
        let end = Instant::now() + PATIENCE;
        while spliced.as_ref().is_err_and(|error| error == "EAGAIN") && Instant::now() < end {
            poll(self.fd, libc::POLLIN, PATIENCE.as_millis() as i32);
            spliced = splice(self.fd, to.as_raw_fd(), count);
        }
        match spliced {
            Ok(count) => {
                let mut bytes = vec![0; count];
                std::fs::File::from(from).read_exact(&mut bytes).unwrap();
                self.check(&bytes, true)
            }
            Err(error) => error,
        }
    }

    fn read_in_vain(&mut self) -> String {
        receive_timeout(self.fd, VAIN.as_millis() as i64).unwrap();
        let begin = Instant::now();
        let said = self.receive(16, 0);
        let waited = begin.elapsed() + SLACK >= VAIN;
        receive_timeout(self.fd, 0).unwrap();
        format!("{said}, waited: {waited}")
    }

    fn settle(&self, count: usize, ended: bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = unread(self.fd);
            let has_ended = poll(self.fd, libc::POLLRDHUP, 0) & libc::POLLRDHUP != 0;
            if usize::try_from(found) == Ok(count) && has_ended == ended {
                return "settled".to_owned();
            }
            if Instant::now() > end {
                return format!("{found} of {count} unread, end: {has_ended} instead of {ended}");
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn drain(&mut self, count: usize) -> String {
        let mut bytes = vec![0; PIECE];
        let (mut done, mut right) = (0, true);
        while done < count {
            let most = PIECE.min(count - done);
            match recv(self.fd, &mut bytes[..most], 0) {
                Ok(0) => return format!("the end after {done} of {count}"),
                Ok(count) => {
                    right &= self.check(&bytes[..count], true).ends_with("right");
                    done += count;
                }
                Err(error) => return format!("{error} after {done} of {count}"),
            }
        }
        format!("all right: {right}")
    }

    /// The number of bytes is behind a colon, since it may differ.
    fn fill(&mut self) -> String {
        let mut total = 0;
        loop {
            let mut bytes = [0; 4096];
            fill(self.out, self.sent, &mut bytes);
            match send(self.fd, &bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) {
                Ok(count) => {
                    self.sent += count;
                    total += count;
                }
                // What was on its way may have made room.
                Err(error) if error == "EAGAIN" && poll(self.fd, libc::POLLOUT, 50) != 0 => {}
                Err(error) => return format!("{error}:{total}"),
            }
        }
    }

    fn finish(&mut self) -> String {
        let mut bytes = vec![0; PIECE];
        let (mut done, mut right) = (0, true);
        loop {
            match recv(self.fd, &mut bytes, 0) {
                Ok(0) => return format!("{done} bytes, all right: {right}, then the end"),
                Ok(count) => {
                    right &= self.check(&bytes[..count], true).ends_with("right");
                    done += count;
                }
                Err(error) => return format!("{done} bytes, all right: {right}, then {error}"),
            }
        }
    }
}
