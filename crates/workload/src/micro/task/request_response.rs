//! The client of TCP request/response.

use std::time::{Duration, Instant};

use smoltcp::iface::SocketHandle;

use super::connection::{send, skip};
use super::{CONNECT_TIMEOUT, Next, Report, Task, buffer_size, connection_failed, route};
use crate::agent::protocol::{Latency, TcpRr};
use crate::latencies::Latencies;
use crate::micro::nic::Nic;
use crate::wire::Opening;

/// How long after the end the last response is waited for.
const GRACE: Duration = Duration::from_secs(1);

/// One connection, one request at a time.
pub(in crate::micro) struct RequestResponseTask {
    wanted: TcpRr,
    report: Report<Latency>,
    /// vNIC and socket, once begun.
    socket: Option<(usize, SocketHandle)>,
    connect_until: Option<Instant>,
    run: Option<Running>,
}

struct Running {
    begun: Instant,
    until: Instant,
    /// When the current request was begun.
    asked: Instant,
    unsent: usize,
    missing: usize,
    requests: u64,
    round_trips: Latencies,
    last: Instant,
}

impl RequestResponseTask {
    pub(in crate::micro) fn new(wanted: TcpRr, report: Report<Latency>) -> Self {
        Self { wanted, report, socket: None, connect_until: None, run: None }
    }

    fn connect(&mut self, nics: &mut [Nic], now: Instant) -> Next {
        let TcpRr { to, port, .. } = self.wanted;
        let index = match route(nics, to) {
            Ok(index) => index,
            Err(error) => return self.report.end(Err(error)),
        };
        match nics[index].connect_tcp(to, port, buffer_size(None)) {
            Some(handle) => {
                self.socket = Some((index, handle));
                self.connect_until = Some(now + CONNECT_TIMEOUT);
                Next::Again
            }
            None => self.report.end(Err(connection_failed(to, port, "is not possible"))),
        }
    }

    fn fail(&mut self, nics: &mut [Nic], how: &str) -> Next {
        self.stop(nics);
        self.report.end(Err(connection_failed(self.wanted.to, self.wanted.port, how)))
    }

    fn finish(&mut self, nics: &mut [Nic]) -> Next {
        if let Some((index, handle)) = self.socket.take() {
            nics[index].close(handle);
        }
        let Some(run) = self.run.take() else { return Next::Done };
        self.report.end(Ok(Latency {
            sent: run.requests,
            lost: run.requests - run.round_trips.count(),
            duplicates: 0,
            elapsed_us: (run.last - run.begun).as_micros() as u64,
            rtt_ns: run.round_trips,
        }))
    }
}

impl Task for RequestResponseTask {
    fn poll(&mut self, nics: &mut [Nic], now: Instant) -> Next {
        let Some((index, handle)) = self.socket else { return self.connect(nics, now) };
        let socket = nics[index].tcp(handle);
        let size = self.wanted.size as usize;
        let Some(run) = &mut self.run else {
            if socket.may_send() {
                let opening =
                    Opening::RequestResponse { request: self.wanted.size, response: self.wanted.size };
                // The buffer is empty, so it fits.
                let _ = socket.send_slice(&opening.encode());
                self.report.started();
                let begun = Instant::now();
                self.run = Some(Running {
                    begun,
                    until: begun + Duration::from_millis(self.wanted.duration_ms),
                    asked: begun,
                    unsent: size,
                    missing: size,
                    requests: 1,
                    round_trips: Latencies::new(),
                    last: begun,
                });
                return Next::Again;
            }
            return match self.connect_until {
                _ if !socket.is_open() => self.fail(nics, "was refused"),
                Some(until) if now < until => Next::At(until),
                _ => self.fail(nics, "timed out"),
            };
        };
        let sent = send(socket, run.unsent);
        run.unsent -= sent;
        let received = skip(socket, run.missing);
        run.missing -= received;
        if run.missing == 0 {
            run.last = Instant::now();
            run.round_trips.record(run.last - run.asked);
            if run.last >= run.until {
                return self.finish(nics);
            }
            (run.asked, run.unsent, run.missing) = (run.last, size, size);
            run.requests += 1;
            run.unsent -= send(socket, run.unsent);
            return Next::Again;
        }
        if !socket.may_recv() {
            return self.fail(nics, "was ended by the server");
        }
        let last_call = run.until + GRACE;
        if now >= last_call {
            return self.finish(nics);
        }
        if sent + received > 0 { Next::Again } else { Next::At(last_call) }
    }

    fn stop(&mut self, nics: &mut [Nic]) {
        if let Some((index, handle)) = self.socket.take() {
            nics[index].abort(handle);
        }
    }
}
