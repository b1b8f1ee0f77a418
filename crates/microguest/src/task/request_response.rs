//! The client of request/response.

use std::time::{Duration, Instant};

use taut_bench::agent::protocol::{Latency, Rr};
use taut_bench::measure::latencies::Latencies;
use taut_bench::wire::Opening;

use super::connection::skip;
use super::{CONNECT_TIMEOUT, Next, RESPONSE_TIMEOUT, Report, Task, buffer_size, connection_failed};
use crate::machine::{Connection, Machine};

/// One connection with one request at a time.
pub(crate) struct RequestResponseTask {
    wanted: Rr,
    report: Report<Latency>,
    /// None before the task has begun.
    connection: Option<Connection>,
    connect_until: Option<Instant>,
    run: Option<Running>,
}

struct Running {
    begun: Instant,
    until: Instant,
    /// When the current request was begun, or is to begin.
    asked: Instant,
    /// When the current request is due, if there is a pace.
    due: Instant,
    unsent: usize,
    missing: usize,
    requests: u64,
    round_trips: Latencies,
    last: Instant,
}

impl RequestResponseTask {
    pub(crate) fn new(wanted: Rr, report: Report<Latency>) -> Self {
        Self { wanted, report, connection: None, connect_until: None, run: None }
    }

    fn connect(&mut self, machine: &mut Machine, now: Instant) -> Next {
        let Rr { to, port, socket_size, .. } = &self.wanted;
        match machine.connect(to, *port, buffer_size(*socket_size)) {
            Ok(connection) => {
                self.connection = Some(connection);
                self.connect_until = Some(now + CONNECT_TIMEOUT);
                Next::Again
            }
            Err(error) => self.report.end(Err(error)),
        }
    }

    fn fail(&mut self, machine: &mut Machine, how: &str) -> Next {
        self.stop(machine);
        self.report.end(Err(connection_failed(&self.wanted.to, self.wanted.port, how)))
    }

    fn finish(&mut self, machine: &mut Machine) -> Next {
        if let Some(connection) = self.connection.take() {
            machine.close(connection);
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
    fn poll(&mut self, machine: &mut Machine, now: Instant) -> Next {
        let Some(connection) = self.connection else { return self.connect(machine, now) };
        let mut socket = machine.socket(connection);
        let socket = &mut socket;
        let size = self.wanted.size as usize;
        let Some(run) = &mut self.run else {
            let opening = Opening::RequestResponse { request: self.wanted.size, response: self.wanted.size };
            // These are the first bytes: there is room for all of them or for none.
            if socket.may_send() && socket.send(&opening.encode()) > 0 {
                self.report.started();
                let begun = Instant::now();
                self.run = Some(Running {
                    begun,
                    until: begun + Duration::from_millis(self.wanted.duration_ms),
                    asked: begun,
                    due: begun,
                    unsent: size,
                    missing: size,
                    requests: 1,
                    round_trips: Latencies::new(),
                    last: begun,
                });
                return Next::Again;
            }
            return match self.connect_until {
                _ if !socket.is_open() => self.fail(machine, "was refused"),
                Some(until) if now < until => Next::At(until),
                _ => self.fail(machine, "timed out"),
            };
        };
        if now < run.asked {
            return Next::At(run.asked);
        }
        let sent = socket.send_any(run.unsent);
        run.unsent -= sent;
        let received = skip(socket, run.missing);
        run.missing -= received;
        if run.missing == 0 {
            run.last = Instant::now();
            run.round_trips.record(run.last - run.asked);
            if run.last >= run.until {
                return self.finish(machine);
            }
            (run.asked, run.unsent, run.missing) = (run.last, size, size);
            run.requests += 1;
            if let Some(interval) = self.wanted.interval_us {
                run.due += Duration::from_micros(interval);
                run.asked = run.due.max(run.last);
                return Next::Again;
            }
            run.unsent -= socket.send_any(run.unsent);
            return Next::Again;
        }
        if !socket.may_receive() {
            return self.fail(machine, "was ended by the server");
        }
        let last_call = run.until + RESPONSE_TIMEOUT;
        if now >= last_call {
            return self.finish(machine);
        }
        if sent + received > 0 { Next::Again } else { Next::At(last_call) }
    }

    fn stop(&mut self, machine: &mut Machine) {
        if let Some(connection) = self.connection.take() {
            machine.abort(connection);
        }
    }
}
