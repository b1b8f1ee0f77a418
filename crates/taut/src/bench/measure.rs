//! One repeat: read counters, measure, read counters again.

use std::net::Ipv4Addr;
use std::time::Duration;

use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_bench::agent::protocol::{
    Address, Answer, Interface, Latency, Ping, Puts, Request, Rr, Serve, Stream,
};
use taut_bench::report::{self, Cpu, Figures, Kind};

use super::address;
use super::cpu::{OfEndPoint, OfHost};
use super::parties::{Id, Parties};
use crate::agent::PATIENCE;

/// A measurement with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measurement {
    Ping {
        size: u32,
        interval_us: u64,
        duration: Duration,
    },
    Rr {
        socket_size: Option<u32>,
        size: u32,
        interval_us: Option<u64>,
        duration: Duration,
    },
    /// Puts into a Redis server that listens already.
    Puts {
        port: u16,
        size: u32,
        duration: Duration,
    },
    Stream {
        socket_size: Option<u32>,
        send_size: u32,
        receive_size: u32,
        sessions: u32,
        check: bool,
        duration: Duration,
    },
}

impl Measurement {
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Ping { .. } => Kind::Ping,
            // A request and its response, whatever the server is.
            Self::Rr { .. } | Self::Puts { .. } => Kind::Rr,
            Self::Stream { .. } => Kind::Stream,
        }
    }

    const fn duration(&self) -> Duration {
        match self {
            Self::Ping { duration, .. }
            | Self::Rr { duration, .. }
            | Self::Puts { duration, .. }
            | Self::Stream { duration, .. } => *duration,
        }
    }

    /// Returns the server that the measurement needs, listening on `address`.
    fn server(&self, address: Option<Address>) -> Option<Serve> {
        match *self {
            Self::Ping { .. } | Self::Puts { .. } => None,
            Self::Rr { socket_size, .. } | Self::Stream { socket_size, .. } => {
                Some(Serve { address, port: 0, socket_size })
            }
        }
    }

    fn request(&self, to: &Address, port: u16) -> Request {
        let duration_ms = self.duration().as_millis() as u64;
        match (*self, to.clone()) {
            (Self::Ping { size, interval_us, .. }, Address::Ip(to)) => {
                Request::Ping(Ping { to, size, interval_us, duration_ms, count: None })
            }
            (Self::Ping { .. }, _) => unreachable!("echo requests go to IPv4 addresses"),
            (Self::Rr { socket_size, size, interval_us, .. }, to) => {
                Request::Rr(Rr { to, port, socket_size, size, interval_us, duration_ms })
            }
            (Self::Puts { port, size, .. }, to) => Request::Puts(Puts { to, port, size, duration_ms }),
            (Self::Stream { socket_size, send_size, receive_size, sessions, check, .. }, to) => {
                Request::Stream(Stream {
                    to,
                    port,
                    socket_size,
                    send_size,
                    receive_size,
                    check,
                    sessions,
                    duration_ms,
                })
            }
        }
    }
}

/// A sender, and a receiver that is ready.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) sender: Id,
    receiver: Id,
    to: Address,
    /// Port of the receiver's server; 0 if none is needed.
    port: u16,
}

impl Line {
    /// Prepares a line over IPv4: finds the receiver's address unless it is given, and starts its
    /// server.
    pub(super) fn prepare(
        parties: &mut Parties,
        sender: Id,
        receiver: Id,
        address: Option<Ipv4Addr>,
        measurement: &Measurement,
    ) -> Result<Self, ApiError> {
        let to = match address {
            Some(address) => address,
            None => find_address(parties, sender, receiver)?,
        };
        Self::to(parties, [sender, receiver], to.into(), None, measurement)
    }

    /// Prepares a line to the receiver's address `to` as the sender sees it; `own` is the same
    /// address as the receiver sees it.
    pub(super) fn to(
        parties: &mut Parties,
        [sender, receiver]: [Id; 2],
        to: Address,
        own: Option<Address>,
        measurement: &Measurement,
    ) -> Result<Self, ApiError> {
        let port = match measurement.server(own) {
            None => 0,
            Some(server) => match parties.ask(receiver, Request::Serve(server), PATIENCE)? {
                Answer::Server(server) => server.port,
                _ => return Err(parties.confused(receiver)),
            },
        };
        Ok(Self { sender, receiver, to, port })
    }

    /// Returns the receiver for the report.
    pub(super) fn describe_receiver(&self, parties: &Parties) -> report::EndPoint {
        report::EndPoint { address: Some(self.to.clone()), ..parties.describe(self.receiver) }
    }

    /// Runs one repeat.
    pub(super) fn measure(
        &self,
        parties: &mut Parties,
        measurement: &Measurement,
        fabric: Option<u32>,
    ) -> Result<Figures, ApiError> {
        let receiver = cpu(parties, self.receiver)?;
        let sender = cpu(parties, self.sender)?;
        let host = OfHost::now(fabric);
        let patience = measurement.duration() + PATIENCE;
        let answer = parties.ask(self.sender, measurement.request(&self.to, self.port), patience)?;
        let host = host.zip(OfHost::now(fabric));
        let sender = sender.percent(cpu(parties, self.sender)?, parties.kind(self.sender));
        let receiver = receiver.percent(cpu(parties, self.receiver)?, parties.kind(self.receiver));
        let cpu = Cpu {
            sender,
            receiver,
            fabric: host.as_ref().and_then(|(before, after)| before.fabric_percent(after)),
            host: host.as_ref().and_then(|(before, after)| before.percent(after)),
        };
        match (answer, measurement.kind()) {
            (Answer::Latency(latency), kind @ (Kind::Ping | Kind::Rr)) => {
                Ok(Figures { cpu, ..of_latency(latency, kind) })
            }
            (Answer::Throughput(moved), Kind::Stream) => {
                let (mbit_s, fairness) = (Some(moved.mbit_s()), moved.fairness());
                Ok(Figures { mbit_s, fairness, cpu, ..Figures::default() })
            }
            _ => Err(parties.confused(self.sender)),
        }
    }
}

fn of_latency(latency: Latency, kind: Kind) -> Figures {
    let Latency { rtt_ns, lost, elapsed_us, .. } = latency;
    let figures = Figures::of_latencies(rtt_ns);
    match kind {
        Kind::Ping => Figures { lost: Some(lost), ..figures },
        Kind::Rr | Kind::Stream => {
            let per_s = |count: u64| (elapsed_us > 0).then(|| count as f64 * 1e6 / elapsed_us as f64);
            Figures { per_s: figures.count.and_then(per_s), ..figures }
        }
    }
}

fn cpu(parties: &mut Parties, id: Id) -> Result<OfEndPoint, ApiError> {
    match parties.ask(id, Request::Cpu, PATIENCE)? {
        Answer::Cpu(cpu) => Ok(OfEndPoint::now(cpu)),
        _ => Err(parties.confused(id)),
    }
}

fn interfaces(parties: &mut Parties, id: Id) -> Result<Vec<Interface>, ApiError> {
    match parties.ask(id, Request::Addresses, PATIENCE)? {
        Answer::Addresses(interfaces) => Ok(interfaces),
        _ => Err(parties.confused(id)),
    }
}

fn find_address(parties: &mut Parties, sender: Id, receiver: Id) -> Result<Ipv4Addr, ApiError> {
    if sender == receiver {
        // The end point measures its own stack, without a switch.
        return Ok(Ipv4Addr::LOCALHOST);
    }
    let (from, to) = (interfaces(parties, sender)?, interfaces(parties, receiver)?);
    address::shared(&from, &to).ok_or_else(|| {
        let (sender, receiver) = (parties.end_point(sender), parties.end_point(receiver));
        ApiError::new(
            ErrorKind::Conflict,
            format!(
                "{receiver} has no address in a network of {sender}: {receiver} has {}, {sender} has {}",
                address::list(&to),
                address::list(&from)
            ),
            "give --address if there is a router between them; otherwise put both on one port group, with \
             addresses of one network",
        )
    })
}

#[cfg(test)]
mod tests;
