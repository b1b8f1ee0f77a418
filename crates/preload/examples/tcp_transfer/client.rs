//! Connects, transfers, and says what came of it.

use std::io::{Error, Read as _, Result};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::pattern::Pattern;
use crate::say;
use crate::server::EXACT;
use crate::transfer::{Request, exchange};

/// Outcome of a transfer: what is wrong with it, if anything is.
type Outcome = Result<std::result::Result<(), String>>;

/// Numbers of connections by outcome.
#[derive(Default)]
struct Counts {
    exact: u64,
    wrong: u64,
    failed: u64,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let mut counts = Counts::default();
    let mut seed = options.seed;
    let begin = Instant::now();
    loop {
        round(options, seed, &mut counts);
        seed = seed.wrapping_add(options.connections);
        match &options.until {
            Some(file) if !file.exists() => {}
            _ => break,
        }
    }
    let Counts { exact, wrong, failed } = counts;
    let seconds = begin.elapsed().as_secs_f64();
    let bytes = exact.saturating_mul(options.bytes).saturating_mul(2);
    let rate = bytes as f64 * 8.0 / seconds / 1e6;
    say(&format!(
        "transfers: {exact} exact, {wrong} wrong, {failed} failed, {bytes} bytes, {rate:.0} Mbit/s"
    ));
    if wrong + failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes all connections, uses them at once, and keeps them open if that is wanted.
fn round(options: &Options, seed: u64, counts: &mut Counts) {
    let streams: Vec<_> = (0..options.connections).map(|_| TcpStream::connect(&options.address)).collect();
    thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .zip(seed..)
            .map(|(stream, seed)| {
                scope.spawn(move || match stream {
                    Ok(stream) => transfer(stream, options, seed),
                    Err(error) => Err(Error::new(error.kind(), format!("connect: {error}"))),
                })
            })
            .collect();
        for (thread, seed) in threads.into_iter().zip(seed..) {
            let outcome = thread.join().unwrap_or_else(|_| Err(Error::other("a thread has panicked")));
            count(counts, outcome, seed, options);
        }
    });
    if let Some(file) = &options.hold {
        say("holding");
        wait_for(file);
    }
}

fn count(counts: &mut Counts, outcome: Outcome, seed: u64, options: &Options) {
    let is_quiet = options.until.is_some();
    match outcome {
        Ok(Ok(())) => {
            counts.exact += 1;
            if !is_quiet {
                say(&format!("exact: {} bytes each way, seed {seed}", options.bytes));
            }
        }
        Ok(Err(why)) => {
            counts.wrong += 1;
            say(&format!("wrong: {why}, seed {seed}"));
        }
        Err(error) => {
            counts.failed += 1;
            say(&format!("failed: {error}, seed {seed}"));
        }
    }
}

fn transfer(mut stream: &TcpStream, options: &Options, seed: u64) -> Outcome {
    let pattern = Pattern { seed, secret: options.secret };
    Request { pattern, len: options.bytes, way: options.peer_way }.write(stream)?;
    let wrong = exchange(stream, (pattern, pattern.back()), options.bytes, options.way)?;
    let mut verdict = [0];
    stream.read_exact(&mut verdict)?;
    Ok(match (wrong, verdict == [EXACT]) {
        (None, true) => Ok(()),
        (Some(place), _) => Err(format!("byte {place} from the server")),
        (None, false) => Err("bytes to the server".to_owned()),
    })
}

fn wait_for(file: &Path) {
    while !file.exists() {
        thread::sleep(Duration::from_millis(50));
    }
}
