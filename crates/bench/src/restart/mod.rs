//! Restarts of a vhost-user switch under load.
//!
//! Pairs of ports send each other numbered frames while a command replaces the switch again and
//! again. The result counts exactly which frames were lost, repeated, late or damaged, how long
//! each port received nothing, and how often its link went down.
//!
//! Each port keeps up to a hundred frames under way, so that nothing is dropped for want of room.
//! One thread plays all drivers. The time that it takes to visit all of them is the resolution of
//! the result, and part of it.

mod frame;
mod port;
mod tally;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use port::{Driver, Port};
use tally::Counts;

/// Time that links may take to come up at first.
const PATIENCE: Duration = Duration::from_secs(30);
/// Silence after which a port counts as hung.
const HUNG: Duration = Duration::from_secs(10);
/// Time between two checks of the sockets.
const LOOK: Duration = Duration::from_millis(2);

/// Ports, command and pace.
#[derive(Debug, Clone)]
pub struct RestartOptions {
    /// vhost-user sockets, two for each pair.
    pub sockets: Vec<PathBuf>,
    /// Listen on the sockets and have the switch connect; otherwise the switch listens.
    pub listen: bool,
    /// Command for `sh -c` that replaces the switch. JSON that it prints is kept.
    pub command: String,
    /// Number of restarts.
    pub events: u32,
    /// Time between two restarts.
    pub settle: Duration,
    /// Entries of each ring.
    pub ring: u16,
    /// Half of the ports ask for packed rings.
    pub packed: bool,
}

/// Results of all restarts. Times are in milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Restarts {
    /// Number of ports.
    pub ports: usize,
    /// Number of restarts.
    pub events: u32,
    /// Frames sent.
    pub frames: u64,
    /// Longest silence of each port at each restart: median, 99th percentile, maximum.
    pub gap_ms: [f64; 3],
    /// Longest silence of the worst port at each restart: median, 99th percentile, maximum.
    pub worst_port_gap_ms: [f64; 3],
    /// Longest silence of each port in an equally long time without a restart: median, 99th
    /// percentile, maximum.
    pub calm_ms: [f64; 3],
    /// Frames that never arrived.
    pub lost: u64,
    /// Frames that arrived again.
    pub doubled: u64,
    /// Frames that arrived after a later one.
    pub late: u64,
    /// Frames that arrived damaged.
    pub corrupted: u64,
    /// Most frames of one direction that were lost at one restart.
    pub most_lost: u64,
    /// Most frames of one direction that were repeated at one restart.
    pub most_doubled: u64,
    /// Number of times that a link went down, over all ports.
    pub link_downs: u64,
    /// Ports without a frame for ten seconds, over all restarts.
    pub hung: u64,
    /// JSON that the command printed.
    pub said: Vec<Value>,
}

struct Load {
    ports: Vec<Port>,
    looked: Instant,
    /// All links have been up once: frames count from now on.
    sends: bool,
}

/// Runs the command repeatedly and counts frames meanwhile.
pub fn run(options: &RestartOptions) -> Result<Restarts> {
    if options.sockets.is_empty() || !options.sockets.len().is_multiple_of(2) {
        bail!("{} sockets are not pairs", options.sockets.len());
    }
    let mut load = Load::new(options)?;
    load.until("links to come up", PATIENCE, |load| load.ports.iter().all(Port::is_up))?;
    let began = Instant::now();
    load.sends = true;
    load.until("frames", PATIENCE, |load| load.ports.iter().all(|port| port.has_heard_since(began)))?;

    let (mut calm, mut gaps, mut worst) = (Vec::new(), Vec::new(), Vec::new());
    let (mut most_lost, mut most_doubled, mut hung) = (0, 0, 0);
    let mut said = Vec::new();
    for _ in 0..options.events {
        load.begin_silence();
        load.run_for(options.settle)?;
        calm.extend(load.silences());

        let before = load.counts();
        load.begin_silence();
        let command = options.command.clone();
        let event = std::thread::spawn(move || Command::new("sh").arg("-c").arg(command).output());
        while !event.is_finished() {
            load.turn()?;
        }
        let output = event.join().ok().context("running the command panicked")??;
        if !output.status.success() {
            bail!("the command failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        said.extend(serde_json::from_slice::<Value>(&output.stdout));
        let over = Instant::now();
        let all_heard = |load: &mut Load| load.ports.iter().all(|port| port.has_heard_since(over));
        if load.until("frames", HUNG, all_heard).is_err() {
            hung += load.ports.iter().filter(|port| !port.has_heard_since(over)).count() as u64;
        }
        load.run_for(options.settle)?;
        let silences = load.silences();
        worst.push(silences.iter().copied().fold(0.0, f64::max));
        gaps.extend(silences);
        for (before, after) in before.iter().zip(load.counts()) {
            most_lost = most_lost.max(after.lost.saturating_sub(before.lost));
            most_doubled = most_doubled.max(after.doubled - before.doubled);
        }
    }
    let counts = load.counts();
    let sum = |count: fn(&Counts) -> u64| counts.iter().map(count).sum();
    Ok(Restarts {
        ports: load.ports.len(),
        events: options.events,
        frames: load.ports.iter().map(Port::sent).sum(),
        gap_ms: quantiles(gaps),
        worst_port_gap_ms: quantiles(worst),
        calm_ms: quantiles(calm),
        lost: sum(|counts| counts.lost),
        doubled: sum(|counts| counts.doubled),
        late: sum(|counts| counts.late),
        corrupted: sum(|counts| counts.corrupted),
        most_lost,
        most_doubled,
        link_downs: load.ports.iter().map(|port| port.downs).sum(),
        hung,
        said,
    })
}

impl Load {
    fn new(options: &RestartOptions) -> Result<Self> {
        let port = |(number, socket): (usize, &PathBuf)| {
            // Every combination of interrupts and packed rings, pair by pair.
            let pair = number / 2;
            let driver = Driver {
                event_idx: pair.is_multiple_of(2),
                packed: options.packed && (pair / 2).is_multiple_of(2),
                interrupted: (pair / 4).is_multiple_of(2),
            };
            Port::new(number, socket, options.listen, driver, options.ring)
        };
        let ports = options.sockets.iter().enumerate().map(port).collect::<Result<_>>()?;
        Ok(Self { ports, looked: Instant::now(), sends: false })
    }

    /// Visits every port once.
    fn turn(&mut self) -> Result<()> {
        for at in 0..self.ports.len() {
            let now = Instant::now();
            self.ports[at].receive(now)?;
            if !self.sends {
                continue;
            }
            let peer = &self.ports[at ^ 1];
            let (heard, silent_for) = (peer.heard(), peer.silent_for(now));
            if let Some(number) = self.ports[at].send(heard, silent_for)? {
                self.ports[at ^ 1].tally.give_up(number);
            }
        }
        if self.looked.elapsed() > LOOK {
            self.look_at_links()?;
            self.looked = Instant::now();
        }
        Ok(())
    }

    fn look_at_links(&mut self) -> Result<()> {
        let mut ended = Vec::new();
        {
            let up: Vec<_> =
                (0..).zip(&self.ports).filter_map(|(at, port)| Some((at, port.socket()?))).collect();
            let mut polled: Vec<_> =
                up.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::RDHUP)).collect();
            poll(&mut polled, Some(&Timespec::default()))?;
            ended.extend(
                up.iter().zip(&polled).filter(|(_, fd)| !fd.revents().is_empty()).map(|((at, _), _)| *at),
            );
        }
        for at in ended {
            let port: &mut Port = &mut self.ports[at];
            port.go_down()?;
        }
        self.ports.iter_mut().try_for_each(Port::come_up)
    }

    fn run_for(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.turn()?;
        }
        Ok(())
    }

    fn until(&mut self, what: &str, patience: Duration, mut so: impl FnMut(&mut Self) -> bool) -> Result<()> {
        let end = Instant::now() + patience;
        while !so(self) {
            if Instant::now() > end {
                bail!("timed out after {patience:?} waiting for {what}");
            }
            self.turn()?;
        }
        Ok(())
    }

    fn begin_silence(&mut self) {
        self.ports.iter_mut().for_each(Port::begin_silence);
    }

    /// Returns the longest silence of each port in ms.
    fn silences(&self) -> Vec<f64> {
        let now = Instant::now();
        self.ports.iter().map(|port| port.longest_silence(now).as_secs_f64() * 1000.0).collect()
    }

    fn counts(&self) -> Vec<Counts> {
        self.ports.iter().map(|port| port.tally.counts).collect()
    }
}

/// Returns median, 99th percentile and maximum.
fn quantiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return [0.0; 3] };
    [0.5, 0.99, 1.0].map(|quantile| {
        let value = values[(last as f64 * quantile).round() as usize];
        (value * 100.0).round() / 100.0
    })
}
