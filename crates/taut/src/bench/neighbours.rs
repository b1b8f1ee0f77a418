//! `taut bench neighbours`: a latency-sensitive VM beside CPU-bound ones, `normal` and `high` in
//! alternation (tables 2 and 3 of S0).
//!
//! The other end of its connection stands for another machine, and must not wait for a pCPU of this
//! one. An agent that is started for it, in a network namespace or on the host, therefore runs in
//! the real-time class under every condition. The pair without VMs runs in the same class.

use std::thread::sleep;
use std::time::Duration;

use taut_api::path;
use taut_api::route::Vm;
use taut_api::vm::LatencySensitivity;
use taut_api::{ApiError, Name};
use taut_bench::agent::protocol::{Answer, Request, Work};
use taut_bench::report::{Beside, Condition, ConditionResults, Experiment, Figures};

use super::end_point::EndPoint;
use super::measure::{Line, Measurement};
use super::parties::{Id, Parties};
use super::ready::Ready;
use super::sensitive::{Sensitive, pid};
use super::{args, host};
use crate::agent::PATIENCE;
use crate::client::Client;
use crate::output::{self, Format, Outcome};
use crate::progress::Progress;

/// Time that a condition is in force before it is measured.
const SETTLE: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The client, which stands for another machine: netns/NAMESPACE or host (both in the real-time
    /// class), VM, or agent:SOCKET.
    #[arg(value_name = "PEER")]
    peer: EndPoint,
    /// The latency-sensitive VM, which answers; its CPU and memory must be fully reserved. Its
    /// latency sensitivity is changed meanwhile, and restored.
    vm: Name,
    /// VMs that compute all the time.
    #[arg(long, num_args = 1.., required = true, value_name = "VM")]
    beside: Vec<Name>,
    /// A pair without VMs, measured while the neighbours rest: netns/A netns/B (both in the
    /// real-time class).
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    native: Option<Vec<EndPoint>>,
    /// Also measure the VM alone: normal, while the neighbours rest.
    #[arg(long)]
    alone: bool,
    /// Milliseconds from one request to the next; requests after a late response follow at once.
    ///
    /// If absent, each response is followed by a request at once, as in netperf. Then a faster
    /// answer means more requests, and more work for everyone.
    #[arg(long, value_parser = args::milliseconds, value_name = "MS")]
    interval: Option<Duration>,
    #[command(flatten)]
    experiment: args::OneVm,
}

/// A condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    High,
    Alone,
    Native,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::High => "high",
            Self::Alone => "alone",
            Self::Native => "native",
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::Normal => "latency sensitivity normal, neighbours compute",
            Self::High => "latency sensitivity high, neighbours compute",
            Self::Alone => "latency sensitivity normal, neighbours rest",
            Self::Native => "no VM, neighbours rest",
        }
    }

    const fn is_loaded(self) -> bool {
        matches!(self, Self::Normal | Self::High)
    }
}

pub(super) fn run(args: &Args, client: &Client, format: Format) -> Outcome {
    args.experiment.files.check()?;
    let host = host::describe(client)?;
    let mut stage = Stage::set(args, client)?;
    let mut kinds = vec![Kind::Normal, Kind::High];
    kinds.extend(args.alone.then_some(Kind::Alone));
    kinds.extend(stage.native.as_ref().map(|_| Kind::Native));
    let mut repeats = vec![Vec::new(); kinds.len()];
    for repeat in 1..=args.experiment.repeat {
        for (kind, results) in kinds.iter().zip(&mut repeats) {
            let what = format!(
                "{} {} → {}, repeat {repeat} of {}",
                kind.name(),
                args.peer,
                args.vm,
                args.experiment.repeat
            );
            let _progress = Progress::start(&what);
            results.push(stage.measure(*kind)?);
        }
    }
    let condition = |(kind, repeats): (&Kind, Vec<(Figures, Beside)>)| {
        let line = stage.line(*kind);
        let ends = [stage.parties.describe(line.sender), line.describe_receiver(&stage.parties)];
        Condition::new(kind.name(), kind.meaning(), ends, repeats)
    };
    let conditions = kinds.iter().zip(repeats).map(condition).collect();
    let results = ConditionResults {
        experiment: Experiment::Neighbours,
        size: args.experiment.size,
        interval_us: args.interval.map(|interval| interval.as_micros() as u64),
        duration_s: args.experiment.duration.as_secs_f64(),
        host,
        neighbours: stage.neighbours.iter().map(|id| stage.parties.describe(*id)).collect(),
        conditions,
    };
    drop(stage);
    args.experiment.files.save(&results, || results.svg())?;
    output::print(format, &results, ConditionResults::table);
    Ok(())
}

/// The end points of all conditions, ready to measure.
struct Stage<'c> {
    client: &'c Client,
    parties: Parties,
    measurement: Measurement,
    sensitive: Sensitive<'c>,
    line: Line,
    native: Option<Line>,
    neighbours: Vec<Id>,
    /// Processes of the VM and its neighbours.
    pid: u32,
    pids: Vec<u32>,
}

impl<'c> Stage<'c> {
    fn set(args: &Args, client: &'c Client) -> Result<Self, ApiError> {
        let _progress = Progress::start("asking the agents");
        let process = |name: &Name| pid(&client.get::<Vm>(&path::VM.of(name))?);
        let sensitive = Sensitive::new(client, &args.vm)?;
        let mut parties = Parties::default();
        let measurement = Measurement::Rr {
            socket_size: None,
            size: args.experiment.size,
            interval_us: args.interval.map(|interval| interval.as_micros() as u64),
            duration: args.experiment.duration,
        };
        let native = match args.native.as_deref() {
            Some([a, b]) => {
                // As the peer below: a comparison of pairs in different classes would say nothing.
                let (a, b) = (parties.join_in_real_time(client, a)?, parties.join_in_real_time(client, b)?);
                Some(Line::prepare(&mut parties, a, b, None, &measurement)?)
            }
            _ => None,
        };
        let peer = parties.join_in_real_time(client, &args.peer)?;
        let vm = parties.join(client, &EndPoint::Vm(args.vm.clone()))?;
        let line = Line::prepare(&mut parties, peer, vm, args.experiment.address, &measurement)?;
        let neighbour = |name: &Name| parties.join(client, &EndPoint::Vm(name.clone()));
        let neighbours = args.beside.iter().map(neighbour).collect::<Result<_, _>>()?;
        let pids = args.beside.iter().map(process).collect::<Result<_, _>>()?;
        Ok(Self {
            client,
            parties,
            measurement,
            sensitive,
            line,
            native,
            neighbours,
            pid: process(&args.vm)?,
            pids,
        })
    }

    fn line(&self, kind: Kind) -> &Line {
        self.native.as_ref().filter(|_| kind == Kind::Native).unwrap_or(&self.line)
    }

    /// Puts a condition in force and runs one repeat.
    fn measure(&mut self, kind: Kind) -> Result<(Figures, Beside), ApiError> {
        self.neighbours_do(if kind.is_loaded() { &Request::Spin } else { &Request::Rest })?;
        self.sensitive.make(match kind {
            Kind::High => LatencySensitivity::High,
            Kind::Normal | Kind::Alone | Kind::Native => LatencySensitivity::Normal,
        })?;
        sleep(SETTLE);
        let work = self.work(kind)?;
        let own = Ready::now(&[self.pid]);
        let theirs = Ready::now(&self.pids);
        let line = self.native.as_ref().filter(|_| kind == Kind::Native).unwrap_or(&self.line);
        let figures = line.measure(&mut self.parties, &self.measurement, host::fabric_pid(self.client))?;
        let ready_percent = Ready::now(&[self.pid]).percent_since(&own).filter(|_| kind != Kind::Native);
        let neighbours_ready_percent =
            Ready::now(&self.pids).percent_since(&theirs).filter(|_| kind.is_loaded());
        let later = self.work(kind)?;
        let work_per_s = kind
            .is_loaded()
            .then(|| work.iter().zip(later).map(|(before, after)| before.per_second(after)).sum());
        Ok((figures, Beside { ready_percent, work_per_s, neighbours_ready_percent }))
    }

    fn neighbours_do(&mut self, what: &Request) -> Outcome {
        for id in &self.neighbours {
            self.parties.ask(*id, what.clone(), PATIENCE)?;
        }
        Ok(())
    }

    /// Returns the work that each neighbour has done so far.
    fn work(&mut self, kind: Kind) -> Result<Vec<Work>, ApiError> {
        let asked = self.neighbours.iter().filter(|_| kind.is_loaded());
        let answer = |id: &Id| match self.parties.ask(*id, Request::Work, PATIENCE)? {
            Answer::Work(work) => Ok(work),
            _ => Err(self.parties.confused(*id)),
        };
        asked.map(answer).collect()
    }
}
