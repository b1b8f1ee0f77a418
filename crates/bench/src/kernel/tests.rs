//! Load over the loopback, and over the Unix sockets of a simulated VMCI device that is its own
//! peer.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;

use taut_tests::{Prerequisite, require, require_found};

use super::Kernel;
use crate::agent::protocol::{
    Address, AgentError, Kind, Latency, Ping, Probe, Rr, Serve, Stream, Target, Throughput,
};
use crate::agent::{Backend as _, Run, Serving, Stop};
use crate::wire::{MAX_SIZE, OPENING_LENGTH, Opening};

const HERE: Address = Address::Ip(Ipv4Addr::LOCALHOST);

fn server(socket_size: Option<u32>) -> Box<dyn Serving> {
    server_at(HERE, socket_size)
}

fn server_at(address: Address, socket_size: Option<u32>) -> Box<dyn Serving> {
    Kernel::new(Kind::Host).serve(&Serve { address: Some(address), port: 0, socket_size }).unwrap()
}

/// The Unix socket of a VM's VMCI device. Its guest connects back to each host port that the host
/// connects to.
struct Device(PathBuf);

impl Device {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!(
            "taut-vmci-{}-{:?}",
            std::process::id(),
            thread::current().id()
        ));
        let listener = UnixListener::bind(&path).unwrap();
        let own = path.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, path) = (client.unwrap(), own.clone());
                thread::spawn(move || turn_round(client, &path));
            }
        });
        Self(path)
    }

    fn address(&self) -> Address {
        Address::Unix(self.0.clone())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Serves one client. If nobody listens on the port, the connection is closed.
fn turn_round(client: UnixStream, path: &Path) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(1, client.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let port = line.strip_prefix("CONNECT ").unwrap().trim_end();
    let server = UnixStream::connect(format!("{}_{port}", path.display()))?;
    (&client).write_all(b"OK 1073741824\n")?;
    let copy = |mut from: UnixStream, mut to: UnixStream| {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    };
    let (from, to) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || copy(from, to));
    copy(client, server);
    back.join().unwrap();
    Ok(())
}

fn plain_rr(port: u16) -> Rr {
    Rr { to: HERE, port, socket_size: None, interval_us: None, size: 1, duration_ms: 30 }
}

fn rr(wanted: &Rr) -> Result<Latency, AgentError> {
    Kernel::new(Kind::Host).rr(wanted, &Run::new(&Stop::default(), &|| ()))
}

fn stream(wanted: &Stream) -> Result<Throughput, AgentError> {
    Kernel::new(Kind::Host).stream(wanted, &Run::new(&Stop::default(), &|| ()))
}

fn plain_stream(port: u16) -> Stream {
    Stream {
        to: HERE,
        port,
        socket_size: None,
        send_size: 8192,
        receive_size: 8192,
        check: false,
        sessions: 1,
        duration_ms: 50,
    }
}

#[test]
fn requests_are_answered_one_by_one() {
    let server = server(None);
    for size in [1, 256, 70_000] {
        let latency = rr(&Rr { size, ..plain_rr(server.port()) }).unwrap();
        assert!(latency.sent > 0 && latency.sent == latency.rtt_ns.count(), "{latency:?}");
        assert!(latency.elapsed_us >= 30_000, "{latency:?}");
    }
}

#[test]
fn streams_count_what_arrived() {
    for (socket_size, sessions, check) in [(None, 1, false), (Some(65_536), 3, true)] {
        let server = server(socket_size);
        let wanted = Stream { socket_size, check, sessions, ..plain_stream(server.port()) };
        let throughput = stream(&wanted).unwrap();
        assert_eq!(throughput.sessions.len(), sessions as usize);
        assert_eq!(throughput.bytes, throughput.sessions.iter().sum::<u64>());
        assert!(throughput.sessions.iter().all(|bytes| *bytes > 0 && bytes % 8192 == 0), "{throughput:?}");
        assert!(throughput.mbit_s() > 0.0);
    }
}

#[test]
fn host_programs_connect_to_a_vm_and_back_through_its_unix_socket() {
    let device = Device::new();
    let server = server_at(device.address(), Some(65_536));
    let port = server.port();
    let latency = rr(&Rr { to: device.address(), size: 256, ..plain_rr(port) }).unwrap();
    assert!(latency.sent > 0 && latency.sent == latency.rtt_ns.count(), "{latency:?}");
    let wanted =
        Stream { to: device.address(), socket_size: Some(65_536), sessions: 2, ..plain_stream(port) };
    let throughput = stream(&wanted).unwrap();
    assert!(throughput.sessions.iter().all(|bytes| *bytes > 0 && bytes % 8192 == 0), "{throughput:?}");

    let target = |port| Target { to: device.address(), port };
    let probe = Probe { targets: vec![target(port), target(1)], rounds: 3 };
    let found = Kernel::new(Kind::Host).probe(&probe, &Run::new(&Stop::default(), &|| ())).unwrap();
    let counts: Vec<_> =
        found.iter().map(|f| (f.connected, f.refused, f.silent, f.took_ns.count())).collect();
    assert_eq!(counts, [(3, 0, 0, 3), (0, 3, 0, 3)]);

    let second = server_at(device.address(), None);
    assert_ne!(second.port(), port);
    drop(server);
    let error = rr(&Rr { to: device.address(), ..plain_rr(port) }).unwrap_err();
    assert!(error.message.contains(&format!("port {port}")) && error.message.contains("refused"), "{error}");
    assert!(error.hint.contains("domain"), "{}", error.hint);
}

#[test]
fn pings_come_back() {
    if !require(Prerequisite::Ping) {
        return;
    }
    let wanted =
        Ping { to: Ipv4Addr::LOCALHOST, size: 256, interval_us: 500, duration_ms: 10_000, count: Some(40) };
    let run = |stop: &Stop| Kernel::new(Kind::Host).ping(&wanted, &Run::new(stop, &|| ()));
    let found = match run(&Stop::default()) {
        // Some hosts allow ping to root only.
        Err(error) if error.message.contains("permitted") || error.message.contains("denied") => {
            Err(error.message)
        }
        other => Ok(other.unwrap()),
    };
    let Some(latency) = require_found(Prerequisite::Ping, found) else { return };
    assert_eq!((latency.sent, latency.lost, latency.duplicates), (40, 0, 0));
    assert_eq!(latency.rtt_ns.count(), 40);
}

#[test]
fn an_ended_server_breaks_its_connections() {
    let server = server(None);
    let port = server.port();
    let wanted = Rr { duration_ms: 60_000, ..plain_rr(port) };
    let begun = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let stop = Stop::default();
            Kernel::new(Kind::Host).rr(
                &wanted,
                &Run::new(&stop, &|| {
                    begun.wait();
                }),
            )
        });
        begun.wait();
        drop(server);
        let error = client.join().unwrap().unwrap_err();
        assert!(error.message.contains("broke"), "{error}");
    });
    let error = rr(&wanted).unwrap_err();
    assert!(error.message.contains("cannot connect"), "{error}");
    assert!(error.hint.contains("server"), "{}", error.hint);
}

#[test]
fn a_stopped_run_ends() {
    let server = server(None);
    let wanted = Stream { duration_ms: 3_600_000, sessions: 2, ..plain_stream(server.port()) };
    let stop = Stop::default();
    let begun = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let _ = Kernel::new(Kind::Host).stream(
                &wanted,
                &Run::new(&stop, &|| {
                    begun.wait();
                }),
            );
        });
        begun.wait();
        stop.raise();
        client.join().unwrap();
    });
}

#[test]
fn sizes_out_of_range_are_refused() {
    for size in [0, MAX_SIZE + 1] {
        assert!(rr(&Rr { size, ..plain_rr(1) }).is_err());
        assert!(stream(&Stream { send_size: size, ..plain_stream(1) }).is_err());
        assert!(stream(&Stream { receive_size: size, ..plain_stream(1) }).is_err());
        assert!(stream(&Stream { sessions: size, ..plain_stream(1) }).is_err());
    }
    let kernel = Kernel::new(Kind::Host);
    let refused = Ping { to: Ipv4Addr::LOCALHOST, size: 65_001, interval_us: 1, duration_ms: 1, count: None };
    let run = |wanted: &Ping| kernel.ping(wanted, &Run::new(&Stop::default(), &|| ()));
    assert!(run(&refused).unwrap_err().message.contains("65001"));
    assert!(run(&Ping { size: 1, interval_us: 0, ..refused }).is_err());
}

#[test]
fn a_server_closes_after_an_invalid_opening() {
    let server = server(None);
    let connect = |opening: [u8; OPENING_LENGTH]| {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
        socket.write_all(&opening).unwrap();
        socket
    };
    let mut rest = Vec::new();
    connect(*b"GET / HTTP/1.1\r\n").read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());

    let mut socket = connect(Opening::Stream { receive: 3, check: false }.encode());
    socket.write_all(b"ten bytes.").unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    socket.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, 10_u64.to_be_bytes());

    let mut socket = connect(Opening::Stream { receive: 3, check: true }.encode());
    socket.write_all(&[crate::wire::pattern::bytes(0, 4), b"wrong"].concat()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    rest.clear();
    socket.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, 4_u64.to_be_bytes());
    let wanted = Stream { check: true, ..plain_stream(7) };
    let error = wanted.confirmed(9, 4).unwrap_err();
    assert!(error.message.contains("of 9 bytes") && error.message.contains("first 4"), "{error}");
}

#[test]
fn spinners_count_until_they_are_dropped() {
    let spinners = Kernel::new(Kind::Host).spin().unwrap();
    while spinners.units() < 3 {
        thread::yield_now();
    }
}

#[test]
fn a_pace_is_not_exceeded() {
    let server = server(None);
    let paced = Rr { interval_us: Some(10_000), duration_ms: 45, ..plain_rr(server.port()) };
    assert!((1..=5).contains(&rr(&paced).unwrap().sent));
}
