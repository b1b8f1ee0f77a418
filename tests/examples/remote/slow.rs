//! Connections that are held open, and when the daemon closes them.

use std::io::Read as _;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Host, Outcome};

/// Time after which a connection counts as never closed.
const NEVER: Duration = Duration::from_secs(60);
/// Connections of each kind.
const OF_KIND: usize = 8;

/// Opens connections of four kinds and waits until they are closed.
pub(crate) fn run() -> Outcome<Value> {
    let host = Host::start()?;
    let token = host.token("admin", "admin")?;
    let begun = Instant::now();
    let mut waiting = Vec::new();
    for _ in 0..OF_KIND {
        let silent = TcpStream::connect(host.address)?;
        silent.set_read_timeout(Some(NEVER))?;
        waiting.push(thread::spawn(move || {
            let _ = (&silent).read(&mut [0; 64]);
            begun.elapsed()
        }));
        let body = format!(
            "PUT /v1/portgroups/x HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             content-length: 100\r\n\r\n{{"
        );
        for part in ["", "GET / HTTP/1.1\r\nhost: loc", &body] {
            let mut client = host.connect()?;
            client.write(part)?;
            waiting.push(thread::spawn(move || {
                client.read_to_end();
                begun.elapsed()
            }));
        }
    }
    let mut longest = Duration::ZERO;
    let (mut closed, mut open) = (0, 0);
    for one in waiting {
        let after = one.join().map_err(|_| "a thread has panicked")?;
        longest = longest.max(after);
        if after < NEVER { closed += 1 } else { open += 1 }
    }
    Ok(json!({ "closed": closed, "open": open, "longest_s": longest.as_secs_f64() }))
}
