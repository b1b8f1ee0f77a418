//! Streams over vsock between two machines while a command replaces the fabric again and again.
//!
//! Prints the result as JSON. In an upgrade every stream must continue with every byte right. Only
//! upgrades that ended before their streams count; the others are repeated under new streams. After
//! a kill the result is the time until connections are reset, and until the same listener can be
//! reached again.

use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use serde_json::json;
use taut_bench::agent::protocol::{Address, Answer, Request, Rr, Serve, Stream};
use taut_bench::agent::{Client, ClientError};

/// Time that an agent may take for quick requests.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time that a connection may take to be reset, or a listener to be reached, before it counts as
/// hung.
const HUNG: Duration = Duration::from_secs(20);
/// Bytes of each message and of socket buffer.
const MESSAGE: u32 = 64 << 10;
const SOCKET: u32 = 256 << 10;
/// Sets of streams for each set that is needed, if upgrades end after their streams.
const TRIES: u32 = 3;

/// Loads vsock connections while a command replaces the fabric again and again.
#[derive(Debug, Parser)]
struct Arguments {
    /// Unix sockets of the agents of sender and receiver.
    #[arg(num_args = 2, required = true)]
    agents: Vec<PathBuf>,
    /// Command for `sh -c` that replaces the fabric.
    #[arg(long)]
    command: String,
    /// Kind of replacement: connections must survive it, or be reset.
    #[arg(long, value_enum)]
    mode: Mode,
    /// Number of restarts.
    #[arg(long, default_value_t = 10)]
    events: u32,
    /// Time between two restarts in milliseconds.
    #[arg(long, default_value_t = 200)]
    settle_ms: u64,
    /// Number of concurrent connections.
    #[arg(long, default_value_t = 5)]
    sessions: u32,
    /// Attach both ends of each connection to queue pairs.
    #[arg(long)]
    rings: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Connections continue.
    Upgrade,
    /// Connections are reset.
    Kill,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let [from, to] = &arguments.agents[..] else { bail!("two agents are needed") };
    let mut receiver = Client::connect(to.display().to_string(), to, PATIENCE)?;
    let Answer::Cid(cid) = receiver.call(Request::Cid, PATIENCE)? else {
        bail!("no context ID was answered")
    };
    let way = |address: Address| if arguments.rings { address.attached() } else { address };
    let serve = Serve { address: Some(way(Address::ANY_VSOCK)), port: 0, socket_size: Some(SOCKET) };
    let Answer::Server(server) = receiver.call(Request::Serve(serve), PATIENCE)? else {
        bail!("no server was answered")
    };
    let mut load = Load {
        sender: Client::connect(from.display().to_string(), from, PATIENCE)?,
        to: way(Address::Vsock(cid)),
        port: server.port,
        arguments,
    };
    let result = match load.arguments.mode {
        Mode::Upgrade => load.upgrades()?,
        Mode::Kill => load.kills()?,
    };
    println!("{}", serde_json::to_string_pretty(&result)?);
    Ok(())
}

struct Load {
    sender: Client,
    to: Address,
    port: u16,
    arguments: Arguments,
}

impl Load {
    fn stream(&self, duration: Duration) -> Request {
        let duration_ms = duration.as_millis() as u64;
        Request::Stream(Stream {
            to: self.to.clone(),
            port: self.port,
            socket_size: Some(SOCKET),
            send_size: MESSAGE,
            receive_size: MESSAGE,
            check: true,
            sessions: self.arguments.sessions,
            duration_ms,
        })
    }

    /// Upgrades while streams run, at most ten for each set of streams. Fails if too few of the
    /// upgrades end before the streams.
    fn upgrades(&mut self) -> Result<serde_json::Value> {
        let (mut done, mut late, mut streams, mut bytes, mut errors) = (0, 0, 0, 0, Vec::new());
        let settle = Duration::from_millis(self.arguments.settle_ms);
        let events = self.arguments.events;
        // The duration of an upgrade is measured without load.
        let once = replace(&self.arguments.command)?;
        let mut longest = once;
        for _ in 0..TRIES * events.div_ceil(10) {
            let now = (events - done).min(10);
            let duration = (settle + 2 * longest) * now + 2 * settle;
            let (stream, command) = (self.stream(duration), self.arguments.command.clone());
            let mut replacing = None;
            let answer = self.sender.call_and_watch(stream, duration + PATIENCE + HUNG, || {
                let command = command.clone();
                let body = move || -> Result<Vec<Upgrade>> {
                    let upgrade = |_| -> Result<Upgrade> {
                        thread::sleep(settle);
                        let took = replace(&command)?;
                        Ok(Upgrade { took, ended: Instant::now() })
                    };
                    (0..now).map(upgrade).collect()
                };
                replacing = Some((Instant::now(), thread::spawn(body)));
            });
            let answered = Instant::now();
            let (began, replacing) = replacing.context("the stream never began")?;
            let upgrades = replacing.join().expect("replacing does not panic")?;
            // The answer comes later than the last byte.
            let mut counted = ended_before(&upgrades, answered.min(began + duration));
            longest = upgrades.iter().map(|upgrade| upgrade.took).fold(longest, Duration::max);
            match answer {
                Ok(Answer::Throughput(moved)) => bytes += moved.bytes,
                Ok(_) => bail!("the agent has answered something else"),
                Err(error) => {
                    errors.push(described(&error));
                    // The error is the result: it would only come again.
                    counted = now;
                }
            }
            (done, late) = (done + counted, late + now - counted);
            streams += self.arguments.sessions;
            if done >= events {
                return Ok(json!({ "upgrades": done, "late": late, "streams": streams, "bytes": bytes,
                    "errors": errors, "upgrade_ms": once.as_secs_f64() * 1e3 }));
            }
        }
        bail!("{done} of {events} upgrades ended before their streams, {late} after them: {errors:?}")
    }

    fn kills(&mut self) -> Result<serde_json::Value> {
        let (mut reset, mut reached, mut hung) = (Vec::new(), Vec::new(), 0);
        let settle = Duration::from_millis(self.arguments.settle_ms);
        for _ in 0..self.arguments.events {
            let (stream, command) = (self.stream(HUNG), self.arguments.command.clone());
            let mut killing = None;
            let answer = self.sender.call_and_watch(stream, HUNG + PATIENCE, || {
                let command = command.clone();
                killing = Some(thread::spawn(move || {
                    thread::sleep(settle);
                    let begun = Instant::now();
                    replace(&command).map(|_| begun)
                }));
            });
            let over = Instant::now();
            let killing = killing.context("the stream never began")?;
            let killed = killing.join().expect("killing does not panic")?;
            match answer {
                Err(ClientError::Failed { .. }) => reset.push(over - killed),
                Ok(_) => hung += 1,
                Err(error) => return Err(error.into()),
            }
            match self.reach(killed) {
                Some(at) => reached.push(at - killed),
                None => hung += 1,
            }
        }
        Ok(json!({ "kills": self.arguments.events, "sessions": self.arguments.sessions, "hung": hung,
            "reached": reached.len(), "reset_ms": spread(reset), "reached_ms": spread(reached) }))
    }

    /// Returns the time when a new connection has exchanged a message.
    fn reach(&mut self, since: Instant) -> Option<Instant> {
        while since.elapsed() < HUNG {
            let (to, port) = (self.to.clone(), self.port);
            let rr = Rr { to, port, socket_size: None, interval_us: None, size: 1, duration_ms: 1 };
            if self.sender.call(Request::Rr(rr), PATIENCE).is_ok() {
                return Some(Instant::now());
            }
        }
        None
    }
}

/// An upgrade that is over.
struct Upgrade {
    took: Duration,
    ended: Instant,
}

/// Counts the upgrades that ended before the streams did.
fn ended_before(upgrades: &[Upgrade], streams_ended: Instant) -> u32 {
    upgrades.iter().map(|upgrade| u32::from(upgrade.ended < streams_ended)).sum()
}

/// Runs the command. Returns how long it took.
fn replace(command: &str) -> Result<Duration> {
    let begun = Instant::now();
    let output = Command::new("sh").args(["-c", command]).output().context("cannot run sh")?;
    if !output.status.success() {
        bail!("`{command}` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(begun.elapsed())
}

fn described(error: &ClientError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Returns median, 99th percentile and maximum in ms.
fn spread(mut times: Vec<Duration>) -> Option<[f64; 3]> {
    times.sort_unstable();
    let at =
        |quantile: f64| times[((times.len() - 1) as f64 * quantile).round() as usize].as_secs_f64() * 1e3;
    (!times.is_empty()).then(|| [at(0.5), at(0.99), at(1.0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrades_that_end_with_or_after_the_streams_do_not_count() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let upgrades = [100, 299, 300, 450].map(|ms| Upgrade { took: Duration::ZERO, ended: at(ms) });
        assert_eq!(ended_before(&upgrades, at(300)), 2);
        assert_eq!(ended_before(&upgrades, at(50)), 0);
    }
}
