//! A model test: the same operations on two connections, one by TCP and one that the library may
//! carry, between the same two processes. Every result must be the same.
//!
//! - `tcp_program model both OPERATIONS SEED`: both ends on this machine. The TCP connection is to
//!   127.0.0.2, the other one to 127.0.0.1.
//! - `tcp_program model serve ADDRESS ADDRESS ADDRESS`: one end, which listens for connections by
//!   TCP, for those that the library may carry, and for the other end's commands.
//! - `tcp_program model drive ADDRESS ADDRESS ADDRESS OPERATIONS SEED`: the other end.
//!
//! # What is compared
//! Before an operation that looks at a connection (a read, `poll`, `FIONREAD`), both connections
//! are given up to ten seconds until they show what was sent: so many unread bytes, and the end of
//! the stream if there is one. From then on results have to be equal: numbers of bytes, the bytes,
//! errors, events. At most 32 KiB are on their way then, for which every buffer has room. Two
//! operations exceed the buffers. A flood is read meanwhile, and all of its bytes are compared. A
//! sender that fills a connection until it would block may send another number of bytes by each;
//! that it would block, is not writable then, and is writable again when all was read, is compared.
//! `readv` may return less than there is, as with any stream, so it is repeated until all that was
//! asked for has come. Its short results are counted. Bytes that were in a queue pair come by
//! packets when an end leaves it, so a `splice` that leaves it is given the time to find them. A
//! connection ends with its first difference: what follows may only be its consequence.
//!
//! # What may differ
//! `docs/guide/vmci.md` lists it: a reset may arrive as the end of the stream, and an end that goes
//! by packets is not writable after it has shut down its own direction. Operations that the
//! list excludes are not made: a half-closed reading direction, writes to a peer that has closed,
//! which TCP learns of later, `SO_RCVLOWAT`, `TIOCOUTQ`, and invalid memory.

mod agent;
mod allowed;
mod driver;
mod end;
mod helper;
mod operation;
mod random;
mod scenarios;
mod writes;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

use crate::calls::{raw_close, start_child};

use agent::Agent;
use driver::Driver;

/// Addresses of the two connections: by TCP, and by what the library chooses.
type Addresses = [SocketAddr; 2];

/// Runs one end or both.
pub(crate) fn run() {
    // No thread and no connection is there yet.
    helper::start();
    let words: Vec<String> = std::env::args().skip(2).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["both", operations, seed] => both(operations.parse().unwrap(), seed.parse().unwrap()),
        ["serve", tcp, other, control] => serve([tcp, other, control].map(|word| word.parse().unwrap())),
        ["drive", tcp, other, control, operations, seed] => {
            let control = TcpStream::connect(control).unwrap();
            control.set_nodelay(true).unwrap();
            let addresses = [tcp, other].map(|word| word.parse().unwrap());
            let driver = Driver::new(BufReader::new(control), addresses, false);
            drive(driver, operations.parse().unwrap(), seed.parse().unwrap());
        }
        ["rest", fd, direction, position, count] => {
            let numbers = [fd, direction, position, count].map(|word| word.parse().unwrap());
            writes::rest(numbers);
        }
        _ => panic!("unknown words {words:?}"),
    }
}

fn both(operations: u64, seed: u64) {
    let (own, other) = UnixStream::pair().unwrap();
    start_child(|| {
        // The agent ends with the driver, and only the driver may have this end.
        raw_close(own.as_raw_fd());
        let listeners = ["127.0.0.2:0", "127.0.0.1:0"].map(|address| TcpListener::bind(address).unwrap());
        let [tcp, library] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let mut agent = Agent::new(listeners);
        writeln!(&other, "{tcp} {library}").unwrap();
        agent.serve(BufReader::new(other));
        0
    });
    let mut control = BufReader::new(own);
    let mut line = String::new();
    control.read_line(&mut line).unwrap();
    let addresses: Vec<SocketAddr> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
    drive(Driver::new(control, [addresses[0], addresses[1]], true), operations, seed);
}

fn serve(addresses: [SocketAddr; 3]) {
    let [tcp, library, control] = addresses.map(|address| TcpListener::bind(address).unwrap());
    let mut agent = Agent::new([tcp, library]);
    println!("model: serves.");
    for stream in control.incoming() {
        let stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        agent.serve(BufReader::new(stream));
    }
}

/// Makes all scenarios, and then so many random operations. Prints what differs.
fn drive<S: driver::Control>(mut driver: Driver<S>, operations: u64, seed: u64) {
    scenarios::run(&mut driver);
    random::run(&mut driver, operations, seed);
    driver.end();
    println!("{}", driver.summary(seed));
    std::process::exit(i32::from(driver.differs()));
}
