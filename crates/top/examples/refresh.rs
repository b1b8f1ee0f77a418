//! Measures how long a refresh of `taut top` takes on this host, beside made-up microguests and
//! with ports of a made-up daemon:
//!
//! `cargo run --release -p taut-top --example refresh -- MACHINES THREADS PORTS [ROUNDS]`.
//!
//! Each microguest is a copy of this program whose file is called as theirs. Its threads sleep, and
//! run a little every 300 ms, so that each of them has run between two refreshes. Prints one line
//! of JSON with percentiles in ms for each view, and for all of them together, as for CSV.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use taut_api::route::PortInfo;
use taut_top::csv;
use taut_top::keys::State;
use taut_top::rates;
use taut_top::reading::{Needs, Reader, Reading, allow_open_files};
use taut_top::screen::{self, Shown};
use taut_top::table;
use taut_top::view::View;

/// Time between two refreshes.
const EVERY: Duration = Duration::from_millis(310);
/// Time between two runs of a microguest's thread.
const TICK: Duration = Duration::from_millis(300);
/// Word on the command line that makes this program a microguest.
const MICROGUEST: &str = "microguest";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [MICROGUEST, "-name", _, threads] => microguest(threads.parse()?),
        [machines, threads, ports] => measure(machines.parse()?, threads, ports.parse()?, 30),
        [machines, threads, ports, rounds] => {
            measure(machines.parse()?, threads, ports.parse()?, rounds.parse()?)
        }
        _ => Err("usage: refresh MACHINES THREADS PORTS [ROUNDS]".into()),
    }
}

/// Runs the threads of a microguest until the standard input ends.
fn microguest(threads: u32) -> Result<(), Box<dyn Error>> {
    for number in 1..threads {
        let name = if number == 1 { "vcpu".to_owned() } else { format!("io {number}") };
        Builder::new().name(name).spawn(|| {
            loop {
                sleep(TICK);
            }
        })?;
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Made-up microguests, which end with the program.
struct Microguests(Vec<Child>);

impl Microguests {
    fn start(folder: &Path, count: u32, threads: &str) -> Result<Self, Box<dyn Error>> {
        let program = folder.join("taut-micro");
        fs::copy(std::env::current_exe()?, &program)?;
        let mut all = Self(Vec::new());
        for number in 0..count {
            let mut command = Command::new(&program);
            command.args([MICROGUEST, "-name", &format!("web{number}"), threads]);
            all.0.push(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        }
        for child in &mut all.0 {
            let mut said = [0; 6];
            child.stdout.as_mut().ok_or("no output")?.read_exact(&mut said)?;
        }
        Ok(all)
    }
}

impl Drop for Microguests {
    fn drop(&mut self) {
        for child in &mut self.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

fn measure(machines: u32, threads: &str, count: u32, rounds: usize) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let _microguests = Microguests::start(folder.path(), machines, threads)?;
    let answer: Vec<_> = (0..count).map(port).collect();
    let answer = serde_json::Value::from(answer).to_string();
    let ports = move || serde_json::from_str::<Vec<PortInfo>>(&answer).ok();
    allow_open_files();
    let mut reader = Reader::new(Path::new("/"), Box::new(ports));
    let all = View::ALL.into_iter().map(Needs::of).fold(Needs::LEAST, Needs::and);
    let last = reader.read(all);
    let vcpus: usize = last.machines.iter().map(|machine| machine.vcpus.len()).sum();
    let mut times = serde_json::Map::new();
    let mut terminal = Terminal::new(TestBackend::new(200, 60))?;
    for view in View::ALL {
        let expanded: BTreeSet<_> = last.machines.iter().map(|machine| machine.pid.to_string()).collect();
        let mut state = State { expanded, ..State::default() };
        state.settings.view = view;
        let show = |before: &Reading, now: &Reading| {
            let rates = rates::between(before, now);
            let rows = table::arranged(table::rows(view, &rates), &state.settings, &state.expanded);
            let shown = Shown { state: &state, rates: Some(&rates), rows: &rows };
            terminal.draw(|frame| screen::draw(frame, &shown)).is_ok()
        };
        times.insert(view.word().to_owned(), timed(&mut reader, Needs::of(view), rounds, show)?);
    }
    let csv = timed(&mut reader, all, rounds, |before, now| {
        let rates = rates::between(before, now);
        View::ALL.into_iter().all(|view| !(csv::header(view) + &csv::lines(view, &rates)).is_empty())
    })?;
    times.insert("csv".to_owned(), csv);
    let (machines, threads) = (last.machines.len(), last.threads.len());
    let found = serde_json::json!({
        "machines": machines, "vcpus": vcpus, "threads": threads, "ports": count, "ms": times,
    });
    println!("{found}");
    Ok(())
}

/// Returns percentiles of the time of a refresh and, of that, of the reading, in ms.
fn timed(
    reader: &mut Reader,
    needs: Needs,
    rounds: usize,
    mut show: impl FnMut(&Reading, &Reading) -> bool,
) -> Result<serde_json::Value, Box<dyn Error>> {
    let (mut wholes, mut readings) = (Vec::new(), Vec::new());
    let mut last = reader.read(needs);
    for _ in 0..rounds.max(1) {
        sleep(EVERY);
        let begun = Instant::now();
        let now = reader.read(needs);
        readings.push(begun.elapsed());
        if !show(&last, &now) {
            return Err("nothing can be shown".into());
        }
        wholes.push(begun.elapsed());
        last = now;
    }
    let percentiles = |mut times: Vec<Duration>| {
        times.sort();
        [50, 90, 100].map(|percent| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1000.0)
    };
    let ([p50, p90, most], [reading_p50, reading_p90, reading_most]) =
        (percentiles(wholes), percentiles(readings));
    Ok(serde_json::json!({
        "p50": p50, "p90": p90, "most": most,
        "reading_p50": reading_p50, "reading_p90": reading_p90, "reading_most": reading_most,
    }))
}

fn port(number: u32) -> serde_json::Value {
    let counters = serde_json::json!({ "rx_frames": 1_000_000, "tx_frames": 2_000_000, "kicks": 5 });
    serde_json::json!({
        "port": number, "owner": format!("vm/web{number}/nic0"), "mac": "02:00:00:00:00:01",
        "vswitch": "sw", "portgroup": "lan", "link": "up", "counters": counters,
    })
}
