//! Witness of interruptions: a TCP connection and datagrams between two network namespaces.
//!
//! `serve` echoes both. `watch` sends eight bytes on each every millisecond, checks that every byte
//! of the connection comes back in order, and keeps a file with what it has seen: how long it was
//! silent for at most, what was lost, and how long ago the longest silence has ended. The number in
//! another file, the mark, tells the round; a new round begins with new figures. The mark `end`
//! ends the program once all bytes have come back.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::{Value, json};

/// Time between two messages.
const PACE: Duration = Duration::from_millis(1);
/// Time between two looks at the mark, and between two writes of the state.
const LOOK: Duration = Duration::from_millis(5);
/// Time that the last bytes may take to come back.
const DRAIN: Duration = Duration::from_secs(40);
/// Bytes of a message: its number.
const LEN: usize = 8;

/// Echoes, or watches a connection and datagrams for interruptions.
#[derive(Debug, Parser)]
enum Arguments {
    /// Echo what comes on a TCP and a UDP port.
    Serve {
        /// The port.
        port: u16,
    },
    /// Watch the way to a server.
    Watch {
        /// Its address and port.
        to: SocketAddr,
        /// File with the number of the round.
        mark: PathBuf,
        /// File for what was seen.
        state: PathBuf,
    },
}

fn main() -> Result<()> {
    match Arguments::parse() {
        Arguments::Serve { port } => serve(port),
        Arguments::Watch { to, mark, state } => watch(to, &mark, &state),
    }
}

fn serve(port: u16) -> Result<()> {
    let datagrams = UdpSocket::bind(("0.0.0.0", port))?;
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    thread::spawn(move || {
        let mut bytes = [0; 2048];
        loop {
            // A peer whose address is unknown for the moment is no reason to end.
            if let Ok((len, from)) = datagrams.recv_from(&mut bytes) {
                let _ = datagrams.send_to(&bytes[..len], from);
            }
        }
    });
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || echo(stream));
    }
    Ok(())
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            len => stream.write_all(&bytes[..len])?,
        }
    }
}

/// Answers to one kind of messages.
#[derive(Debug)]
struct Course {
    /// Messages sent, and messages that came back, of all rounds.
    sent: u64,
    came: u64,
    /// Messages that did not come back, or not in order, in this round.
    lost: u64,
    /// The number that is expected next.
    expected: u64,
    /// When the last message came back.
    last: Instant,
    /// The longest silence of this round, and its end.
    longest: Duration,
    ended: Instant,
}

impl Course {
    fn new() -> Self {
        let now = Instant::now();
        Self { sent: 0, came: 0, lost: 0, expected: 0, last: now, longest: Duration::ZERO, ended: now }
    }

    fn begin_round(&mut self) {
        (self.lost, self.longest, self.ended) = (0, Duration::ZERO, Instant::now());
    }

    /// Notes that a message came back.
    fn came(&mut self, number: u64) {
        let now = Instant::now();
        let silence = now - self.last;
        if silence > self.longest {
            (self.longest, self.ended) = (silence, now);
        }
        self.last = now;
        self.came += 1;
        // A datagram that overtook others was counted as lost with them.
        self.lost += number.saturating_sub(self.expected);
        if number >= self.expected {
            self.expected = number + 1;
        }
    }

    fn state(&self) -> Value {
        let now = Instant::now();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let since = now - self.last;
        // A silence that goes on counts.
        let (longest, ended) =
            if since > self.longest { (since, Duration::ZERO) } else { (self.longest, now - self.ended) };
        json!({ "sent": self.sent, "came": self.came, "lost": self.lost, "longest_ms": ms(longest),
            "since_ms": ms(since), "ended_ms_ago": ms(ended) })
    }
}

/// Everything that was seen.
#[derive(Debug)]
struct Seen {
    round: u64,
    stream: Course,
    datagrams: Course,
    /// Times that the connection broke.
    broken: u64,
    is_over: bool,
}

type Shared = Arc<Mutex<Seen>>;

fn lock(seen: &Shared) -> MutexGuard<'_, Seen> {
    seen.lock().expect("no thread panics while it notes something")
}

fn watch(to: SocketAddr, mark: &Path, state: &Path) -> Result<()> {
    let (stream, datagrams) = (Course::new(), Course::new());
    let seen = Arc::new(Mutex::new(Seen { round: 0, stream, datagrams, broken: 0, is_over: false }));
    watch_datagrams(to, &seen)?;
    let connection = Arc::clone(&seen);
    thread::spawn(move || watch_stream(to, &connection));
    let mut over_since = None;
    loop {
        let marked = fs::read_to_string(mark).unwrap_or_default();
        let mut now = lock(&seen);
        if marked.trim() == "end" {
            now.is_over = true;
            let since = *over_since.get_or_insert_with(Instant::now);
            let is_complete = now.stream.came == now.stream.sent;
            if is_complete || since.elapsed() > DRAIN {
                let missing = now.stream.sent - now.stream.came;
                println!(
                    "{}",
                    json!({ "messages": now.stream.sent, "missing": missing, "broken": now.broken })
                );
                return Ok(());
            }
        } else if let Ok(round) = marked.trim().parse::<u64>()
            && round != now.round
        {
            now.round = round;
            now.stream.begin_round();
            now.datagrams.begin_round();
        }
        let text = json!({ "round": now.round, "stream": now.stream.state(), "broken": now.broken,
            "datagrams": now.datagrams.state() });
        drop(now);
        let new = state.with_extension("new");
        fs::write(&new, text.to_string()).with_context(|| new.display().to_string())?;
        fs::rename(&new, state)?;
        thread::sleep(LOOK);
    }
}

fn watch_datagrams(to: SocketAddr, seen: &Shared) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    let (sender, notes) = (socket.try_clone()?, Arc::clone(seen));
    thread::spawn(move || {
        let mut number = 0_u64;
        while !lock(&notes).is_over {
            // A datagram that finds no room is lost like any other.
            let _ = sender.send(&number.to_be_bytes());
            number += 1;
            lock(&notes).datagrams.sent = number;
            thread::sleep(PACE);
        }
    });
    let notes = Arc::clone(seen);
    thread::spawn(move || {
        let mut bytes = [0; LEN];
        loop {
            if socket.recv(&mut bytes).is_ok_and(|len| len == LEN) {
                lock(&notes).datagrams.came(u64::from_be_bytes(bytes));
            }
        }
    });
    Ok(())
}

/// Keeps a connection, and another one when it breaks.
fn watch_stream(to: SocketAddr, seen: &Shared) {
    while !lock(seen).is_over {
        let ended = TcpStream::connect(to).map_err(Into::into).and_then(|stream| exchange(&stream, seen));
        let mut now = lock(seen);
        if let Err(error) = ended
            && !now.is_over
        {
            eprintln!("{error:#}");
            now.broken += 1;
            // Messages on their way are lost, and the next connection begins anew.
            now.stream.came = now.stream.sent;
            now.stream.expected = now.stream.sent;
        }
        drop(now);
        thread::sleep(LOOK);
    }
}

fn exchange(stream: &TcpStream, seen: &Shared) -> Result<()> {
    stream.set_nodelay(true)?;
    let (mut reader, notes) = (stream.try_clone()?, Arc::clone(seen));
    let reading = thread::spawn(move || -> Result<()> {
        let mut bytes = [0; LEN];
        loop {
            reader.read_exact(&mut bytes)?;
            let number = u64::from_be_bytes(bytes);
            let mut now = lock(&notes);
            if number != now.stream.expected {
                bail!("the connection gave back {number} in the place of {}", now.stream.expected);
            }
            now.stream.came(number);
        }
    });
    let mut writer = stream;
    while !reading.is_finished() && !lock(seen).is_over {
        let number = lock(seen).stream.sent;
        writer.write_all(&number.to_be_bytes())?;
        lock(seen).stream.sent = number + 1;
        thread::sleep(PACE);
    }
    // After the end, the reader goes on until the last message has come back.
    if reading.is_finished() {
        return reading.join().expect("the reader does not panic");
    }
    Ok(())
}
