//! ICMP echo at a steady pace.

use std::time::{Duration, Instant};

use smoltcp::iface::SocketHandle;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::icmp;
use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, IpAddress};
use taut_bench::agent::protocol::{AgentError, Latency, Ping};
use taut_bench::measure::latencies::Latencies;

use super::{Next, Report, Task};
use crate::machine::{Machine, ZEROS};

/// Largest payload without fragments, which smoltcp does not create: 1500 bytes of IP.
const MAX_SIZE: u32 = 1472;
/// Time to wait for replies after the last request. In tests each guest is a thread, which may wait
/// that long for a core.
const GRACE: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 1 });
/// Requests and replies that fit in the socket.
const QUEUE: usize = 64;

/// Sends echo requests at a steady pace.
pub(crate) struct PingTask {
    wanted: Ping,
    report: Report<Latency>,
    ident: u16,
    run: Option<Running>,
}

struct Running {
    nic: usize,
    handle: SocketHandle,
    begun: Instant,
    /// When the next request is due.
    due: Instant,
    sent: u64,
    last_sent: Instant,
    /// State of the newest request with each sequence number.
    requests: Vec<Request>,
    round_trips: Latencies,
    duplicates: u64,
    last_reply: Instant,
}

#[derive(Clone, Copy)]
enum Request {
    Never,
    Sent(Instant),
    Answered,
}

impl PingTask {
    /// Creates the task. `ident` distinguishes its replies from those of other tasks.
    pub(crate) fn new(wanted: Ping, ident: u16, report: Report<Latency>) -> Self {
        Self { wanted, report, ident, run: None }
    }

    fn begin(&mut self, machine: &mut Machine) -> Next {
        if self.wanted.size > MAX_SIZE {
            let message =
                format!("{} bytes of payload: a microguest sends at most {MAX_SIZE}", self.wanted.size);
            return self.report.end(Err(AgentError::new(message, "ask for less, or use a VM of kind qemu")));
        }
        let nic = match machine.route(self.wanted.to) {
            Ok(nic) => nic,
            Err(error) => return self.report.end(Err(error)),
        };
        let buffer = || {
            icmp::PacketBuffer::new(
                vec![icmp::PacketMetadata::EMPTY; QUEUE],
                vec![0; QUEUE * (MAX_SIZE as usize + 8)],
            )
        };
        let mut socket = icmp::Socket::new(buffer(), buffer());
        if socket.bind(icmp::Endpoint::Ident(self.ident)).is_err() {
            return self.report.end(Err(AgentError::new("cannot bind an ICMP socket", "try again")));
        }
        let handle = machine.nics[nic].sockets.add(socket);
        self.report.started();
        let begun = Instant::now();
        self.run = Some(Running {
            nic,
            handle,
            begun,
            due: begun,
            sent: 0,
            last_sent: begun,
            requests: vec![Request::Never; 1 << 16],
            round_trips: Latencies::new(),
            duplicates: 0,
            last_reply: begun,
        });
        Next::Again
    }

    fn finish(&mut self, machine: &mut Machine) -> Next {
        let Some(run) = self.run.take() else { return Next::Done };
        machine.nics[run.nic].sockets.remove(run.handle);
        self.report.end(Ok(Latency {
            sent: run.sent,
            lost: run.sent - run.round_trips.count(),
            duplicates: run.duplicates,
            elapsed_us: (run.last_reply - run.begun).as_micros() as u64,
            rtt_ns: run.round_trips,
        }))
    }
}

impl Running {
    fn receive(&mut self, socket: &mut icmp::Socket<'_>, ident: u16, from: IpAddress) {
        while let Ok((bytes, sender)) = socket.recv() {
            let now = Instant::now();
            let Ok(packet) = Icmpv4Packet::new_checked(bytes) else { continue };
            let Ok(repr) = Icmpv4Repr::parse(&packet, &ChecksumCapabilities::default()) else { continue };
            let Icmpv4Repr::EchoReply { ident: of, seq_no, .. } = repr else { continue };
            if of != ident || sender != from {
                continue;
            }
            let request = &mut self.requests[usize::from(seq_no)];
            match *request {
                Request::Never => {}
                Request::Answered => self.duplicates += 1,
                Request::Sent(at) => {
                    self.round_trips.record(now - at);
                    self.last_reply = now;
                    *request = Request::Answered;
                }
            }
        }
    }

    /// Sends one request. Returns false if the socket has no room.
    fn send(&mut self, socket: &mut icmp::Socket<'_>, ident: u16, wanted: &Ping) -> bool {
        let data = &ZEROS[..wanted.size as usize];
        let request = Icmpv4Repr::EchoRequest { ident, seq_no: self.sent as u16, data };
        let Ok(bytes) = socket.send(request.buffer_len(), wanted.to.into()) else { return false };
        request.emit(&mut Icmpv4Packet::new_unchecked(bytes), &ChecksumCapabilities::default());
        let now = Instant::now();
        self.requests[usize::from(self.sent as u16)] = Request::Sent(now);
        self.sent += 1;
        self.last_sent = now;
        true
    }
}

impl Task for PingTask {
    fn poll(&mut self, machine: &mut Machine, now: Instant) -> Next {
        let Some(run) = &mut self.run else { return self.begin(machine) };
        let socket = machine.nics[run.nic].sockets.get_mut::<icmp::Socket>(run.handle);
        run.receive(socket, self.ident, self.wanted.to.into());

        let end = run.begun + Duration::from_millis(self.wanted.duration_ms);
        let all_sent =
            |run: &Running| self.wanted.count.is_some_and(|count| run.sent >= count) || run.due >= end;
        let mut sent = false;
        while now >= run.due && !all_sent(run) && run.send(socket, self.ident, &self.wanted) {
            run.due += Duration::from_micros(self.wanted.interval_us.max(1));
            sent = true;
        }
        if sent {
            return Next::Again;
        }
        if !all_sent(run) {
            // The socket is full while the address is being resolved: retry a little later.
            return Next::At(run.due.max(now + Duration::from_micros(self.wanted.interval_us.min(1000))));
        }
        let last_call = run.last_sent + GRACE;
        if run.round_trips.count() == run.sent || now >= last_call {
            return self.finish(machine);
        }
        Next::At(last_call)
    }

    fn stop(&mut self, machine: &mut Machine) {
        if let Some(run) = self.run.take() {
            machine.nics[run.nic].sockets.remove(run.handle);
        }
    }
}
