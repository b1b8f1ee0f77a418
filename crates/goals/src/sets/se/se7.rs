//! SE7: a VM with five connections, beside 64 of its connections to a peer that has granted 4 GiB
//! of credit on each and posts no receive buffers.
//!
//! Streams run on one pCPU, where their throughput tells the CPU time of a byte. Requests take
//! turns on two, and depend on how far these are from each other: for them, only rounds with the
//! same distance count. Throughput and memory are judged in all rounds. In a round everything is
//! measured with the peer and without it; the peer is another one each time.
//!
//! The VM's program looks at the 64 connections after a packet on any connection without credit,
//! every 10 ms at most. Short requests never use up their credit, and long ones only on a new
//! connection, so there are hardly any looks beside them. Streams do use it up: the looks are part
//! of what the row measures as throughput.
//!
//! Requests are short and long ones: a short one depends on the time of a packet, and a long one
//! also on how much its sender was promised beside the 64 connections, which rest in its direction.

use serde_json::json;

use crate::figure::{Bound, Value, shown};
use crate::lab::{DaemonOptions, Lab};
use crate::machine::{Command, Doc, Job, Signal};
use crate::reason::{Context, Measured, require};
use crate::rounds::{Plan, Rounds, Sample, State};
use crate::row::{Goal, Results, Row};
use crate::sets::vc_g::cells::Cell;
use crate::sets::vc_g::guests::{bench, micro};

const CONNECTIONS: u32 = 64;
const DEVICE: &str = "TAUT_MICRO_VMCI";
const STREAM: u32 = 65536;
/// Streams at once. Requests are measured on one connection after them.
const STREAMS: u32 = 5;

/// Requests of one length.
struct Requests {
    /// Goal that judges them.
    goal: &'static str,
    /// Name of their 99th percentile in a sample.
    figure: &'static str,
    bytes: u32,
}

const REQUESTS: [Requests; 2] = [
    Requests { goal: "SE7-p99", figure: "p99_us", bytes: 256 },
    Requests { goal: "SE7-p99-long", figure: "long_p99_us", bytes: 65536 },
];

pub(super) const ROW: Row = Row {
    id: "SE7",
    what: "five streams, and requests, of a VM beside 64 connections to a peer that takes nothing",
    on: "three microguests, in alternation with and without the peer",
    goals: &[
        Goal::new("SE7-throughput", &[Bound::AtLeast(0.95, "x without the peer")]),
        Goal::new("SE7-p99", &[Bound::AtMost(1.1, "x without the peer")]),
        Goal::new("SE7-p99-long", &[Bound::AtMost(1.1, "x without the peer")]),
        Goal::new("SE7-memory", &[Bound::AtMost(5.0, "MiB more of the fabric at most")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let daemon = lab.start_lan(DaemonOptions::default().preferred())?;
    micro(lab, "victim", "10.82.0.1", "goals")?;
    micro(lab, "reader", "10.82.0.2", "goals")?;
    // Microguests that start from now on fall silent after so many connections.
    lab.machine().signal(daemon.job.pid, Signal::Kill)?;
    lab.machine().wait(&daemon.job, std::time::Duration::from_secs(10))?;
    lab.restart_daemon(&daemon.env(DEVICE, &format!("silent={CONNECTIONS}")))?;
    let peer = "[vmci]\ndomains = [\"goals\"]\n";
    lab.create_vm("peer", &format!("kind = \"micro\"\nmemory = \"64MiB\"\n{peer}"))?;

    for vm in ["victim", "reader"] {
        let pid = lab.vm_pid(vm)?;
        lab.prefer(pid);
    }
    let plan = Plan { least: lab.pick(9, 3), ..Plan::exactly(lab.pick(15, 3)) };
    let rounds = Rounds::take(plan, &["beside", "alone"], None, |cell| sample(lab, cell))?;
    let all = rounds.in_any_state();
    let ratio = all.ratio("beside", "alone", "mbit_s")?;
    let note = format!("Mbit/s of {STREAMS} streams: {}", medians(&all, "mbit_s")?);
    results.record("SE7-throughput", [ratio], note);
    let more = Value::greatest(&all.figures("beside", "more_mib")?)?;
    results.record("SE7-memory", [more], format!("{CONNECTIONS} connections in each round"));
    let (state, dropped) = (rounds.state(), rounds.dropped());
    for Requests { goal, figure, bytes } in REQUESTS {
        let ratio = rounds.ratio("beside", "alone", figure)?;
        let medians = medians(&rounds, figure)?;
        let note =
            format!("µs of a request of {bytes} bytes: {medians}; CPUs {state}, {dropped} rounds dropped");
        results.record(goal, [ratio], note);
    }
    Ok(())
}

/// Formats the medians of a figure with the peer and without it.
fn medians(rounds: &Rounds, figure: &str) -> Measured<String> {
    let [beside, alone] = ["beside", "alone"].map(|cell| rounds.median(cell, figure));
    Ok(format!("{} beside, {} alone", shown(beside?.value), shown(alone?.value)))
}

fn sample(lab: &mut Lab, cell: &str) -> Measured<Sample> {
    let before = fabric_mib(lab)?;
    let attack = if cell == "beside" { Some(attack(lab)?) } else { None };
    let measured = measure(lab);
    let after = fabric_mib(lab)?;
    if let Some(job) = attack {
        let still = lab.machine().is_running(&job);
        end_attack(lab, &job)?;
        require(still, "the connections to the peer ended before the measurement")?;
    }
    let (mut doc, state) = measured?;
    doc["more_mib"] = json!(after - before);
    Ok(Sample { state, doc: Doc::from(doc) })
}

/// Starts the peer and the connections to it. Waits until all of them are established and the peer
/// is seen to take nothing.
fn attack(lab: &mut Lab) -> Measured<Job> {
    let before = stalls(lab)?;
    lab.taut("vm start --wait peer")?;
    let words = format!(
        "vsock victim peer --message 64KiB --socket-size 64KiB --sessions {CONNECTIONS} --duration 600"
    );
    let command = lab.bench_command(words).record("attack");
    let job = lab.start(&command)?;
    lab.until("all connections are there and the peer is seen to take nothing", 20, |lab| {
        require(lab.machine().is_running(&job), "the program with the connections has ended")?;
        Ok(connections(lab)? >= u64::from(CONNECTIONS) && stalls(lab)? > before)
    })
    .when("the peer")?;
    Ok(job)
}

fn end_attack(lab: &mut Lab, job: &Job) -> Measured<()> {
    lab.end(job);
    lab.taut("vm stop --force peer").map(drop)
}

/// Number of the peer's open connections.
fn connections(lab: &mut Lab) -> Measured<u64> {
    lab.taut_json("vmci show peer")?.count("status.vmci.counters.connections")
}

/// Number of times that a VM was seen to take nothing from its device.
fn stalls(lab: &mut Lab) -> Measured<usize> {
    let mut count = 0;
    for event in lab.taut_json("events")?.list("")? {
        count += usize::from(event.text("kind")? == "vmci.stalled");
    }
    Ok(count)
}

/// Measures the throughput of streams on one pCPU in Mbit/s, then the 99th percentile of requests
/// of each length on two, in µs: the median of five repeats. The state is that of the requests.
fn measure(lab: &mut Lab) -> Measured<(serde_json::Value, State)> {
    bind(lab, [0, 0, 0])?;
    let words = "victim reader --message 64KiB --socket-size 256KiB";
    let report = bench(lab, &format!("{words} --sessions {STREAMS} --duration 1"))?;
    let mbit_s = Cell { sessions: STREAMS, ..Cell::of("vsock", STREAM) }.median(&report, "mbit_s")?;
    let mut doc = json!({ "mbit_s": mbit_s });
    bind(lab, [0, 1, 1])?;
    let mut trips = vec![lab.cpu_round_trip()?];
    for Requests { figure, bytes, .. } in REQUESTS {
        let words = format!("victim reader --mode rr --message {bytes} --socket-size 256KiB");
        let report = bench(lab, &format!("{words} --duration 0.2 --repeat 5"))?;
        doc[figure] = json!(Cell::of("vsock", bytes).median(&report, "p99_us")?);
        trips.push(lab.cpu_round_trip()?);
    }
    // A stand-in's answers say nothing about how near its CPUs are.
    let is_stand_in = lab.machine().is_stand_in();
    let state = if is_stand_in { State::Unknown } else { State::of_round_trips(&trips) };
    Ok((doc, state))
}

/// Binds fabric, victim and reader to pCPUs.
fn bind(lab: &mut Lab, cpus: [u32; 3]) -> Measured<()> {
    let pids = [lab.fabric_pid()?, lab.vm_pid("victim")?, lab.vm_pid("reader")?];
    for (pid, cpu) in pids.into_iter().zip(cpus) {
        lab.run(&Command::new("taskset").args(format!("--all-tasks --pid --cpu-list {cpu} {pid}")))?;
    }
    Ok(())
}

/// The fabric's own memory in MiB. Guests' memory, which it maps, is not part of it.
fn fabric_mib(lab: &mut Lab) -> Measured<f64> {
    let pid = lab.fabric_pid()?;
    Ok(lab.read(format!("/proc/{pid}/status"))?.number_between("RssAnon:", "kB")? / 1024.0)
}
