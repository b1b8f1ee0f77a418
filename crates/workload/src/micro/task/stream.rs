//! The client of TCP bulk transfer.

use std::time::{Duration, Instant};

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;

use super::connection::send;
use super::{CONNECT_TIMEOUT, Next, Report, Task, buffer_size, connection_failed, route};
use crate::agent::protocol::{TcpStream, Throughput};
use crate::micro::nic::Nic;
use crate::wire::Opening;

/// How long after the end confirmations are waited for: buffers must drain first.
const GRACE: Duration = Duration::from_secs(10);

/// One or more connections that send at the same time.
pub(in crate::micro) struct StreamTask {
    wanted: TcpStream,
    report: Report<Throughput>,
    /// Index of the vNIC, once begun.
    nic: usize,
    sessions: Vec<Session>,
    /// When what is being waited for must have come.
    patience: Option<Instant>,
    /// Begin and end of sending.
    run: Option<(Instant, Instant)>,
}

struct Session {
    handle: SocketHandle,
    /// Bytes of the current send that the socket has not taken yet.
    unsent: usize,
    closed: bool,
    confirmation: [u8; 8],
    confirmed: usize,
}

impl Session {
    fn is_done(&self) -> bool {
        self.confirmed == self.confirmation.len()
    }

    /// Sends, or reads the confirmation; true if anything moved.
    fn poll(&mut self, socket: &mut tcp::Socket<'_>, send_size: usize, over: bool) -> bool {
        if self.is_done() {
            return false;
        }
        if over {
            let first = !self.closed;
            if first {
                socket.close();
                self.closed = true;
            }
            let read = socket.recv_slice(&mut self.confirmation[self.confirmed..]).unwrap_or(0);
            self.confirmed += read;
            return first || read > 0;
        }
        let mut moved = false;
        while socket.can_send() {
            if self.unsent == 0 {
                self.unsent = send_size;
            }
            self.unsent -= send(socket, self.unsent);
            moved = true;
        }
        moved
    }
}

impl StreamTask {
    pub(in crate::micro) fn new(wanted: TcpStream, report: Report<Throughput>) -> Self {
        Self { wanted, report, nic: 0, sessions: vec![], patience: None, run: None }
    }

    fn fail(&mut self, nics: &mut [Nic], how: &str) -> Next {
        self.stop(nics);
        self.report.end(Err(connection_failed(self.wanted.to, self.wanted.port, how)))
    }

    /// Connects one session after the other, then begins.
    fn connect(&mut self, nics: &mut [Nic], now: Instant) -> Next {
        if let Some(newest) = self.sessions.last() {
            let socket = nics[self.nic].tcp(newest.handle);
            if !socket.may_send() {
                return match self.patience {
                    _ if !socket.is_open() => self.fail(nics, "was refused"),
                    Some(until) if now < until => Next::At(until),
                    _ => self.fail(nics, "timed out"),
                };
            }
            // The buffer is empty, so it fits.
            let _ = socket.send_slice(&Opening::Stream { receive: self.wanted.receive_size }.encode());
        } else {
            match route(nics, self.wanted.to) {
                Ok(index) => self.nic = index,
                Err(error) => return self.report.end(Err(error)),
            }
        }
        if self.sessions.len() == self.wanted.sessions as usize {
            self.report.started();
            let begun = Instant::now();
            let until = begun + Duration::from_millis(self.wanted.duration_ms);
            self.run = Some((begun, until));
            self.patience = Some(until + GRACE);
            return Next::Again;
        }
        let TcpStream { to, port, socket_size, .. } = self.wanted;
        let Some(handle) = nics[self.nic].connect_tcp(to, port, buffer_size(socket_size)) else {
            return self.fail(nics, "is not possible");
        };
        self.sessions.push(Session { handle, unsent: 0, closed: false, confirmation: [0; 8], confirmed: 0 });
        self.patience = Some(now + CONNECT_TIMEOUT);
        Next::Again
    }

    fn finish(&mut self, nics: &mut [Nic], begun: Instant) -> Next {
        let elapsed_us = begun.elapsed().as_micros() as u64;
        let sessions: Vec<u64> =
            self.sessions.iter().map(|session| u64::from_be_bytes(session.confirmation)).collect();
        for session in self.sessions.drain(..) {
            nics[self.nic].close(session.handle);
        }
        // Sums of what servers claim: they may claim anything.
        let bytes = sessions.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        self.report.end(Ok(Throughput { bytes, elapsed_us, sessions }))
    }
}

impl Task for StreamTask {
    fn poll(&mut self, nics: &mut [Nic], now: Instant) -> Next {
        let Some((begun, until)) = self.run else { return self.connect(nics, now) };
        let over = now >= until;
        let nic = &mut nics[self.nic];
        let mut moved = false;
        let mut broken = false;
        for session in &mut self.sessions {
            let socket = nic.tcp(session.handle);
            moved |= session.poll(socket, self.wanted.send_size as usize, over);
            broken |= !session.is_done() && !socket.may_recv();
        }
        if self.sessions.iter().all(Session::is_done) {
            return self.finish(nics, begun);
        }
        if broken {
            return self.fail(nics, "was ended by the server");
        }
        match self.patience {
            Some(patience) if now >= patience => self.fail(nics, "did not drain: bytes were never confirmed"),
            _ if moved => Next::Again,
            Some(patience) => Next::At(if over { patience } else { until }),
            None => Next::At(until),
        }
    }

    fn stop(&mut self, nics: &mut [Nic]) {
        for session in self.sessions.drain(..) {
            nics[self.nic].abort(session.handle);
        }
    }
}
