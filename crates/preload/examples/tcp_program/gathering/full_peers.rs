//! Small writes while the peer takes nothing, or has gone.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::{read_text, write_some};
use crate::calls::{HANDLED, close, dup2, exit, handle, poll, send, send_timeout, with_alarms, write};
use crate::pair;

pub(super) fn peer_does_not_read() {
    let (client, server) = pair();
    let count = fill(&client);
    println!("nothing more: {:?}", write(client.as_raw_fd(), &[0; 100]));
    println!("read: {}", read_numbered(&server, count));
    println!("events: {:#x}", poll(client.as_raw_fd(), libc::POLLOUT, 10_000));
    write_some(&client);
    println!("{}", read_text(&server, 12));

    // The connection is closed while the peer does not read.
    let (client, server) = pair();
    let count = fill(&client);
    drop(client);
    overwrite_high_numbers();
    println!("read after close: {}", read_numbered(&server, count));
    println!("the end: {:?}", (&server).read(&mut [0]).unwrap());

    // The connection is shut down for writing while the peer does not read.
    let (client, server) = pair();
    let count = fill(&client);
    client.shutdown(Shutdown::Write).unwrap();
    println!("write: {:?}", (&client).write(b"x").map_err(|error| error.kind()));
    println!("read after shutdown: {}", read_numbered(&server, count));
    println!("the end: {:?}", (&server).read(&mut [0]).unwrap());
}

/// Writers that wait.
pub(super) fn peer_does_not_read_for_long() {
    let (client, server) = pair();
    let mut count = fill(&client);
    client.set_nonblocking(false).unwrap();
    send_timeout(client.as_raw_fd(), 50);
    let started = Instant::now();
    println!("with a time limit: {:?}", write(client.as_raw_fd(), &[0; 100]));
    println!("in time: {}", started.elapsed() > Duration::from_millis(40));
    send_timeout(client.as_raw_fd(), 0);
    handle(libc::SIGALRM, 0);
    let written = with_alarms(|| write(client.as_raw_fd(), &[0; 100]));
    println!("interrupted: {written:?} {}", HANDLED.load(Relaxed) >= 1);
    println!("does not wait: {:?}", send(client.as_raw_fd(), &[0; 100], libc::MSG_DONTWAIT));
    let first = count;
    let writer = thread::spawn(move || {
        for _ in 0..20_000 {
            let written = write(client.as_raw_fd(), &numbered(count, 100)).unwrap();
            assert_eq!(written, 100);
            count += written;
        }
    });
    thread::sleep(Duration::from_millis(50));
    println!("waits for room: {}", read_numbered(&server, first + 2_000_000));
    writer.join().unwrap();
    println!("the end: {:?}", (&server).read(&mut [0]).unwrap());
}

/// The program learns that its peer has gone, by an error and a signal.
pub(super) fn peer_has_gone() {
    let (client, server) = pair();
    handle(libc::SIGPIPE, libc::SA_RESTART);
    write_some(&client);
    println!("{}", read_text(&server, 12));
    drop(server);
    let started = Instant::now();
    let mut last = String::new();
    while started.elapsed() < Duration::from_secs(20) && last != "EPIPE" {
        last = write(client.as_raw_fd(), b"small").err().unwrap_or_default();
    }
    println!("{last}");
    for _ in 0..3 {
        let before = HANDLED.load(Relaxed);
        println!("again: {:?}", write(client.as_raw_fd(), b"small"));
        println!("signalled: {}", HANDLED.load(Relaxed) - before);
    }
    println!("without a signal: {:?}", send(client.as_raw_fd(), b"x", libc::MSG_NOSIGNAL));
}

/// A write waits for a peer that takes nothing, while another thread puts another connection over
/// its number. Prints its result, and whether the other peer gets anything.
pub(crate) fn replaced() {
    let (client, server) = pair();
    let (other, other_server) = pair();
    let (count, fd) = (fill(&client), client.as_raw_fd());
    client.set_nonblocking(false).unwrap();
    let (written, is_replaced) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, ends) = (written.clone(), is_replaced.clone());
    let writer = thread::spawn(move || {
        loop {
            let result = write(fd, &[0; 100]);
            if result.is_err() || ends.load(Relaxed) {
                break result;
            }
            counted.fetch_add(1, Relaxed);
        }
    });
    // On a busy machine, the peer's kernel makes room for some more writes before one waits.
    let mut before = usize::MAX;
    while before != written.load(Relaxed) {
        before = written.load(Relaxed);
        thread::sleep(Duration::from_millis(200));
    }
    is_replaced.store(true, Relaxed);
    dup2(other.as_raw_fd(), fd).unwrap();
    println!("read: {}", read_numbered(&server, count));
    println!("{:?}", writer.join().unwrap());
    println!("events: {:#x}", poll(other_server.as_raw_fd(), libc::POLLIN, 50));
}

/// Starts programs while a peer takes nothing, on a connection that is open and a closed one.
pub(crate) fn spawns() {
    let (closed, _other) = pair();
    fill(&closed);
    drop(closed);
    let is_delayed = || {
        let started = Instant::now();
        Command::new("/bin/true").status().unwrap();
        started.elapsed() > Duration::from_millis(900)
    };
    // On a busy machine, the peer's kernel may make room after some time, and then nothing waits.
    // A connection gathers no more bytes once another program was started.
    let mut pairs = Vec::new();
    let delayed = (0..10).any(|_| {
        let (client, server) = pair();
        fill(&client);
        pairs.push((client, server));
        is_delayed()
    });
    println!("{delayed}");
    (0..3).for_each(|_| println!("{}", is_delayed()));
    // The peers stay open.
    exit(0);
}

/// Bytes that say where they belong.
fn numbered(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|place| (place / 3 % 251) as u8).collect()
}

/// A writer that does not wait, by small writes until nothing more is accepted.
fn fill(client: &TcpStream) -> usize {
    client.set_nonblocking(true).unwrap();
    let (mut count, mut refused) = (0, 0);
    // TCP accepts more a moment later, until its own queues have settled.
    while refused < 50 {
        match write(client.as_raw_fd(), &numbered(count, 100)) {
            Ok(written) => (count, refused) = (count + written, 0),
            Err(error) => {
                assert_eq!(error, "EAGAIN");
                refused += 1;
                thread::sleep(Duration::from_millis(10));
            }
        }
        assert!(count < 1 << 28, "not bounded");
    }
    count
}

fn read_numbered(server: &TcpStream, len: usize) -> bool {
    let mut got = vec![0; len];
    (&*server).read_exact(&mut got).unwrap();
    got == numbered(0, len)
}

/// Puts a file over each of the high numbers that the program does not use itself, and closes it.
fn overwrite_high_numbers() {
    let null = std::fs::File::open("/dev/null").unwrap();
    for number in 500..1020 {
        dup2(null.as_raw_fd(), number).unwrap();
        close(number).unwrap();
    }
}
