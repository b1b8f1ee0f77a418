//! Loads and measures serial consoles.
//!
//! `console_load flood PID SOCKET DOOR BYTES SECONDS` takes from the QEMU process PID its end of
//! the connection on its serial SOCKET, writes at least so many bytes for at least so many seconds
//! as its guest could, then a line that has to come out at DOOR, where people connect.
//!
//! `console_load echo DOOR SECONDS` types characters one after the other, and measures how long the
//! guest's terminal takes to echo each.
//!
//! Both print one line of JSON.

use std::error::Error;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes of a write, as large as QEMU's largest.
const BLOCK: usize = 64 << 10;
/// Time without output after which a console counts as quiet.
const QUIET: Duration = Duration::from_millis(200);
/// Longest time for a line to be seen, or for an echo.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time from one typed character to the next.
const PACE: Duration = Duration::from_millis(50);

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = match words[..] {
        ["flood", pid, socket, door, bytes, seconds] => {
            let least = Duration::from_secs(seconds.parse()?);
            flood(pid.parse()?, socket, door, bytes.parse()?, least)?
        }
        ["echo", door, seconds] => echo(door, Duration::from_secs(seconds.parse()?))?,
        _ => return Err("usage: console_load flood PID SOCKET DOOR BYTES SECONDS | echo DOOR SECONDS".into()),
    };
    println!("{found}");
    Ok(())
}

fn flood(pid: i32, socket: &str, door: &str, bytes: u64, least: Duration) -> Outcome<Value> {
    let mut serial = UnixStream::from(connection(pid, socket)?);
    let lines: Vec<u8> = b"a guest that prints for ever\r\n".iter().copied().cycle().take(BLOCK).collect();
    let begun = Instant::now();
    let (mut written, mut longest) = (0_u64, Duration::ZERO);
    while written < bytes || begun.elapsed() < least {
        let before = Instant::now();
        written += put(&mut serial, &lines)? as u64;
        longest = longest.max(before.elapsed());
    }
    let took = begun.elapsed();
    let mut person = UnixStream::connect(door)?;
    person.set_read_timeout(Some(PATIENCE))?;
    let marker = format!("\r\nmarker {pid}\r\n");
    let told = Instant::now();
    let mut rest = marker.as_bytes();
    while !rest.is_empty() {
        rest = &rest[put(&mut serial, rest)?..];
    }
    until_seen(&mut person, marker.trim())?;
    Ok(json!({
        "bytes": written,
        "seconds": took.as_secs_f64(),
        "longest_write_ms": ms(longest),
        "seen_ms": ms(told.elapsed()),
    }))
}

/// Returns the process's end of a connection that it accepted on this socket.
fn connection(pid: i32, socket: &str) -> Outcome<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid).ok_or("0 is no process")?, PidfdFlags::empty())?;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let Ok(target) = entry.path().read_link() else { continue };
        if !target.to_string_lossy().starts_with("socket:") {
            continue;
        }
        let number = entry.file_name().to_string_lossy().parse()?;
        let stream = UnixStream::from(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?);
        // A socket that listens has no peer.
        let own = stream.local_addr().ok();
        let is_it = own.as_ref().and_then(|own| own.as_pathname()).is_some_and(|own| own.ends_with(socket));
        if is_it && stream.peer_addr().is_ok() {
            return Ok(stream.into());
        }
    }
    Err(format!("process {pid} has no connection on {socket}").into())
}

/// Writes what there is room for, and waits until there is some.
fn put(stream: &mut UnixStream, bytes: &[u8]) -> Outcome<usize> {
    loop {
        match stream.write(bytes) {
            // QEMU made it non-blocking.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !is_ready(&*stream, PollFlags::OUT, PATIENCE)? {
                    return Err(format!("nothing was taken for {PATIENCE:?}").into());
                }
            }
            done => return Ok(done?),
        }
    }
}

fn is_ready(fd: impl AsFd, flags: PollFlags, time: Duration) -> Outcome<bool> {
    let fd = fd.as_fd();
    Ok(poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&Timespec::try_from(time)?))? > 0)
}

fn until_seen(person: &mut UnixStream, wanted: &str) -> Outcome<()> {
    let (mut seen, mut part) = (Vec::new(), vec![0; BLOCK]);
    while !seen.windows(wanted.len()).any(|bytes| bytes == wanted.as_bytes()) {
        let count = person.read(&mut part)?;
        if count == 0 {
            return Err("the console was closed".into());
        }
        let old = seen.len().saturating_sub(wanted.len());
        seen.drain(..old);
        seen.extend_from_slice(&part[..count]);
    }
    Ok(())
}

fn echo(door: &str, time: Duration) -> Outcome<Value> {
    let mut console = UnixStream::connect(door)?;
    let mut part = vec![0; BLOCK];
    while is_ready(&console, PollFlags::IN, QUIET)? {
        if console.read(&mut part)? == 0 {
            return Err("the console was closed".into());
        }
    }
    let (begun, mut delays, mut unanswered) = (Instant::now(), Vec::new(), 0_u32);
    while begun.elapsed() < time {
        let typed = Instant::now();
        let character = b'a' + (delays.len() % 26) as u8;
        console.write_all(&[character])?;
        let mut is_echoed = false;
        while !is_echoed && is_ready(&console, PollFlags::IN, PATIENCE.saturating_sub(typed.elapsed()))? {
            let count = console.read(&mut part)?;
            is_echoed = part[..count].contains(&character);
        }
        if is_echoed {
            delays.push(ms(typed.elapsed()));
        } else {
            unanswered += 1;
        }
        std::thread::sleep(PACE.saturating_sub(typed.elapsed()));
    }
    delays.sort_by(f64::total_cmp);
    let at =
        |share: f64| delays.get(((delays.len() as f64 * share) as usize).min(delays.len().wrapping_sub(1)));
    Ok(json!({
        "count": delays.len(),
        "unanswered": unanswered,
        "p50_ms": at(0.5),
        "p99_ms": at(0.99),
        "longest_ms": at(1.0),
    }))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
