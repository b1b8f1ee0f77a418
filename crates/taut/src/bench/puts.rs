//! `taut bench puts`: puts of an object into a Redis server in a VM, one at a time: untuned, tuned,
//! and without a VM (S3).
//!
//! Tuned means latency sensitivity `high` with everything that it includes. Further settings of
//! S3's table are a matter of `taut check`.

use std::thread::sleep;
use std::time::Duration;

use taut_api::path;
use taut_api::route::Vm;
use taut_api::vm::LatencySensitivity;
use taut_api::{ApiError, Name};
use taut_bench::report::{Beside, Condition, ConditionResults, Experiment, Figures};

use super::end_point::EndPoint;
use super::measure::{Line, Measurement};
use super::parties::{Id, Parties};
use super::ready::Ready;
use super::sensitive::{Sensitive, pid};
use super::{args, host};
use crate::client::Client;
use crate::output::{self, Format, Outcome};
use crate::progress::Progress;

/// Time that a condition is in force before it is measured.
const SETTLE: Duration = Duration::from_millis(300);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The client, which stands for another machine: netns/NAMESPACE or host (both in the real-time
    /// class), VM, or agent:SOCKET.
    #[arg(value_name = "CLIENT")]
    client: EndPoint,
    /// The VM with the Redis server; its CPU and memory must be fully reserved. Its latency
    /// sensitivity is changed meanwhile, and restored.
    vm: Name,
    /// Port of the Redis servers.
    #[arg(long, default_value_t = 6379, value_parser = clap::value_parser!(u16).range(1..), value_name = "PORT")]
    port: u16,
    /// A pair without VMs: a client, and the end point of another Redis server. Agents that are
    /// started for them run in the real-time class, as the client's does.
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    native: Option<Vec<EndPoint>>,
    /// Also measure within the VM: its own agent is the client, without a vNIC.
    #[arg(long)]
    inside: bool,
    #[command(flatten)]
    experiment: args::OneVm,
}

/// A condition.
struct Case {
    name: &'static str,
    meaning: &'static str,
    level: LatencySensitivity,
    line: Line,
    /// The VM takes part.
    with_vm: bool,
    repeats: Vec<(Figures, Beside)>,
}

pub(super) fn run(args: &Args, client: &Client, format: Format) -> Outcome {
    args.experiment.files.check()?;
    let host = host::describe(client)?;
    let mut sensitive = Sensitive::new(client, &args.vm)?;
    let mut parties = Parties::default();
    let measurement =
        Measurement::Puts { port: args.port, size: args.experiment.size, duration: args.experiment.duration };
    let mut cases = {
        let _progress = Progress::start("asking the agents");
        cases(args, client, &mut parties, &measurement)?
    };
    let pids = [pid(&client.get::<Vm>(&path::VM.of(&args.vm))?)?];
    for repeat in 1..=args.experiment.repeat {
        for case in &mut cases {
            let what = format!("puts, {}, repeat {repeat} of {}", case.name, args.experiment.repeat);
            let _progress = Progress::start(&what);
            sensitive.make(case.level)?;
            sleep(SETTLE);
            let before = Ready::now(&pids);
            let figures = case.line.measure(&mut parties, &measurement, host::fabric_pid(client))?;
            let ready_percent = Ready::now(&pids).percent_since(&before).filter(|_| case.with_vm);
            case.repeats.push((figures, Beside { ready_percent, ..Beside::default() }));
        }
    }
    drop(sensitive);
    let condition = |case: Case| {
        let ends = [parties.describe(case.line.sender), case.line.describe_receiver(&parties)];
        Condition::new(case.name, case.meaning, ends, case.repeats)
    };
    let results = ConditionResults {
        experiment: Experiment::Puts,
        size: args.experiment.size,
        interval_us: None,
        duration_s: args.experiment.duration.as_secs_f64(),
        host,
        neighbours: Vec::new(),
        conditions: cases.into_iter().map(condition).collect(),
    };
    args.experiment.files.save(&results, || results.svg())?;
    output::print(format, &results, ConditionResults::table);
    Ok(())
}

fn cases(
    args: &Args,
    client: &Client,
    parties: &mut Parties,
    measurement: &Measurement,
) -> Result<Vec<Case>, ApiError> {
    let native = match args.native.as_deref() {
        // As the client below: a comparison of pairs in different classes would say nothing.
        Some([a, b]) => Some([parties.join_in_real_time(client, a)?, parties.join_in_real_time(client, b)?]),
        _ => None,
    };
    let from = parties.join_in_real_time(client, &args.client)?;
    let vm = parties.join(client, &EndPoint::Vm(args.vm.clone()))?;
    let mut case = |name, meaning, level, [a, b]: [Id; 2], address| {
        let line = Line::prepare(parties, a, b, address, measurement)?;
        Ok::<_, ApiError>(Case {
            name,
            meaning,
            level,
            line,
            with_vm: native != Some([a, b]),
            repeats: Vec::new(),
        })
    };
    let (normal, high) = (LatencySensitivity::Normal, LatencySensitivity::High);
    let mut cases = vec![
        case(
            "untuned",
            "latency sensitivity normal, moderation as the host has it",
            normal,
            [from, vm],
            args.experiment.address,
        )?,
        case(
            "tuned",
            "latency sensitivity high: own pCPU, no moderation, no LRO, no deep sleep",
            high,
            [from, vm],
            args.experiment.address,
        )?,
    ];
    if args.inside {
        cases.push(case(
            "inside",
            "latency sensitivity high, client and server in the VM",
            high,
            [vm, vm],
            None,
        )?);
    }
    if let Some(pair) = native {
        cases.push(case("native", "no VM", normal, pair, None)?);
    }
    Ok(cases)
}
