//! Serves connections, each on a thread of its own.

use std::io::{Read as _, Write as _};
use std::thread;

use anyhow::{Result, bail};

use crate::arguments::Listen;
use crate::line::{Line, Listener};
use crate::opening::{Opening, Pattern, Report, Wanted};

/// Bytes of each read of a stream.
const READ: usize = 64 << 10;
/// Most bytes of a message.
const MOST: u32 = 64 << 20;

pub(crate) fn run(listen: &Listen) -> Result<()> {
    let listener = Listener::new(listen.tcp.as_deref(), listen.port)?;
    println!("{}", serde_json::json!({ "listening": listen.port }));
    let mut threads = Vec::new();
    for _ in 0..listen.connections.unwrap_or(u64::MAX) {
        let accepted = listener.accept()?;
        let options = listen.attaching.options();
        threads.push(thread::spawn(move || {
            let served = accepted.into_line(options.as_ref()).and_then(serve);
            if let Err(error) = served {
                eprintln!("a connection ended: {error:#}");
            }
        }));
        threads.retain(|thread| !thread.is_finished());
    }
    for thread in threads {
        drop(thread.join());
    }
    Ok(())
}

fn serve(mut line: Line) -> Result<()> {
    if let Some(reason) = &line.reason {
        eprintln!("not attached: {reason}");
    }
    let Opening { wanted, size } = Opening::read(&mut line)?;
    match wanted {
        Wanted::Stream => stream(line, false),
        Wanted::CheckedStream => stream(line, true),
        Wanted::Rr if (1..=MOST).contains(&size) => rr(line, size as usize),
        Wanted::Rr => bail!("messages of {size} bytes are wanted"),
    }
}

/// Reads a stream to its end and reports the bytes.
fn stream(mut line: Line, check: bool) -> Result<()> {
    let pattern = check.then(|| Pattern::new(READ));
    let mut buffer = vec![0; READ];
    let mut bytes = 0;
    loop {
        let count = line.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        let part = &buffer[..count];
        if pattern.as_ref().is_some_and(|pattern| pattern.from(bytes, count) != part) {
            bail!("other bytes than were sent, within {count} from byte {bytes} on");
        }
        bytes += count as u64;
    }
    Report { bytes, kind: line.kind() }.write(&mut line)?;
    line.finish()?;
    // Until the client has the report.
    let _ = line.read(&mut [0; 1]);
    Ok(())
}

/// Returns messages until the client ends. Says first how the bytes of this end go.
fn rr(mut line: Line, size: usize) -> Result<()> {
    Report { bytes: 0, kind: line.kind() }.write(&mut line)?;
    let mut message = vec![0; size];
    loop {
        // The end of the stream is where a message would begin.
        let count = line.read(&mut message)?;
        if count == 0 {
            return Ok(());
        }
        line.read_exact(&mut message[count..])?;
        line.write_all(&message)?;
    }
}
