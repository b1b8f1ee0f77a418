//! SK5: a vhost-user client that was not written with taut (DPDK's virtio-user), in both socket
//! directions.

use std::path::Path;

use crate::figure::{Bound, Value};
use crate::lab::{DaemonOptions, Lab};
use crate::machine::Command;
use crate::reason::Measured;
use crate::rival::Rival;
use crate::row::{Goal, Results, Row};

const VGEN: Rival = Rival::Generator("vgen");
/// Huge pages of 2 MiB that the generator needs.
const PAGES: u64 = 512;
const POOL: &str = "/proc/sys/vm/nr_hugepages";

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
    let vgen = compile(lab)?;
    let pages = reserve_pages(lab)?;
    lab.start_lan(DaemonOptions::default().args("--fabric-cpus 0"))?;
    let (mut listens, mut connects) = (Vec::new(), Vec::new());
    for time in 0..times {
        // taut listens, the generator connects; then the other way round.
        listens.push(sample(lab, &vgen, &pages, &format!("listens{time}"), true)?);
        connects.push(sample(lab, &vgen, &pages, &format!("connects{time}"), false)?);
    }
    results.record("SK5-listens", [Value::median(&listens)?], "taut listens");
    results.record("SK5-connects", [Value::median(&connects)?], "taut connects");
    Ok(())
}

fn compile(lab: &mut Lab) -> Measured<String> {
    let source = lab.rival(VGEN)?;
    let flags = |lab: &mut Lab, which: &str| {
        let command = Command::new("pkg-config").args([which, "libdpdk"]);
        Ok::<_, crate::reason::NotMeasured>(lab.run(&command)?.stdout.trimmed().to_owned())
    };
    let (headers, libraries) = (flags(lab, "--cflags")?, flags(lab, "--libs")?);
    let program = lab.folder().join("vgen");
    let gcc = Command::new("gcc").args("-O3 -march=native").args(headers).arg(&source);
    lab.run(&gcc.arg("-o").arg(&program).args(libraries))?;
    Ok(program.display().to_string())
}

/// Reserves huge pages and mounts them. Both are given back with the lab.
fn reserve_pages(lab: &mut Lab) -> Measured<String> {
    let before = lab.read(POOL)?.number()?;
    let folder = lab.folder().join("huge").display().to_string();
    lab.owe(Command::new("sysctl").args(format!("-q vm.nr_hugepages={before}")))?;
    lab.owe(Command::new("umount").args([folder.as_str()]))?;
    lab.machine().write(Path::new(POOL), &format!("{}", before as u64 + PAGES))?;
    lab.machine().make_folder(Path::new(&folder))?;
    lab.run(&Command::new("mount").args(["-t", "hugetlbfs", "-o", "pagesize=2M", "none", &folder]))?;
    Ok(folder)
}

/// Runs the generator once, and returns its rate in Mpps.
fn sample(lab: &mut Lab, vgen: &str, pages: &str, name: &str, listens: bool) -> Measured<f64> {
    let mut devices = Vec::new();
    for end in 0..2 {
        let socket = lab.folder().join(format!("{name}-{end}")).display().to_string();
        let listen = if listens { "--listen" } else { "" };
        let mac = format!("02:11:00:00:00:0{end}");
        lab.taut(format!("port attach gen{end} --portgroup lan --mac {mac} --path {socket} {listen}"))?;
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
    let command = Command::new(vgen).args(options).args(["--huge-dir", pages]).args(devices);
    let command = command.args("-- tput 64 3 256").limit(60).record(name);
    let rate = lab.run(&command)?.stdout.number_between(" rx=", " Mpps");
    for end in 0..2 {
        lab.taut(format!("port detach gen{end}"))?;
    }
    rate
}
