//! DP11: an idle host with 100 ports whose guests do nothing, and a lone frame that wakes the
//! fabric.

use crate::figure::{Bound, Value, shown};
use crate::lab::{DaemonOptions, Lab};
use crate::machine::Doc;
use crate::reason::Measured;
use crate::row::{Goal, Results, Row};

/// Pairs of ports. The last pair is for the lone frames.
const PAIRS: usize = 51;

pub(super) const ROW: Row = Row {
    id: "DP11",
    what: "CPU time of an idle fabric, and a lone frame that wakes it",
    on: "100 ports whose guests do nothing",
    goals: &[
        Goal::new("DP11-idle", &[Bound::Below(1.0, "% of a core"), Bound::AtLeast(100.0, "idle ports")]),
        Goal::new("DP11-wake", &[Bound::Below(60.0, "µs from kick to frame, p50")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (seconds, frames) = lab.pick((20.0, 10.0), (10.0, 3.0));
    lab.start_daemon(DaemonOptions::default().preferred())?;
    for pair in 1..=PAIRS {
        attach(lab, pair)?;
    }
    let up = hold(lab)?;
    let fabric = lab.fabric_pid()?;
    // No request reaches the daemon or the fabric meanwhile.
    lab.sleep(2.0)?;
    let before = lab.cpu_ns(fabric)?;
    lab.sleep(seconds)?;
    let after = lab.cpu_ns(fabric)?;
    let [first, second] = sockets(lab, PAIRS);
    let words = format!("switch {first} {second} --mode traversal --pause 3 --duration {frames} --cpu 1");
    let report = lab.bench_by(&lab.bench_command(words).preferred())?;
    let awake = lab.cpu_ns(fabric)? - after;
    lab.end_jobs();

    let percent = |used: f64, seconds: f64| used / seconds / 1e7;
    let idle = percent(after - before, seconds);
    results.record("DP11-idle", [Value::of(idle), Value::count(up)], format!("over {seconds} s"));
    let traversal = report.at("repeats.0.traversal")?;
    let us = |name: &str| -> Measured<f64> { Ok(traversal.number(name)? / 1000.0) };
    let detail = format!(
        "one in 3 ms: {} frames, {} lost, p90 {}, p99 {} µs; the fabric takes {} % of a core for them",
        traversal.count("count")?,
        traversal.count("lost")?,
        shown(us("p90_ns")?.round()),
        shown(us("p99_ns")?.round()),
        shown(percent(awake, frames))
    );
    results.record("DP11-wake", [us("p50_ns")?], detail);
    Ok(())
}

fn sockets(lab: &Lab, pair: usize) -> [String; 2] {
    [0, 1].map(|end| lab.folder().join(format!("dp11-{pair}-{end}")).display().to_string())
}

/// Makes a pair of ports with a vSwitch and a port group of its own.
fn attach(lab: &mut Lab, pair: usize) -> Measured<()> {
    lab.taut(format!("vswitch create dp11-{pair}"))?;
    // All generators use the same addresses. Only ports of the last pair have them as their own.
    let is_last = pair == PAIRS;
    let options = if is_last { "" } else { "--forged-transmits --mac-learning" };
    lab.taut(format!("portgroup create dp11-{pair} --vswitch dp11-{pair} {options}"))?;
    for (end, socket) in sockets(lab, pair).iter().enumerate() {
        let mac = if is_last { format!("--mac 02:11:00:00:00:0{end}") } else { String::new() };
        let to = format!("dp11-{pair}-{end} --portgroup dp11-{pair}");
        lab.taut(format!("port attach {to} --path {socket} --listen {mac}"))?;
    }
    Ok(())
}

/// Starts front ends with running rings, which have sent and received once and are idle then.
/// Returns the number of their ports that are up.
fn hold(lab: &mut Lab) -> Measured<usize> {
    for pair in 1..PAIRS {
        let [first, second] = sockets(lab, pair);
        lab.start(&lab.bench_command(format!("switch {first} {second} --settle 600")))?;
    }
    let mut up = 0;
    lab.until("all ports are up", 60, |lab| {
        up = lab.taut_json("port list")?.list("")?.iter().filter(|port| is_up(port)).count();
        Ok(up == 2 * PAIRS - 2)
    })?;
    Ok(up)
}

fn is_up(port: &Doc) -> bool {
    let is_own = port.text("owner").is_ok_and(|owner| owner.starts_with("external/dp11-"));
    let has_received = port.number("counters.rx_frames").is_ok_and(|frames| frames > 0.0);
    is_own && has_received && port.matches(&[("link", "up")])
}
