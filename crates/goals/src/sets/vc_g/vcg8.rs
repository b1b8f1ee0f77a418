//! VC-G8: a VM that shares no domain with others cannot tell them from VMs that do not exist,
//! neither by the answer nor by its timing. A forged context ID is dropped, counted and reported.

use super::guests::{DOMAIN, micro, start_daemon};
use crate::figure::{Bound, shown};
use crate::lab::Lab;
use crate::machine::Command;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

/// Context IDs that no VM has.
const ABSENT: &str = "1001,1002,1003,4294967294";
/// Ports, half of them with listeners of a microguest's agent among them.
const PORTS: u32 = 64;

pub(super) const ROW: Row = Row {
    id: "VC-G8",
    what: "VMs of other domains cannot be told from absent ones, and context IDs cannot be forged",
    on: "five microguests",
    goals: &[
        Goal::new(
            "VC-G8-probe",
            &[
                Bound::Exactly(0.0, "answers other than a reset"),
                Bound::Exactly(0.0, "resets more of either kind"),
                Bound::Within(47.0, 53.0, "% take longer if forbidden"),
            ],
        ),
        Goal::new("VC-G8-forged", &[Bound::Exactly(2.0, "tests passed")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let outcome = probe(lab, results);
    results.settle(&["VC-G8-probe"], outcome);
    lab.stop_daemon()?;
    let tests = "vmci::a_forged_context_id_causes_an_event vmci::domains_decide";
    let words = format!("-q -p taut-tests --test host -- --test-threads=1 {tests}");
    let passed = lab.cargo_test(words)?.passed;
    let detail = "a forged context ID is dropped, counted and an event; domains hold at once";
    results.record("VC-G8-forged", [passed], detail);
    Ok(())
}

fn probe(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let program = lab.example("taut-bench", "socket_probe")?;
    start_daemon(lab, "")?;
    micro(lab, "probe", "10.82.0.9", "alone")?;
    let mut forbidden = Vec::new();
    for number in 1..=4 {
        let name = format!("hidden{number}");
        micro(lab, &name, &format!("10.82.0.{number}"), DOMAIN)?;
        forbidden.push(lab.vm_show(&name)?.count("status.vmci.cid")?.to_string());
    }
    // A server listens in one of the hidden VMs meanwhile.
    let words = "vsock hidden1 hidden2 --mode rr --message 1 --socket-size 64KiB --duration 60";
    let server = lab.bench_command(words);
    let server = lab.start(&server)?;
    lab.sleep(1.0)?;
    let ports: Vec<String> =
        (20_000..20_000 + PORTS / 2).chain(1..=PORTS / 2).map(|port| port.to_string()).collect();
    let agent = lab.vm_agent("probe")?;
    let rounds = lab.pick("40", "10");
    let command = Command::new(program)
        .args([&agent, "--absent", ABSENT, "--forbidden", &forbidden.join(",")])
        .args(["--ports", &ports.join(","), "--rounds", rounds])
        .preferred()
        .record("probe");
    let found = lab.run(&command)?.stdout.json()?;
    lab.end(&server);
    let number = |path: &str| found.number(path);
    let other = number("absent.connected")?
        + number("absent.silent")?
        + number("forbidden.connected")?
        + number("forbidden.silent")?;
    let (absent, hidden) = (number("absent.refused")?, number("forbidden.refused")?);
    require(absent > 0.0 && hidden > 0.0, "no target answered")?;
    let longer = 100.0 * number("forbidden_takes_longer")?;
    let p50 = ["forbidden", "absent"].map(|kind| number(&format!("{kind}.p1_p50_p90_p99_us.1")));
    let [slow, fast] = p50;
    let detail = format!(
        "{} targets, {} resets; p50 {} and {} µs",
        shown(number("targets")?),
        shown(absent + hidden),
        shown(slow?),
        shown(fast?)
    );
    results.record("VC-G8-probe", [other, (absent - hidden).abs(), longer], detail);
    Ok(())
}
