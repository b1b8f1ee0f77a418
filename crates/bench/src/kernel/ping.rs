//! ICMP echo at a steady pace.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use super::failed;
use crate::agent::Run;
use crate::agent::protocol::{AgentError, Latency, Ping};
use crate::measure::latencies::Latencies;

/// Time to wait for replies after the last request.
const GRACE: Duration = Duration::from_secs(1);
/// Requests, one per second, before the peer counts as absent.
const TRIES: u16 = 5;
/// Longest sleep, after which a stopped run is noticed.
const NAP: Duration = Duration::from_millis(100);
/// Largest payload in bytes.
const MAX_PAYLOAD: u32 = 65_000;
/// Length of an ICMP header.
const HEADER: usize = 8;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// Measures round trips. A first request that is not counted finds the peer and fills its neighbour
/// entry.
pub(super) fn run(wanted: &Ping, run: &Run<'_>) -> Result<Latency, AgentError> {
    if wanted.size > MAX_PAYLOAD || wanted.interval_us == 0 {
        let message = format!("{} bytes every {} µs were asked for", wanted.size, wanted.interval_us);
        return Err(AgentError::new(message, format!("use 0 to {MAX_PAYLOAD} bytes, and 1 µs or more")));
    }
    let mut echo = Echo::open(wanted.to, wanted.size as usize)
        .map_err(|error| failed("cannot open a socket for ICMP", &error))?;
    // With a slack of 1 ns, sleeps end on time instead of up to 50 µs later. Without it the pace is
    // less even.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let failed = |error: io::Error| failed(&format!("cannot ping {}", wanted.to), &error);
    if !echo.finds_peer(run).map_err(failed)? {
        return Err(AgentError::new(
            format!("{} does not answer ICMP echo requests", wanted.to),
            "both need ports on one port group and addresses of one network: see `taut vm addresses` and `taut port list`",
        ));
    }
    measure(&mut echo, wanted, run).map_err(failed)
}

fn measure(echo: &mut Echo, wanted: &Ping, run: &Run<'_>) -> io::Result<Latency> {
    let interval = Duration::from_micros(wanted.interval_us);
    let requests = (wanted.duration_ms.saturating_mul(1000) / wanted.interval_us).max(1);
    let requests = requests.min(wanted.count.unwrap_or(u64::MAX));
    let mut flights = Flights::new();
    run.started();
    let begin = Instant::now();
    let mut last_reply = begin;
    let mut next = begin;
    let mut sent = 0;
    while !run.is_stopped() {
        let now = Instant::now();
        // Counts everything that has arrived, even if this thread looks late.
        while let Some(sequence) = echo.receive()? {
            last_reply = Instant::now();
            flights.arrive(sequence, last_reply);
        }
        if sent < requests && now >= next {
            flights.depart(sent as u16);
            echo.send(sent as u16)?;
            sent += 1;
            next += if sent < requests { interval } else { GRACE };
        } else if now >= next || (sent == requests && flights.replies == sent) {
            break;
        } else {
            echo.wait(next - now)?;
        }
    }
    Ok(Latency {
        lost: sent - flights.replies,
        sent,
        duplicates: flights.duplicates,
        elapsed_us: (last_reply - begin).as_micros() as u64,
        rtt_ns: flights.rtt,
    })
}

/// Requests under way, by sequence number. Numbers repeat after 65536 requests; the earlier request
/// of a number counts as lost then.
struct Flights {
    slots: Vec<Flight>,
    rtt: Latencies,
    replies: u64,
    duplicates: u64,
}

#[derive(Clone, Copy)]
enum Flight {
    None,
    Away(Instant),
    Back,
}

impl Flights {
    fn new() -> Self {
        let slots = vec![Flight::None; 1 << 16];
        Self { slots, rtt: Latencies::new(), replies: 0, duplicates: 0 }
    }

    fn depart(&mut self, sequence: u16) {
        self.slots[usize::from(sequence)] = Flight::Away(Instant::now());
    }

    fn arrive(&mut self, sequence: u16, now: Instant) {
        let slot = &mut self.slots[usize::from(sequence)];
        match *slot {
            Flight::Away(since) => {
                *slot = Flight::Back;
                self.rtt.record(now - since);
                self.replies += 1;
            }
            Flight::Back => self.duplicates += 1,
            Flight::None => {}
        }
    }
}

/// A socket that sends echo requests to one peer and receives its replies.
struct Echo {
    socket: OwnedFd,
    /// The socket is raw: received packets start with the IP header, and the id is ours to choose.
    raw: bool,
    id: u16,
    packet: Vec<u8>,
    buffer: Vec<u8>,
}

impl Echo {
    /// Opens a raw socket, or without the privilege an ICMP datagram socket.
    fn open(to: Ipv4Addr, size: usize) -> io::Result<Self> {
        static NEXT_ID: AtomicU16 = AtomicU16::new(0);
        let open = |kind| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            net::socket_with(AddressFamily::INET, kind, flags, Some(ipproto::ICMP))
        };
        let (socket, raw) = match open(SocketType::RAW) {
            Ok(socket) => (socket, true),
            Err(Errno::PERM | Errno::ACCESS) => (open(SocketType::DGRAM)?, false),
            Err(error) => return Err(error.into()),
        };
        net::connect(&socket, &SocketAddrV4::new(to, 0))?;
        let id = (std::process::id() as u16).wrapping_add(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let packet = [0; HEADER].into_iter().chain((0..size).map(|at| at as u8)).collect();
        Ok(Self { socket, raw, id, packet, buffer: vec![0; 1 << 16] })
    }

    /// Returns whether the peer answers at all.
    fn finds_peer(&mut self, run: &Run<'_>) -> io::Result<bool> {
        // Numbers from the end of the range: a late reply then finds no request under way.
        for sequence in u16::MAX - TRIES..u16::MAX {
            self.send(sequence)?;
            let end = Instant::now() + Duration::from_secs(1);
            while !run.is_stopped() && Instant::now() < end {
                self.wait(NAP)?;
                if self.receive()?.is_some() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Sends a request. One that the kernel cannot send now counts as lost on the way.
    fn send(&mut self, sequence: u16) -> io::Result<()> {
        self.packet[..4].copy_from_slice(&[ECHO_REQUEST, 0, 0, 0]);
        self.packet[4..6].copy_from_slice(&self.id.to_be_bytes());
        self.packet[6..HEADER].copy_from_slice(&sequence.to_be_bytes());
        let sum = checksum(&self.packet);
        self.packet[2..4].copy_from_slice(&sum.to_be_bytes());
        match net::send(&self.socket, &self.packet, SendFlags::empty()) {
            Ok(_)
            | Err(Errno::AGAIN | Errno::NOBUFS | Errno::HOSTUNREACH | Errno::CONNREFUSED | Errno::INTR) => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a reply, at most for `time`.
    fn wait(&self, time: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(time.min(NAP)).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the sequence number of the next reply; none if no reply waits.
    fn receive(&mut self) -> io::Result<Option<u16>> {
        loop {
            match net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => {
                    if let Some(sequence) = self.reply(&self.buffer[..length]) {
                        return Ok(Some(sequence));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                // An error that came back for an earlier request, which is lost.
                Err(Errno::HOSTUNREACH | Errno::CONNREFUSED | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the sequence number if these bytes are an intact reply to a request of this socket.
    fn reply(&self, bytes: &[u8]) -> Option<u16> {
        let message = if self.raw {
            let header = usize::from(bytes.first()? & 0xf) * 4;
            bytes.get(header..)?
        } else {
            bytes
        };
        let (header, payload) = message.split_at_checked(HEADER)?;
        // The kernel chooses the id of a datagram socket, and delivers only replies with that id.
        let ours = !self.raw || header[4..6] == self.id.to_be_bytes();
        let intact = payload == &self.packet[HEADER..] && checksum(message) == 0;
        (header[0] == ECHO_REPLY && ours && intact).then(|| u16::from_be_bytes([header[6], header[7]]))
    }
}

/// Returns the Internet checksum; zero over a message that contains its own.
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let sum: u32 = bytes.chunks(2).map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_duplicates_and_unknown_numbers_are_told_apart() {
        let mut flights = Flights::new();
        flights.depart(1);
        flights.depart(2);
        let now = Instant::now();
        flights.arrive(1, now);
        flights.arrive(1, now);
        flights.arrive(9, now);
        assert_eq!((flights.replies, flights.duplicates, flights.rtt.count()), (1, 1, 1));
        // The number repeats: this is a new request, not a duplicate.
        flights.depart(1);
        flights.arrive(1, Instant::now());
        assert_eq!((flights.replies, flights.duplicates), (2, 1));
    }

    #[test]
    fn checksums_follow_rfc_1071() {
        assert_eq!(
            checksum(&[
                0x45, 0, 0, 0x3c, 0x1c, 0x46, 0x40, 0, 0x40, 6, 0, 0, 0xac, 0x10, 0xa, 0x63, 0xac, 0x10, 0xa,
                0xc
            ]),
            0xb1e6
        );
        assert_eq!(checksum(&[0xff; 16_000]), 0);
        assert_eq!(checksum(&[1]), 0xfeff);
    }
}
