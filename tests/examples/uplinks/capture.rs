//! A TCP connection between two namespaces is captured at one of them. The stream is put together
//! again from the captured frames.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::{Capture, Captured, CapturedFrame, Netns, Taut};

use crate::Outcome;
use crate::veth::within;

const SERVER: &str = "10.79.0.1";
const CLIENT: &str = "10.79.0.2";
const PORT: u16 = 7079;
/// Bytes that are written at once.
const BLOCK: usize = 64 << 10;
/// Pause between two of them on the paced connection: about 60 MB/s.
const PACE: Duration = Duration::from_millis(1);
/// Time in which the program that captures has read everything.
const SETTLED: Duration = Duration::from_secs(3);

/// Captures so many MiB, paced and as fast as they go.
pub(crate) fn run(mib: usize) -> Outcome<Value> {
    let taut = Taut::start().with_lan();
    let server = Netns::attach(&taut, "server", "lan", SERVER);
    let client = Netns::attach(&taut, "client", "lan", CLIENT);
    let mut found = json!({ "mib": mib });
    for (name, pace) in [("paced", PACE), ("fast", Duration::ZERO)] {
        let capture =
            Capture::start(&taut, &format!("netns/{}", server.name), &format!("{name}.pcapng"), &[]);
        let begun = Instant::now();
        transfer(&server.name, &client.name, mib << 20, pace)?;
        let took = begun.elapsed();
        std::thread::sleep(SETTLED);
        capture.interrupt();
        let (success, said, captured) = capture.wait();
        if !success {
            return Err(said.into());
        }
        let (seen, lost) = captured.numbers.ok_or("the file has no end")?;
        let is_complete = put_together(&captured, mib << 20) == Some(mib << 20);
        found[name] = json!({
            "complete": u8::from(is_complete), "frames": seen, "lost": lost,
            "lost_percent": 100.0 * lost as f64 / seen.max(1) as f64,
            "mb_per_s": (mib << 20) as f64 / 1e6 / took.as_secs_f64(),
        });
    }
    Ok(found)
}

/// The byte of the stream at an offset.
fn byte(offset: usize) -> u8 {
    (offset.wrapping_mul(2_654_435_761) >> 16) as u8
}

/// Sends so many bytes from the client to the server.
fn transfer(server: &str, client: &str, bytes: usize, pace: Duration) -> Outcome<()> {
    let listener = within(server, || TcpListener::bind((SERVER, PORT)))?;
    let mut stream = within(client, || TcpStream::connect((SERVER, PORT)))?;
    let (mut accepted, _) = listener.accept()?;
    let reader = std::thread::spawn(move || -> std::io::Result<usize> {
        let (mut block, mut total) = (vec![0; BLOCK], 0);
        loop {
            match accepted.read(&mut block)? {
                0 => return Ok(total),
                count => total += count,
            }
        }
    });
    for first in (0..bytes).step_by(BLOCK) {
        let block: Vec<u8> = (first..bytes.min(first + BLOCK)).map(byte).collect();
        stream.write_all(&block)?;
        if !pace.is_zero() {
            std::thread::sleep(pace);
        }
    }
    drop(stream);
    let got = reader.join().map_err(|_| "the reader has failed")??;
    if got == bytes { Ok(()) } else { Err(format!("{got} of {bytes} bytes came").into()) }
}

/// Returns how many bytes of the stream the captured frames have without a gap, if all are right;
/// `None` if a byte is wrong, or the connection's first segment was not captured.
fn put_together(captured: &Captured, most: usize) -> Option<usize> {
    let segments: Vec<Segment<'_>> = captured.frames.iter().filter_map(Segment::of).collect();
    let first = segments.iter().find(|segment| segment.is_first)?.sequence.wrapping_add(1);
    let mut parts = BTreeMap::new();
    for segment in segments.iter().filter(|segment| !segment.payload.is_empty()) {
        let offset = segment.sequence.wrapping_sub(first) as usize;
        let is_right = segment.payload.iter().zip(offset..).all(|(&got, at)| got == byte(at));
        if offset > most || !is_right {
            return None;
        }
        let end = parts.entry(offset).or_insert(0);
        *end = segment.payload.len().max(*end);
    }
    let whole = parts.into_iter().fold(
        0,
        |whole, (offset, len)| {
            if offset <= whole { whole.max(offset + len) } else { whole }
        },
    );
    Some(whole)
}

/// A TCP segment from the client to the server.
struct Segment<'c> {
    sequence: u32,
    /// The segment opens the connection.
    is_first: bool,
    payload: &'c [u8],
}

impl<'c> Segment<'c> {
    /// Reads an Ethernet frame with IPv4 and TCP; `None` for any other.
    fn of(frame: &'c CapturedFrame) -> Option<Self> {
        const SYN: u8 = 2;
        let ip = frame.bytes.get(14..)?;
        let is_ours = frame.bytes[12..14] == [8, 0] && *ip.get(9)? == 6 && !frame.is_sent;
        let ip_header = usize::from(ip[0] & 15) * 4;
        let whole = ip.get(..usize::from(u16::from_be_bytes([ip[2], ip[3]])))?;
        let tcp = whole.get(ip_header..).filter(|tcp| tcp.len() >= 20 && is_ours)?;
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        let payload = tcp.get(usize::from(tcp[12] >> 4) * 4..)?;
        Some(Self { sequence, is_first: tcp[13] & SYN != 0, payload })
    }
}
