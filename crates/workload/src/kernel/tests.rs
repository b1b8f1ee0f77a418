//! Workloads over the loopback.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream as Socket};

use super::Kernel;
use crate::agent::protocol::{AgentError, Kind, Latency, Ping, Serve, TcpRr, TcpStream, Throughput};
use crate::agent::{Backend as _, Run, Serving, Stop};
use crate::wire::{MAX_SIZE, OPENING_LENGTH, Opening};

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn server(socket_size: Option<u32>) -> Box<dyn Serving> {
    Kernel::new(Kind::Host).serve(&Serve { address: Some(HERE), port: 0, socket_size }).unwrap()
}

fn rr(wanted: &TcpRr) -> Result<Latency, AgentError> {
    Kernel::new(Kind::Host).tcp_rr(wanted, &Run::new(&Stop::default(), &|| ()))
}

fn stream(wanted: &TcpStream) -> Result<Throughput, AgentError> {
    Kernel::new(Kind::Host).tcp_stream(wanted, &Run::new(&Stop::default(), &|| ()))
}

fn plain_stream(port: u16) -> TcpStream {
    TcpStream {
        to: HERE,
        port,
        socket_size: None,
        send_size: 8192,
        receive_size: 8192,
        sessions: 1,
        duration_ms: 50,
    }
}

#[test]
fn requests_are_answered_one_by_one() {
    let server = server(None);
    for size in [1, 256, 70_000] {
        let latency = rr(&TcpRr { to: HERE, port: server.port(), size, duration_ms: 30 }).unwrap();
        assert!(latency.sent > 0 && latency.sent == latency.rtt_ns.count(), "{latency:?}");
        assert!(latency.elapsed_us >= 30_000, "{latency:?}");
    }
}

#[test]
fn streams_count_what_arrived() {
    for (socket_size, sessions) in [(None, 1), (Some(65_536), 3)] {
        let server = server(socket_size);
        let wanted = TcpStream { socket_size, sessions, ..plain_stream(server.port()) };
        let throughput = stream(&wanted).unwrap();
        assert_eq!(throughput.sessions.len(), sessions as usize);
        assert_eq!(throughput.bytes, throughput.sessions.iter().sum::<u64>());
        assert!(throughput.sessions.iter().all(|bytes| *bytes > 0 && bytes % 8192 == 0), "{throughput:?}");
        assert!(throughput.mbit_s() > 0.0);
    }
}

#[test]
fn pings_come_back() {
    let wanted = Ping { to: HERE, size: 256, interval_us: 500, duration_ms: 10_000, count: Some(40) };
    let run = |stop: &Stop| Kernel::new(Kind::Host).ping(&wanted, &Run::new(stop, &|| ()));
    let latency = match run(&Stop::default()) {
        // Some hosts let nobody but root ping.
        Err(error) if error.message.contains("permitted") || error.message.contains("denied") => return,
        other => other.unwrap(),
    };
    assert_eq!((latency.sent, latency.lost, latency.duplicates), (40, 0, 0));
    assert_eq!(latency.rtt_ns.count(), 40);
}

#[test]
fn an_ended_server_breaks_its_connections() {
    let server = server(None);
    let port = server.port();
    let wanted = TcpRr { to: HERE, port, size: 1, duration_ms: 60_000 };
    let begun = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let stop = Stop::default();
            Kernel::new(Kind::Host).tcp_rr(
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
    let wanted = TcpStream { duration_ms: 3_600_000, sessions: 2, ..plain_stream(server.port()) };
    let stop = Stop::default();
    let begun = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let _ = Kernel::new(Kind::Host).tcp_stream(
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
        assert!(rr(&TcpRr { to: HERE, port: 1, size, duration_ms: 1 }).is_err());
        assert!(stream(&TcpStream { send_size: size, ..plain_stream(1) }).is_err());
        assert!(stream(&TcpStream { receive_size: size, ..plain_stream(1) }).is_err());
        assert!(stream(&TcpStream { sessions: size, ..plain_stream(1) }).is_err());
    }
    let kernel = Kernel::new(Kind::Host);
    let refused = Ping { to: HERE, size: 65_001, interval_us: 1, duration_ms: 1, count: None };
    let run = |wanted: &Ping| kernel.ping(wanted, &Run::new(&Stop::default(), &|| ()));
    assert!(run(&refused).unwrap_err().message.contains("65001"));
    assert!(run(&Ping { size: 1, interval_us: 0, ..refused }).is_err());
}

#[test]
fn a_server_closes_on_whoever_does_not_speak_its_language() {
    let server = server(None);
    let connect = |opening: [u8; OPENING_LENGTH]| {
        let mut socket = Socket::connect((HERE, server.port())).unwrap();
        socket.write_all(&opening).unwrap();
        socket
    };
    let mut rest = Vec::new();
    connect(*b"GET / HTTP/1.1\r\n").read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());

    let mut socket = connect(Opening::Stream { receive: 3 }.encode());
    socket.write_all(b"ten bytes.").unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    socket.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, 10_u64.to_be_bytes());
}
