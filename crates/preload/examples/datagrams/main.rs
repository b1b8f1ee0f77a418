//! An ordinary program with datagram sockets of `AF_VSOCK`, for guests:
//!
//! - `datagrams`: runs all scenarios by the kernel's loopback for `AF_VSOCK`.
//! - `datagrams serve`: returns every datagram to its sender.
//! - `datagrams drive CID COUNT`: waits for that server, sends it as many, and compares what comes
//!   back.

mod scenarios;
mod socket;

use std::io;
use std::time::Instant;

use socket::{Address, Socket};

const PORT: u32 = 700;
/// Most datagrams on their way. What is on its way fits into the buffers of both directions.
const WINDOW: u64 = 64;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse().ok());
    match (words.first().map(String::as_str), number(1), number(2)) {
        (None, ..) => run_scenarios(),
        (Some("serve"), ..) => serve(),
        (Some("drive"), Some(cid), Some(count)) => drive(cid as u32, count),
        _ => Err(io::Error::other("usage: datagrams [serve | drive CID COUNT]")),
    }
}

fn run_scenarios() -> io::Result<()> {
    if let Err(error) = Socket::new() {
        println!("datagrams: refused: {error}.");
        return Ok(());
    }
    for (name, scenario) in scenarios::ALL {
        // A panic ends the program with its message.
        scenario()?;
        println!("datagrams: {name}.");
    }
    println!("datagrams: all scenarios passed.");
    Ok(())
}

fn serve() -> io::Result<()> {
    let socket = Socket::at(PORT)?;
    println!("datagrams: serves.");
    let mut room = vec![0; 65_536];
    loop {
        let (count, from) = socket.receive(&mut room, 0)?;
        socket.send_to(&room[..count], from)?;
    }
}

/// Length of a datagram: short ones more often than long ones.
fn length(number: u64) -> usize {
    let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let power = (random >> 60).min((random >> 56) & 15);
    8 + ((random >> 20) & ((2 << power) - 1)).min(65_528) as usize
}

/// Waits until a server answers. Its machine may be booting: what is sent until then is lost.
fn wait_for(server: Address) -> io::Result<()> {
    let socket = Socket::new()?;
    socket.connect(server)?;
    loop {
        socket.send(b"hello", 0)?;
        if socket.poll(libc::POLLIN, 500)? {
            return Ok(());
        }
    }
}

fn drive(cid: u32, count: u64) -> io::Result<()> {
    wait_for((cid, PORT))?;
    let socket = Socket::new()?;
    socket.connect((cid, PORT))?;
    let mut pattern = vec![0; 70_000];
    for (at, byte) in pattern.iter_mut().enumerate() {
        *byte = (at * 31 + (at >> 8) * 7) as u8;
    }
    let mut room = vec![0; 65_537];
    let (began, mut bytes, mut back) = (Instant::now(), 0, 0);
    for number in 0..count + WINDOW {
        if number < count {
            let len = length(number);
            pattern[..8].copy_from_slice(&number.to_le_bytes());
            socket.send(&pattern[..len], 0)?;
        }
        if number >= WINDOW && back < count {
            assert!(socket.poll(libc::POLLIN, 30_000)?, "datagram {back} of {count} does not come back");
            let (len, _) = socket.receive(&mut room, 0)?;
            assert_eq!(room[..8], back.to_le_bytes(), "another datagram comes back");
            assert_eq!(len, length(back), "datagram {back} has another length");
            assert_eq!(room[8..len], pattern[8..len], "datagram {back} is not the same");
            bytes += len;
            back += 1;
        }
    }
    let ms = began.elapsed().as_millis();
    println!("datagrams: {back} came back as they were, {bytes} bytes each way, {ms} ms.");
    Ok(())
}
