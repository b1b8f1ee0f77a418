//! SK5: a vhost-user client that was not written with taut (DPDK's virtio-user), in both socket
//! directions.

use std::path::Path;

use crate::figure::{Bound, Value};
use crate::lab::rig::{Generator, Rig};
use crate::lab::{DaemonOptions, Lab};
use crate::machine::Command;
use crate::reason::Measured;
use crate::rival::Rival;
use crate::row::{Goal, Results, Row};

const VGEN: Rival = Rival::Generator("vgen");

pub(super) const ROW: Row = Row {
    id: "SK5",
    what: "frames of a vhost-user client that was not written with taut",
    on: "one port group, with the fabric on core 0 and the client on core 1",
    goals: &[
        Goal::beside("SK5-listens", &[Bound::Above(0.0, "Mpps")], &[VGEN]),
        Goal::beside("SK5-connects", &[Bound::Above(0.0, "Mpps")], &[VGEN]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let times = lab.pick(3, 1);
    lab.start_lan(DaemonOptions::default().args("--fabric-cpus 0"))?;
    lab.with_rig(|lab, rig| {
        let vgen = rig.build(lab, Generator::Vgen)?;
        let (mut listens, mut connects) = (Vec::new(), Vec::new());
        for time in 0..times {
            // taut listens, the generator connects; then the other way round.
            listens.push(sample(lab, rig, &vgen, &format!("listens{time}"))?);
            connects.push(sample(lab, rig, &vgen, &format!("connects{time}"))?);
        }
        results.record("SK5-listens", [Value::median(&listens)?], "taut listens");
        results.record("SK5-connects", [Value::median(&connects)?], "taut connects");
        Ok(())
    })
}

/// Runs the generator once, and returns its rate in Mpps.
fn sample(lab: &mut Lab, rig: &Rig, vgen: &Path, name: &str) -> Measured<f64> {
    let listens = name.starts_with("listens");
    let mut devices = Vec::new();
    for end in 0..2 {
        let socket = lab.folder().join(format!("{name}-{end}")).display().to_string();
        let listen = if listens { "--listen" } else { "" };
        let mac = format!("02:11:00:00:00:0{end}");
        let to = format!("gen{end} --portgroup lan --mac {mac}");
        lab.taut(format!("port attach {to} --path {socket} --trusted {listen}"))?;
        let path = socket.clone();
        lab.until("the port's socket is there", 5, |lab| {
            Ok(!listens || lab.machine().exists(Path::new(&path)))
        })?;
        let server = u8::from(!listens);
        let device =
            format!("net_virtio_user{end},path={socket},queues=1,queue_size=256,server={server},mac={mac}");
        devices.extend(["--vdev".to_owned(), device]);
    }
    let options =
        "-l 1 --no-pci --no-telemetry --log-level=3 --file-prefix=taut-goal -m 256 --single-file-segments";
    let command = Command::new(vgen).args(options).arg("--huge-dir").arg(rig.huge_pages()).args(devices);
    let command = command.args("-- tput 64 3 256").limit(60).record(name);
    let rate = lab.run(&command)?.stdout.number_between(" rx=", " Mpps");
    for end in 0..2 {
        lab.taut(format!("port detach gen{end}"))?;
    }
    rate
}
