//! Measures a stream of small writes, and requests in two writes.
//!
//! `tcp_program speed server ADDRESS` serves one client after the other. `tcp_program speed client
//! ADDRESS SIZE MEGABYTES` sends that much by writes of this size, and then 2000 requests, and
//! prints one line.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

/// Bytes of a request, in two writes, and of its answer.
const REQUEST: usize = 256;
const REQUESTS: usize = 2000;

pub(crate) fn run() {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", address] => serve(&TcpListener::bind(address).unwrap()),
        ["client", address, size, megabytes] => {
            measure(TcpStream::connect(address).unwrap(), size.parse().unwrap(), megabytes.parse().unwrap());
        }
        _ => panic!("server ADDRESS, or client ADDRESS SIZE MEGABYTES"),
    }
}

fn serve(listener: &TcpListener) {
    println!("speed: ready.");
    loop {
        let (mut client, _) = listener.accept().unwrap();
        let mut head = [0; 8];
        client.read_exact(&mut head).unwrap();
        let (mut left, mut buffer) = (u64::from_le_bytes(head), vec![0; 256 * 1024]);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            let count = client.read(&mut buffer[..most]).unwrap();
            assert_ne!(count, 0, "{left} bytes are missing");
            left -= count as u64;
        }
        client.write_all(b"done").unwrap();
        while client.read_exact(&mut buffer[..REQUEST]).is_ok() {
            client.write_all(&buffer[..REQUEST]).unwrap();
        }
    }
}

fn measure(mut server: TcpStream, size: usize, megabytes: u64) {
    let (writes, piece) = (megabytes * 1_000_000 / size as u64, vec![7; size]);
    let bytes = writes * size as u64;
    server.write_all(&bytes.to_le_bytes()).unwrap();
    let started = Instant::now();
    for _ in 0..writes {
        server.write_all(&piece).unwrap();
    }
    server.read_exact(&mut [0; 4]).unwrap();
    let rate = bytes as f64 * 8.0 / started.elapsed().as_secs_f64() / 1e6;
    let mut times = Vec::new();
    for _ in 0..REQUESTS {
        let started = Instant::now();
        let (head, body) = piece_of_request();
        server.write_all(head).unwrap();
        server.write_all(body).unwrap();
        server.read_exact(&mut [0; REQUEST]).unwrap();
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    let (median, late) = (times[REQUESTS / 2], times[REQUESTS * 99 / 100]);
    println!("speed: {size} B {rate:.0} Mbit/s, request in two writes p50 {median:.1} µs p99 {late:.1} µs.");
}

fn piece_of_request() -> (&'static [u8], &'static [u8]) {
    static BYTES: [u8; REQUEST] = [1; REQUEST];
    BYTES.split_at(64)
}
