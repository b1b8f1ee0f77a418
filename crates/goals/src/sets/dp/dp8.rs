//! DP8: accuracy of shaping, by `taut bench shaping` (raw frames, its own clock), by TCP between
//! namespaces, and in virtual time for what would take minutes.

use crate::figure::{Bound, Value, shown};
use crate::lab::{DaemonOptions, Lab};
use crate::machine::Doc;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

const AVERAGES: &str =
    "1kbit,10kbit,64kbit,256kbit,1Mbit,10Mbit,100Mbit,1Gbit,2500Mbit,10Gbit,40Gbit,100Gbit";
const FEW_AVERAGES: &str = "10kbit,1Mbit,100Mbit,1Gbit,10Gbit,100Gbit";
const PORTS: [(&str, &str, &str); 4] = [
    ("sh0", "shaped", "02:11:00:00:00:00"),
    ("sh1", "lan", "02:11:00:00:00:01"),
    ("nb0", "lan", "02:11:00:00:01:00"),
    ("nb1", "lan", "02:11:00:00:01:01"),
];

pub(super) const ROW: Row = Row {
    id: "DP8",
    what: "accuracy of shaping",
    on: "a worker on CPU 0, the load on CPU 1, and TCP of Linux between two namespaces",
    goals: &[
        Goal::new("DP8-rate", &[Bound::AtMost(1.0, "% worst error"), Bound::Above(0.0, "rates")]),
        Goal::new("DP8-burst", &[Bound::AtMost(5.0, "% worst error")]),
        Goal::new("DP8-neighbour", &[Bound::Below(3.0, "% less beside a shaped port")]),
        Goal::new("DP8-virtual", &[Bound::AtMost(1.0, "% rate"), Bound::AtMost(5.0, "% burst")]),
        Goal::new("DP8-tcp", &[Bound::AtLeast(92.0, "% of the average, worst")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    start(lab)?;
    let outcome = raw(lab, results);
    results.settle(&["DP8-rate", "DP8-burst", "DP8-neighbour"], outcome);
    let outcome = in_virtual_time(lab, results);
    results.settle(&["DP8-virtual"], outcome);
    tcp(lab, results)
}

/// Starts a daemon with port sh0 on the port group that is shaped, sh1 and the neighbours on
/// another.
fn start(lab: &mut Lab) -> Measured<()> {
    lab.start_lan(DaemonOptions::default().args("--fabric-cpus 0").preferred())?;
    lab.taut("portgroup create shaped --vswitch sw")?;
    let paths = PORTS.map(|(port, _, _)| lab.folder().join(port));
    for ((port, portgroup, mac), path) in PORTS.iter().zip(&paths) {
        let path = path.display();
        let to = format!("{port} --portgroup {portgroup} --mac {mac}");
        lab.taut(format!("port attach {to} --path {path} --listen --offloads"))?;
    }
    lab.until("the ports listen", 5, |lab| Ok(paths.iter().all(|path| lab.machine().exists(path))))
}

fn raw(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let (averages, seconds, most) = lab.pick((AVERAGES, 0.7, 30), (FEW_AVERAGES, 0.2, 1));
    let [sh0, sh1, nb0, nb1] = PORTS.map(|(port, _, _)| lab.folder().join(port).display().to_string());
    let (mut rates, mut bursts, mut open, mut losses) = (Vec::new(), Vec::new(), 0, Vec::new());
    for size in [64, 1518, 65536] {
        let mut words = format!("shaping {sh0} {sh1} --portgroup shaped --size {size} --average {averages}");
        words += &format!(" --duration {seconds} --most {most} --cpu 1");
        if size == 1518 {
            words += &format!(" --neighbours {nb0} {nb1}");
        }
        let report = lab.bench_by(&lab.bench_command(words).preferred())?;
        for line in report.list("rates")? {
            // A rate too low for the time is not paced; one that is too high does not limit.
            if !line.flag("limits")? {
                open += 1;
            } else if line.has("paced") {
                rates.push(line.number("rate_error_percent")?.abs());
                bursts.push(line.number("burst_error_percent")?.abs());
            }
        }
        if size == 1518 {
            losses = report.numbers("neighbours", "loss_percent")?;
        }
    }
    let detail = format!("{open} more do not limit");
    results.record("DP8-rate", [Value::greatest(&rates)?, Value::count(rates.len())], detail);
    results.record("DP8-burst", [Value::greatest(&bursts)?], "");
    results.record("DP8-neighbour", [Value::greatest(&losses)?], "");
    Ok(())
}

fn in_virtual_time(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let example = lab.example("taut-fabric", "pacing")?;
    let command = lab.in_checkout(example).record("pacing");
    let lines = lab.run(&command)?.stdout.jsons()?;
    require(!lines.is_empty(), "the example printed nothing")?;
    let figure = |line: &Doc, name: &str| line.number(name).map(f64::abs);
    let rates: Measured<Vec<f64>> = lines.iter().map(|line| figure(line, "rate_error_percent")).collect();
    let with_burst = lines.iter().filter(|line| line.has("burst_error_percent"));
    let bursts: Measured<Vec<f64>> = with_burst.map(|line| figure(line, "burst_error_percent")).collect();
    let worst = [Value::greatest(&rates?)?, Value::greatest(&bursts?)?];
    results.record("DP8-virtual", worst, "");
    Ok(())
}

fn tcp(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    lab.netns("dp8-a", "shaped", "10.81.0.1")?;
    lab.netns("dp8-b", "lan", "10.81.0.2")?;
    let (rates, seconds) = lab.pick((&[1, 10, 100, 1000][..], 10), (&[100][..], 2));
    let mut shares = Vec::new();
    for mbit in rates {
        for (direction, from, to) in [("to-switch", "dp8-a", "dp8-b"), ("to-guest", "dp8-b", "dp8-a")] {
            lab.taut("portgroup set shaped --to-switch none --to-guest none")?;
            let shape = format!("average={mbit}Mbit,peak={mbit}Mbit,burst=64KiB");
            lab.taut(format!("portgroup set shaped --{direction} {shape}"))?;
            lab.sleep(0.2)?;
            let words = format!("stream netns/{from} netns/{to} --pattern auto --duration {seconds}");
            let share = 100.0 * lab.bench(words)?.number("a.median.mbit_s")? / f64::from(*mbit);
            lab.note(format!("TCP {direction} at {mbit} Mbit/s: {} %", shown(share)));
            shares.push(share);
        }
    }
    results.record("DP8-tcp", [Value::least(&shares)?], "");
    Ok(())
}
