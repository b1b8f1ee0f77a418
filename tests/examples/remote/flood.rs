//! Times of requests on the Unix socket, by turns beside nothing and beside a flood over TCP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Host, Outcome};

/// Pause between two requests on the socket.
const PAUSE: Duration = Duration::from_millis(2);
/// Time for the flood to begin.
const BEGINS: Duration = Duration::from_millis(500);

/// Times requests in rounds of so many seconds, each beside nothing and beside the flood.
pub(crate) fn run(rounds: usize, seconds: f64, rate: &str) -> Outcome<Value> {
    let host = Host::start()?;
    let view = host.token("view", "view")?;
    let mut caller = Caller::connect(&host)?;
    // The first requests warm up.
    caller.p99(1.0)?;
    let (mut quiet, mut flooded, mut floods) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut beside = |caller: &mut Caller| -> Outcome<()> {
            let mut flood = send(&host, &view, seconds + 2.0 * BEGINS.as_secs_f64(), rate)?;
            sleep(BEGINS);
            flooded.push(caller.p99(seconds)?);
            let mut text = String::new();
            flood.stdout.take().ok_or("no output")?.read_to_string(&mut text)?;
            flood.wait()?;
            floods.push(serde_json::from_str::<Value>(&text)?);
            // The buckets of the flood's address fill up again.
            sleep(BEGINS);
            Ok(())
        };
        if round % 2 == 0 {
            quiet.push(caller.p99(seconds)?);
            beside(&mut caller)?;
        } else {
            beside(&mut caller)?;
            quiet.push(caller.p99(seconds)?);
        }
    }
    let ratios: Vec<f64> = flooded.iter().zip(&quiet).map(|(flooded, quiet)| flooded / quiet).collect();
    let number =
        |name: &str| -> Vec<f64> { floods.iter().filter_map(|flood| flood[name].as_f64()).collect() };
    let least = number("per_second").into_iter().fold(f64::INFINITY, f64::min);
    let sum = |name: &str| number(name).iter().sum::<f64>();
    Ok(json!({
        "rounds": rounds,
        "quiet_p99_us": quiet,
        "flooded_p99_us": flooded,
        "ratios": ratios,
        "ratio": median(ratios.clone()),
        "least_per_second": least,
        "sent": sum("sent"),
        "good": sum("good"),
        "refused": sum("refused"),
        "others": sum("others"),
    }))
}

/// Starts the flood. It takes only time of the processors that nobody else wants, so that what is
/// measured is the daemon's part and not that of a program that would run elsewhere.
fn send(host: &Host, token: &str, seconds: f64, rate: &str) -> Outcome<std::process::Child> {
    let program = std::env::current_exe()?;
    let (address, seconds) = (host.address.to_string(), seconds.to_string());
    let child = Command::new("chrt")
        .args(["--idle", "0"])
        .arg(program)
        .args(["send", &address, &host.fingerprint, token, &seconds, rate])
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Somebody who uses the API on the Unix socket.
struct Caller(BufReader<UnixStream>);

impl Caller {
    fn connect(host: &Host) -> Outcome<Self> {
        Ok(Self(BufReader::new(UnixStream::connect(host.taut.dir().join("run/tautd.sock"))?)))
    }

    /// Returns the 99th percentile of the times of requests, in µs.
    fn p99(&mut self, seconds: f64) -> Outcome<f64> {
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        let mut times = Vec::new();
        while Instant::now() < end {
            let begun = Instant::now();
            self.ask()?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            sleep(PAUSE);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() * 99 / 100])
    }

    fn ask(&mut self) -> Outcome<()> {
        self.0.get_mut().write_all(b"GET /v1/vswitches HTTP/1.1\r\nhost: taut\r\n\r\n")?;
        let (mut line, mut length) = (String::new(), 0);
        self.0.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 200") {
            return Err(format!("the API answers {line}").into());
        }
        while line != "\r\n" {
            line.clear();
            self.0.read_line(&mut line)?;
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse()?;
            }
        }
        self.0.read_exact(&mut vec![0; length])?;
        Ok(())
    }
}
