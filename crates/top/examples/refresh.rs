//! Measures how long a refresh of `taut top` takes on this host, beside made-up microguests and with
//! ports of a made-up daemon:
//!
//! `cargo run --release -p taut-top --example refresh -- MACHINES THREADS PORTS [ROUNDS]`.
//!
//! Each microguest is a copy of this program whose file is called as theirs. Its threads sleep, and
//! run a little every 300 ms, so that each of them has run between two refreshes. Prints percentiles
//! for each view, and for all of them together, as for CSV.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
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
use taut_top::reading::{Needs, Reader, Reading};
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
    let mut reader = Reader::new(Path::new("/"), Box::new(ports));
    let all = View::ALL.into_iter().map(Needs::of).fold(Needs::LEAST, Needs::and);
    let last = reader.read(all);
    let vcpus: usize = last.machines.iter().map(|machine| machine.vcpus.len()).sum();
    println!("{} VMs, {vcpus} vCPUs, {} threads, {count} ports", last.machines.len(), last.threads.len());
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
        print_times(&view.to_string(), &mut reader, Needs::of(view), rounds, show)?;
    }
    print_times("CSV of all views", &mut reader, all, rounds, |before, now| {
        let rates = rates::between(before, now);
        View::ALL
            .into_iter()
            .all(|view| !csv::header(view).is_empty() && csv::lines(view, &rates).len() < 1 << 30)
    })
}

/// Prints percentiles of the time of a refresh and, of that, of the reading.
fn print_times(
    what: &str,
    reader: &mut Reader,
    needs: Needs,
    rounds: usize,
    mut show: impl FnMut(&Reading, &Reading) -> bool,
) -> Result<(), Box<dyn Error>> {
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
        let of = |percent: usize| times[(times.len() - 1) * percent / 100];
        format!("p50 {:.1?}, p90 {:.1?}, most {:.1?}", of(50), of(90), of(100))
    };
    let line = format!("{what}: {}; reading {}", percentiles(wholes), percentiles(readings));
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

fn port(number: u32) -> serde_json::Value {
    let counters = serde_json::json!({ "rx_frames": 1_000_000, "tx_frames": 2_000_000, "kicks": 5 });
    serde_json::json!({
        "port": number, "owner": format!("vm/web{number}/nic0"), "mac": "02:00:00:00:00:01",
        "vswitch": "sw", "portgroup": "lan", "link": "up", "counters": counters,
    })
}
