//! PL6: a VM that stays in its firmware under KVM, also where KVM runs no Linux: what it was
//! promised is observed from outside. The VM asks for KVM explicitly, because the probe of such a
//! host chooses emulation.

use std::path::Path;

use crate::figure::Bound;
use crate::lab::{DaemonOptions, Lab};
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

/// Memory of the guest in KiB.
const MEMORY_KIB: f64 = 65536.0;

pub(super) const ROW: Row = Row {
    id: "PL6",
    what: "what a latency-sensitive VM was promised, seen from outside",
    on: "a QEMU VM in its firmware under KVM",
    goals: &[Goal::new(
        "PL6",
        &[Bound::Exactly(7.0, "promises seen"), Bound::AtLeast(MEMORY_KIB, "KiB locked")],
    )],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    require(lab.machine().exists(Path::new("/dev/kvm")), "there is no /dev/kvm")?;
    // The whole machine makes room for the VM's pCPU while this row runs, and no longer.
    let before = host(lab)?;
    lab.start_daemon(DaemonOptions::default())?;
    let disk = lab.folder().join("blank.img");
    lab.machine().write(&disk, &"\0".repeat(1 << 20))?;
    let file = format!(
        "accelerator = \"kvm\"\nmemory = \"64MiB\"\nmemory_reservation = \"full\"\n\
         latency_sensitivity = \"high\"\n[cpu]\nreservation = \"full\"\n\
         [halt]\ndesched = false\nspin = true\n[disk]\npath = \"{}\"\n",
        disk.display()
    );
    lab.create_vm("firmware", &file)?;
    lab.taut("vm start firmware")?;
    lab.until("the latency sensitivity is in force", 10, |lab| {
        let state = lab.vm_show("firmware")?.text("status.latency.state");
        Ok(state.is_ok_and(|state| state == "granted"))
    })?;
    let pid = lab.vm_pid("firmware")?;
    let cpu = lab.vm_show("firmware")?.count("status.latency.cpus.0")?;
    let line = lab.read(format!("/proc/{pid}/cmdline"))?.as_str().replace('\0', " ");
    lab.keep("command-line.txt", &line)?;
    let locked = lab.read(format!("/proc/{pid}/status"))?.number_between("VmLck:", " kB")?;
    let bound = vcpu_cpus(lab, pid)?;
    let others = others(lab, pid, cpu)?;
    let tolerated = format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
    let tolerated = lab.read(tolerated)?.trimmed().to_owned();
    lab.taut("vm stop --force firmware")?;
    lab.stop_daemon()?;
    let after = host(lab)?;
    let promises = [
        ("cpu-pm and locked memory in its command line", line.contains("mem-lock=on,cpu-pm=on")),
        ("the accelerator, and halt polling of the guest", has_accelerator(&line)),
        ("locked memory", locked >= MEMORY_KIB),
        ("its vCPU bound to the pCPU of the plan", bound == [cpu.to_string()]),
        ("no other task of users may run there", others.is_empty()),
        ("no wake-up latency is tolerated there", tolerated == "n/a"),
        ("afterwards the host is as before", before == after),
    ];
    for (what, is_seen) in promises {
        lab.note(format!("{}: {what}", if is_seen { "seen" } else { "NOT seen" }));
    }
    lab.note(format!("others on pCPU {cpu}: {}", others.join(", ")));
    let seen = promises.iter().filter(|promise| promise.1).count();
    results.record("PL6", [seen as f64, locked], format!("of 7, on pCPU {cpu}"));
    Ok(())
}

fn has_accelerator(line: &str) -> bool {
    line.contains("-accel kvm -cpu host") && line.contains("kvm-hint-dedicated=on,kvm-poll-control=on")
}

/// Returns the pCPUs of each vCPU thread.
fn vcpu_cpus(lab: &mut Lab, pid: u32) -> Measured<Vec<String>> {
    let mut cpus = Vec::new();
    for thread in lab.machine().list(Path::new(&format!("/proc/{pid}/task")))? {
        // A thread may have ended meanwhile.
        let Ok(status) = lab.read(thread.join("status")) else { continue };
        if status.between("Name:", "")?.starts_with("CPU ") {
            cpus.push(status.between("Cpus_allowed_list:", "")?);
        }
    }
    Ok(cpus)
}

/// Returns the tasks of programs that may run on a pCPU, without the VM's vCPU.
fn others(lab: &mut Lab, vm: u32, cpu: u64) -> Measured<Vec<String>> {
    let mut found = Vec::new();
    for process in lab.machine().list(Path::new("/proc"))? {
        let name = process.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_process = name.chars().all(|c| c.is_ascii_digit());
        // Kernel threads have no command line. A process may end meanwhile.
        let has_line =
            is_process && lab.read(process.join("cmdline")).is_ok_and(|line| !line.as_str().is_empty());
        let tasks =
            if has_line { lab.machine().list(&process.join("task")).unwrap_or_default() } else { Vec::new() };
        for task in tasks {
            let Ok(status) = lab.read(task.join("status")) else { continue };
            let (Ok(comm), Ok(cpus)) =
                (status.between("Name:", ""), status.between("Cpus_allowed_list:", ""))
            else {
                continue;
            };
            let is_vcpu = name == vm.to_string() && comm.starts_with("CPU ");
            if contains(&cpus, cpu) && !is_vcpu {
                found.push(format!("{name}: {comm}"));
            }
        }
    }
    Ok(found)
}

/// Returns true if a list such as `0,2-5` contains a pCPU.
fn contains(list: &str, cpu: u64) -> bool {
    list.split(',').any(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let limits = low.trim().parse::<u64>().ok().zip(high.trim().parse::<u64>().ok());
        limits.is_some_and(|(low, high)| (low..=high).contains(&cpu))
    })
}

/// Writes what the plan changes on the host.
fn host(lab: &mut Lab) -> Measured<String> {
    let mut text = String::new();
    let mut paths: Vec<_> =
        lab.machine().list(Path::new("/proc/irq"))?.iter().map(|irq| irq.join("smp_affinity_list")).collect();
    let cpus = lab.machine().list(Path::new("/sys/devices/system/cpu"))?;
    paths.extend(cpus.iter().map(|cpu| cpu.join("power/pm_qos_resume_latency_us")));
    for path in ["/proc/irq/default_smp_affinity", "/sys/devices/virtual/workqueue/cpumask"] {
        paths.push(path.into());
    }
    for path in paths {
        // Some interrupts and folders have no such file.
        if let Ok(content) = lab.read(&path) {
            text += &format!("{} {}\n", path.display(), content.trimmed());
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_pcpus_have_ranges() {
        assert!(contains("0,2-5", 4) && contains("0,2-5", 0) && contains("1", 1));
        assert!(!contains("0,2-5", 1) && !contains("", 0));
    }

    #[test]
    fn the_accelerator_is_kvm_with_its_hints() {
        let line = "qemu -accel kvm -cpu host,migratable=no,kvm-hint-dedicated=on,kvm-poll-control=on -m 64";
        assert!(has_accelerator(line));
        assert!(!has_accelerator("qemu -accel tcg -cpu max"));
    }
}
