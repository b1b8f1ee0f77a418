//! A flood of requests over TCP, at a rate, on some connections. It does not wait for answers.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taut_tests::TlsClient;

use crate::Outcome;

/// Connections, as many as an address may have.
const CONNECTIONS: u32 = 32;
/// Requests that are sent at once on a connection.
const BATCH: u32 = 25;

/// Requests and answers.
#[derive(Debug, Default)]
struct Counts {
    sent: u64,
    good: u64,
    refused: u64,
    others: u64,
}

/// Sends for some seconds.
pub(crate) fn run(
    address: SocketAddr,
    fingerprint: &str,
    token: &str,
    seconds: f64,
    rate: f64,
) -> Outcome<Value> {
    let clients = (0..CONNECTIONS).map(|_| TlsClient::connect(address, fingerprint));
    let mut clients: Vec<_> = clients.collect::<Result<_, _>>()?;
    let request =
        format!("GET /v1/vswitches HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n");
    let batch = request.repeat(BATCH as usize);
    let pause = Duration::from_secs_f64(f64::from(BATCH) / rate);
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(seconds);
    let (mut counts, mut next) = (Counts::default(), begun);
    for turn in 0.. {
        if Instant::now() >= end {
            break;
        }
        let client = &mut clients[turn % CONNECTIONS as usize];
        client.write(&batch)?;
        counts.sent += u64::from(BATCH);
        for status in client.statuses()? {
            counts.note(status);
        }
        next += pause;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let per_second = counts.sent as f64 / begun.elapsed().as_secs_f64();
    for client in &mut clients {
        for status in client.statuses()? {
            counts.note(status);
        }
    }
    let Counts { sent, good, refused, others } = counts;
    Ok(json!({
        "per_second": per_second, "sent": sent, "good": good, "refused": refused, "others": others,
    }))
}

impl Counts {
    fn note(&mut self, status: u16) {
        match status {
            200 => self.good += 1,
            429 => self.refused += 1,
            _ => self.others += 1,
        }
    }
}
