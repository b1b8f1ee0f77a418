//! PL9: puts of 1 KB into a Redis server, one at a time: in an untuned VM, in the same VM tuned,
//! and without a VM. To explain the gap, the client also runs inside the guest: no host can tune
//! what that takes.
//!
//! The agents of both connections, and the Redis server without a VM, are in the real-time class:
//! the tuned VM has a pCPU of its own.

use super::conditions::{figures, middle, ratio};
use super::stage::{self, CLIENT, PARTIES};
use crate::figure::{Bound, median, shown};
use crate::lab::{Contents, DaemonOptions, Lab, NEWEST};
use crate::machine::{Command, Doc};
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

/// Debian's package of Redis' tools has the server under this name. The program is the server when
/// it is called `redis-server`.
const SERVER: &str = "redis-check-rdb";

/// Options of both servers.
const OPTIONS: &str = "--protected-mode no --save '' --appendonly no";

pub(super) const ROW: Row = Row {
    id: "PL9",
    what: "puts of 1 KB into a Redis server: untuned, tuned, and without a VM",
    on: "a QEMU guest with Debian's newest kernel, and two namespaces with a cable",
    goals: &[Goal::new("PL9", &[Bound::Above(1.0, "x untuned"), Bound::Below(1.0, "x native")])],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (repeats, seconds) = lab.pick((7, 6), (2, 3));
    let server = lab.tool(SERVER)?;
    lab.enter_scope()?;
    lab.start_lan(DaemonOptions::default())?;
    lab.native_pair()?;
    start_guest(lab)?;
    stage::client(lab)?;

    let called = lab.folder().join("redis-server");
    lab.run(&Command::new("ln").arg("-s").arg(&server).arg(&called))?;
    let native = Command::new("chrt")
        .args("--fifo 1")
        .arg(&called)
        .args(["--bind", "10.86.0.2", "--protected-mode", "no", "--save", "", "--appendonly", "no"])
        .args("--daemonize no --dir")
        .arg(lab.folder())
        .in_namespace("taut-goal-b")
        .session()
        .record("redis");
    lab.start(&native)?;
    until_it_answers(lab, CLIENT, "10.85.0.1")?;
    until_it_answers(lab, "taut-goal-a", "10.86.0.2")?;

    let drawing = lab.fresh("pl9.svg")?;
    let pair = "--native netns/taut-goal-a netns/taut-goal-b --inside";
    let words = format!("puts {PARTIES} {pair} --duration {seconds} --repeat {repeats}");
    let report = lab.bench(format!("{words} --svg {}", drawing.display()))?;
    let gain = ratio(&report, "per_s", "tuned", "untuned")?;
    let share = ratio(&report, "per_s", "tuned", "native")?;
    explain(lab, &report)?;
    let of = |condition| middle(&report, condition, "per_s").map(|rate| shown(rate.round()));
    let detail =
        format!("{} puts/s untuned, {} tuned, {} native", of("untuned")?, of("tuned")?, of("native")?);
    results.record("PL9", [gain, share], detail);
    Ok(())
}

/// Boots the VM with a Redis server.
fn start_guest(lab: &mut Lab) -> Measured<()> {
    let script = format!("redis-server --bind 0.0.0.0 {OPTIONS}\n");
    let boot = lab.extend_image(NEWEST, "pl9", &Contents { script: &script, ..Contents::default() })?;
    let file = format!(
        "memory = \"512MiB\"\nmemory_reservation = \"full\"\n[cpu]\nreservation = \"full\"\n{boot}\
         [[nic]]\nportgroup = \"lan\"\nip = \"10.85.0.1/24\"\n[vmci]\n"
    );
    lab.start_vm("rt1", &file)
}

fn until_it_answers(lab: &mut Lab, namespace: &str, address: &str) -> Measured<()> {
    let ping = Command::new("redis-cli").args(format!("-h {address} ping")).in_namespace(namespace);
    lab.until(&format!("Redis on {address} answers"), 60, |lab| {
        let answers = lab.machine().run(&ping)?.stdout.contains("PONG");
        lab.sleep(if answers { 0.0 } else { 0.3 })?;
        Ok(answers)
    })
}

/// Notes where the time of one put goes.
fn explain(lab: &mut Lab, report: &Doc) -> Measured<()> {
    let us = |condition: &str| Measured::Ok((1e6 / median(&figures(report, condition, "per_s")?)?).round());
    let of = |condition: &str| us(condition).map(shown);
    let text = format!(
        "a put takes {} µs natively, {} µs tuned, {} µs untuned; client and server both in the guest, \
         without any vNIC or thread of the host, take {} µs",
        of("native")?,
        of("tuned")?,
        of("untuned")?,
        of("inside")?
    );
    lab.note(text);
    Ok(())
}
