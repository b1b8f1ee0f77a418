use std::time::Duration;

use taut_host::observe::interrupts::{Interrupts, Row};
use taut_host::observe::processes;

use super::*;

fn thread([pid, tid]: [u32; 2], name: &str, cpu: u32, [ran_ms, waited_ms]: [u64; 2]) -> (u32, Thread) {
    let vcpu = name.strip_prefix("CPU ").and_then(|rest| rest.split('/').next()?.parse().ok());
    let times = processes::Times { ran_ns: ran_ms * 1_000_000, waited_ns: waited_ms * 1_000_000 };
    let name = name.to_owned();
    (tid, Thread { pid, tid, name, vcpu, kernel: false, cpu, times, block_ticks: ran_ms / 100 })
}

fn machine(pid: u32, started: u64, vcpus: &[(u32, u32)]) -> Machine {
    Machine {
        pid,
        started,
        name: format!("vm{pid}"),
        threads: vcpus.len(),
        vcpus: vcpus.iter().copied().collect(),
        others_ns: 0,
        throttled_ns: Some(0),
        memory: None,
        disk: Some(DiskUse::default()),
    }
}

fn reading(at_ms: u64, machines: Vec<Machine>, threads: Vec<(u32, Thread)>) -> Reading {
    Reading {
        at: Duration::from_millis(at_ms),
        machines,
        threads: threads.into_iter().collect(),
        ..Reading::default()
    }
}

#[test]
fn times_are_those_between_the_readings_and_a_neighbour_is_named() {
    let machines = || vec![machine(7, 1, &[(0, 8)]), machine(9, 1, &[(0, 10)])];
    let before = vec![
        thread([7, 8], "CPU 0/KVM", 0, [1000, 0]),
        thread([9, 10], "CPU 0/KVM", 0, [5000, 0]),
        thread([3, 3], "cron", 0, [0, 0]),
        thread([4, 4], "other", 1, [0, 0]),
    ];
    let after = vec![
        thread([7, 8], "CPU 0/KVM", 0, [2000, 900]),
        thread([9, 10], "CPU 0/KVM", 0, [5600, 1400]),
        thread([3, 3], "cron", 0, [400, 0]),
        thread([4, 4], "other", 0, [900, 0]),
    ];
    let mut later = machines();
    later[0].others_ns = 100_000_000;
    later[0].throttled_ns = Some(500_000_000);
    later[0].disk = Some(DiskUse { read: 4_000_000, ..DiskUse::default() });
    let rates = between(&reading(1000, machines(), before), &reading(3000, later, after));
    let vm = &rates.vms[0];
    let vcpu = &vm.vcpus[0];
    assert_eq!(vcpu.times, Some(Times { run: 50.0, ready: 45.0 }));
    assert_eq!(vcpu.paged, None, "the kernel does not count it");
    assert_eq!(vcpu.neighbour, Some(Neighbour { name: "vm9 vCPU 0".to_owned(), percent: 30.0 }));
    assert_eq!((vm.others, vm.throttled, vm.read_per_s), (Some(5.0), Some(25.0), Some(2_000_000.0)));
    assert_eq!(rates.vms[1].vcpus[0].neighbour.as_ref().unwrap().name, "vm7 vCPU 0");
    let names: Vec<_> = rates.processes.iter().map(|process| (process.name.as_str(), process.run)).collect();
    assert_eq!(names, [("cron", 20.0), ("other", 45.0)]);
}

#[test]
fn what_is_new_or_another_and_counters_that_went_back_have_no_rate() {
    let before = reading(
        0,
        vec![machine(7, 1, &[(0, 8)]), machine(9, 1, &[(0, 10)]), machine(11, 1, &[(0, 12)])],
        vec![
            thread([7, 8], "CPU 0/KVM", 0, [1000, 0]),
            thread([9, 10], "CPU 0/KVM", 0, [5000, 0]),
            thread([11, 12], "CPU 0/KVM", 0, [5000, 0]),
        ],
    );
    // The process 7 is another VM, 9 counts from 0 again, 11 is gone, and 13 is new.
    let after = reading(
        1000,
        vec![machine(7, 2, &[(0, 8)]), machine(9, 1, &[(0, 10)]), machine(13, 1, &[(0, 14)])],
        vec![
            thread([7, 8], "CPU 0/KVM", 0, [1500, 0]),
            thread([9, 10], "CPU 0/KVM", 0, [100, 0]),
            thread([13, 14], "CPU 0/KVM", 0, [5000, 0]),
        ],
    );
    let rates = between(&before, &after);
    let times: Vec<_> = rates.vms.iter().map(|vm| (vm.pid, vm.vcpus[0].times)).collect();
    assert_eq!(times, [(7, None), (9, None), (13, None)]);
    assert_eq!([rates.vms[0].others, rates.vms[0].read_per_s, rates.vms[2].throttled], [None; 3]);
    // No time has passed.
    let none = between(&after, &after);
    assert_eq!(none.vms[0].vcpus[0].times, None);
}

#[test]
fn delays_have_a_figure_only_if_they_are_counted() {
    let counted = |at, ran| Reading {
        delays_are_counted: true,
        ..reading(at, vec![machine(7, 1, &[(0, 8)])], vec![thread([7, 8], "CPU 0/KVM", 0, [ran, 0])])
    };
    // 20 ticks of 10 ms in 4 s.
    let rates = between(&counted(0, 1000), &counted(4000, 3000));
    assert_eq!(rates.vms[0].vcpus[0].paged, Some(5.0));
}

#[test]
fn ports_with_another_owner_or_lost_counters_have_no_rate() {
    let port = |number, owner: &str, tx_frames, drops: &[(DropReason, u64)]| Port {
        number,
        owner: owner.to_owned(),
        vswitch: "sw".to_owned(),
        counters: PortCounters { tx_frames, tx_drops: drops.to_vec(), ..PortCounters::default() },
    };
    let drop = DropReason::Runt;
    let before = vec![
        port(1, "vm/a/nic0", 100, &[(drop, 5)]),
        port(2, "vm/b/nic0", 100, &[]),
        port(3, "vm/c/nic0", 100, &[(drop, 5)]),
        port(4, "vm/d/nic0", 100, &[(drop, 5)]),
    ];
    let after = vec![
        port(1, "vm/a/nic0", 300, &[(drop, 15)]),
        port(2, "vm/x/nic0", 300, &[]),
        port(3, "vm/c/nic0", 99, &[(drop, 5)]),
        port(4, "vm/d/nic0", 300, &[]),
    ];
    // The first answer took 400 ms, and the second one 10 ms.
    let asked = |at_ms, ports| Some((Duration::from_millis(at_ms), ports));
    let of = |at, ports| Reading { ports, ..reading(at, Vec::new(), Vec::new()) };
    let rates = between(&of(400, asked(0, before)), &of(2010, asked(2000, after.clone())));
    let ports = rates.ports.unwrap();
    let first = ports[0].done.as_ref().unwrap();
    assert_eq!((first.rates.tx_frames_per_s, first.rates.tx_drops_percent), (100.0, 5.0));
    assert_eq!(first.counted.tx_drops, [(drop, 10)]);
    assert!(ports[1..].iter().all(|port| port.done.is_none()), "{ports:?}");
    // The daemon answers again.
    let again = between(&of(0, None), &of(2000, asked(2000, after))).ports.unwrap();
    assert!(again.len() == 4 && again.iter().all(|port| port.done.is_none()));
    assert_eq!(between(&of(0, asked(0, Vec::new())), &of(2000, None)).ports, None);
}

#[test]
fn disks_and_interrupts_have_rates() {
    let disk = |reads, read_ms, busy_ms| Disk {
        name: "vda".to_owned(),
        reads,
        read_bytes: reads * 4096,
        read_ms,
        writes: 0,
        written_bytes: 0,
        write_ms: 0,
        active: 1,
        busy_ms,
    };
    let row = |name: &str, what: &str, counts: &[u64]| Row {
        name: name.to_owned(),
        what: what.to_owned(),
        counts: (0..).zip(counts.iter().copied()).collect(),
    };
    let of = |at, disk, rows| Reading {
        disks: vec![disk],
        interrupts: Interrupts { rows },
        ..reading(at, Vec::new(), Vec::new())
    };
    let before = vec![row("9", "acpi", &[1, 1]), row("10", "old", &[1, 1]), row("LOC", "timer", &[10, 10])];
    let after = vec![row("9", "acpi", &[1, 1]), row("10", "new", &[9, 9]), row("LOC", "timer", &[20, 50])];
    let rates = between(&of(0, disk(10, 5, 0), before), &of(2000, disk(20, 25, 500), after));
    let vda = &rates.disks[0];
    assert_eq!((vda.reads_per_s, vda.request_ms, vda.busy), (Some(5.0), Some(2.0), Some(25.0)));
    let timer = &rates.interrupts[0];
    assert_eq!(rates.interrupts.len(), 1);
    assert_eq!(
        (timer.name.as_str(), timer.per_s, &timer.pcpus[..]),
        ("LOC", 25.0, &[(1, 20.0), (0, 5.0)][..])
    );
}
