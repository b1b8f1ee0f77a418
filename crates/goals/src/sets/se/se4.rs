//! SE4: walls around every kind of process, as `/proc` shows them while they run.

use std::path::Path;
use std::time::Duration;

use crate::figure::Bound;
use crate::lab::{DaemonOptions, Lab, NEWEST, Walls};
use crate::machine::{Command, Job};
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

/// Bound of each kind of process.
const ALL: &[Bound] = &[Bound::Exactly(100.0, "% of the walls"), Bound::AtLeast(17.0, "walls")];

pub(super) const ROW: Row = Row {
    id: "SE4",
    what: "user, group, capabilities, privileges, filter and namespaces of every kind of process",
    on: "processes of two daemons, with QEMU as it is installed and with 7.2, read from /proc",
    goals: &[
        Goal::new("SE4-qemu-10", ALL),
        Goal::new("SE4-qemu-kvm", ALL),
        Goal::new("SE4-qemu-7.2", ALL),
        Goal::new("SE4-micro", ALL),
        Goal::new("SE4-fabric", ALL),
        Goal::new("SE4-console", ALL),
        Goal::new("SE4-inspector", ALL),
        Goal::new("SE4-landlock", &[Bound::Exactly(1.0, "test passed")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let outcome = lab.start_lan(DaemonOptions::default()).map(|_| first(lab, results));
    results.settle(&["SE4-qemu-10", "SE4-qemu-kvm", "SE4-micro", "SE4-fabric", "SE4-console"], outcome);
    let stopped = lab.stop_daemon();
    let outcome = old_qemu(lab, results);
    results.settle(&["SE4-qemu-7.2"], outcome);
    let words = "-p taut-launch --test launch walls::landlock_refuses_files_that_anybody_may_read";
    let tests = lab.cargo_test(words)?;
    let detail = "a file that anybody may read is refused to a program without a root of its own";
    results.record("SE4-landlock", [tests.passed], detail);
    stopped
}

/// Looks at the processes of a daemon with the QEMU that is installed.
fn first(lab: &mut Lab, results: &mut Results) {
    let seen = [
        ("SE4-micro", micro(lab)),
        ("SE4-fabric", lab.fabric_pid().and_then(|pid| lab.walls_of(pid, "taut-fabric"))),
        ("SE4-console", console(lab)),
        ("SE4-inspector", inspector(lab)),
        ("SE4-qemu-10", emulated(lab, "10.")),
        ("SE4-qemu-kvm", under_kvm(lab)),
    ];
    let users: Vec<String> =
        seen.iter().filter_map(|(_, walls)| Some(walls.as_ref().ok()?.user.clone())).collect();
    for (goal, walls) in seen {
        let outcome = walls.map(|mut walls| {
            let own = users.iter().filter(|user| **user == walls.user).count();
            walls.check("a user of its own", own == 1);
            record(results, goal, &walls);
        });
        results.settle(&[goal], outcome);
    }
}

fn record(results: &mut Results, goal: &str, walls: &Walls) {
    let missing = if walls.missing.is_empty() {
        String::new()
    } else {
        format!(", without {}", walls.missing.join(", "))
    };
    let detail = format!("{} as user {} and group {}{missing}", walls.program, walls.user, walls.group);
    results.record(goal, [walls.percent(), walls.wanted as f64], detail);
}

fn micro(lab: &mut Lab) -> Measured<Walls> {
    lab.micro("micro", "10.80.0.1", "")?;
    let pid = lab.vm_pid("micro")?;
    lab.walls_of(pid, "taut-micro")
}

fn console(lab: &mut Lab) -> Measured<Walls> {
    let record = lab.daemon()?.folder.join("run/console.pid");
    lab.until("the console process is recorded", 10, |lab| Ok(lab.machine().exists(&record)))?;
    let pid = u32::try_from(lab.read(&record)?.json()?.count("pid")?)?;
    lab.walls_of(pid, "taut-console")
}

/// Boots a guest in emulation.
fn emulated(lab: &mut Lab, version: &str) -> Measured<Walls> {
    let found = lab.taut_json("host show")?.text("qemu.version")?;
    let is_granted = lab.machine().takes_for_granted();
    require(found.starts_with(version) || is_granted, format!("QEMU is {found}, not {version}"))?;
    lab.vm("emulated", NEWEST, "10.80.0.2", "accelerator = \"tcg\"")?;
    let pid = lab.vm_pid("emulated")?;
    lab.walls_of(pid, "qemu-system-x86")
}

/// Starts QEMU with KVM. Whether a guest gets anywhere does not matter here: QEMU holds the
/// kernel's VM open, and answers its monitor.
fn under_kvm(lab: &mut Lab) -> Measured<Walls> {
    require(lab.machine().exists(Path::new("/dev/kvm")), "this host has no KVM")?;
    let boot = lab.boot_of(NEWEST)?;
    lab.create_vm("accelerated", &format!("memory = \"128MiB\"\naccelerator = \"kvm\"\n{boot}"))?;
    lab.taut("vm start accelerated")?;
    lab.until("QEMU answers its monitor", 20, |lab| {
        Ok(lab.vm_show("accelerated")?.text("status.phase")? == "running")
    })?;
    let pid = lab.vm_pid("accelerated")?;
    let open =
        lab.run(&Command::new("sh").args(["-c", "readlink /proc/$0/fd/* || :", &pid.to_string()]))?.stdout;
    require(open.contains("kvm-vm"), format!("QEMU, process {pid}, has no VM of KVM open"))?;
    lab.walls_of(pid, "qemu-system-x86")
}

/// Looks at an inspector, which lives for milliseconds: its first read of the image is held.
fn inspector(lab: &mut Lab) -> Measured<Walls> {
    let hold = lab.example("taut-tests", "hold_reads")?;
    let image = lab.folder().join("held.qcow2");
    lab.run(&Command::new("qemu-img").args("create -q -f qcow2").arg(&image).args("16M"))?;
    let file = format!("memory = \"64MiB\"\n[disk]\npath = \"{}\"\nformat = \"qcow2\"\n", image.display());
    lab.create_vm("inspected", &file)?;
    let holder = lab.start(&Command::new(hold).arg(&image))?;
    lab.until("reads are held", 10, |lab| Ok(lab.machine().output(&holder)?.contains("ready")))?;
    let starting = lab.taut_command("vm start inspected");
    let starting = lab.start(&starting)?;
    let walls = held(lab, &holder);
    lab.end(&holder);
    // The inspector has gone on, and has ended as usual.
    let started = lab.wait(&starting, Duration::from_secs(30));
    let walls = walls?;
    started?;
    Ok(walls)
}

fn held(lab: &mut Lab, holder: &Job) -> Measured<Walls> {
    lab.until("the inspector reads", 9, |lab| Ok(lab.machine().output(holder)?.contains("held ")))?;
    let pid = lab.machine().output(holder)?.number_between("held ", "")?;
    lab.walls_of(pid as u32, "taut-inspect")
}

/// Looks at Debian's QEMU 7.2, which is unpacked and not installed.
fn old_qemu(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let bin = lab.qemu_7_2()?;
    let path = lab.machine().variable("PATH").unwrap_or_default();
    let options = DaemonOptions::default().env("PATH", &format!("{}:{path}", bin.display()));
    lab.start_lan(options)?;
    let mut walls = emulated(lab, "7.2.")?;
    let fabric = lab.fabric_pid()?;
    let fabric = lab.walls_of(fabric, "taut-fabric")?;
    walls.check("a user of its own", walls.user != fabric.user);
    record(results, "SE4-qemu-7.2", &walls);
    Ok(())
}
