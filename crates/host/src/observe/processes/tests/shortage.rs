//! Readings while descriptors are short.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::*;
use crate::kernel::shortage::rig::{alone, leave_free};

/// Numbers of readings with too few descriptors. Names of threads are due in some of them.
const LENGTHS: [u64; 4] = [1, 2, 4, 16];
const FIGURES: Figures = Figures { detail: Detail::Times, paging: false };

impl Host {
    /// Writes the times of a process's three threads.
    fn three_threads(&self) {
        for (tid, name) in [(10, "qemu"), (11, "CPU 0/KVM"), (12, "worker")] {
            self.thread(10, tid, name, [1000, 100]);
        }
    }

    /// Opens the times of a thread, so that they can be changed while no descriptor is free.
    fn schedstat(&self, tid: u32) -> File {
        let path = self.0.path().join(format!("proc/10/task/{tid}/schedstat"));
        File::options().write(true).open(path).unwrap()
    }
}

/// Writes how long a thread ran, as four digits.
fn run(schedstat: &File, ran_ns: u64) {
    schedstat.write_all_at(format!("{ran_ns} 100 7\n").as_bytes(), 0).unwrap();
}

#[test]
fn times_that_were_missed_for_want_of_descriptors_are_not_new() {
    alone(module_path!(), "times_that_were_missed_for_want_of_descriptors_are_not_new", || {
        let host = Host(tempfile::tempdir().unwrap());
        let (folder, files) = (host.0.path().join("proc/10"), OpenFileBudget::of_this_process());
        for (free, readings) in (0..8).flat_map(|free| LENGTHS.map(|readings| (free, readings))) {
            host.three_threads();
            let (mut threads, vcpu_runs) = (Threads::default(), host.schedstat(11));
            let read = |threads: &mut Threads| threads.read(&folder, None, FIGURES, None, &files);
            let hoard = leave_free(free);
            for reading in 1..=readings {
                run(&vcpu_runs, 1000 + reading);
                read(&mut threads);
            }
            assert!(free > 0 || threads.had_shortage());
            drop(hoard);
            for reading in readings + 1..=readings + 2 {
                run(&vcpu_runs, 1000 + reading);
                read(&mut threads);
            }
            let case = format!("{free} descriptors were free for {readings} readings");
            assert!(!threads.had_shortage(), "{case}");
            assert_eq!(threads.others(), Times::default(), "{case}");
            let expected = BTreeMap::from([(0, vcpu(11, [1002 + readings, 100]))]);
            assert_eq!(threads.vcpus(), expected, "{case}");
            host.thread(10, 12, "worker", [1030, 103]);
            read(&mut threads);
            assert_eq!(threads.others(), times([30, 3]), "{case}");
        }
    });
}

#[test]
fn times_of_other_threads_in_a_shortage_count_once() {
    alone(module_path!(), "times_of_other_threads_in_a_shortage_count_once", || {
        let host = Host(tempfile::tempdir().unwrap());
        let (folder, files) = (host.0.path().join("proc/10"), OpenFileBudget::of_this_process());
        for (free, readings) in (0..8).flat_map(|free| LENGTHS.map(|readings| (free, readings))) {
            host.three_threads();
            let (mut threads, worker_runs) = (Threads::default(), host.schedstat(12));
            let read = |threads: &mut Threads| threads.read(&folder, None, FIGURES, None, &files);
            read(&mut threads);
            host.thread(10, 13, "CPU 1/KVM", [700, 70]);
            host.thread(10, 14, "late", [500, 50]);
            let hoard = leave_free(free);
            for reading in 1..=readings {
                run(&worker_runs, 1000 + reading);
                read(&mut threads);
            }
            drop(hoard);
            for _ in 0..2 {
                read(&mut threads);
            }
            let case = format!("{free} descriptors were free for {readings} readings");
            assert_eq!(threads.others(), times([readings + 500, 50]), "{case}");
            assert_eq!(threads.vcpus()[&1], vcpu(13, [700, 70]), "{case}");
            host.end_of_thread(10, 13);
            host.end_of_thread(10, 14);
        }
    });
}

#[test]
fn a_machine_is_complete_again_after_a_shortage() {
    alone(module_path!(), "a_machine_is_complete_again_after_a_shortage", || {
        let host = Host(tempfile::tempdir().unwrap());
        host.process(10, "/usr/bin/qemu-system-x86_64", &["qemu"]);
        host.three_threads();
        fs::write(host.0.path().join("proc/10/status"), "VmRSS: 7 kB\n").unwrap();
        fs::write(host.0.path().join("proc/10/io"), "read_bytes: 8\nwrite_bytes: 9\n").unwrap();
        let mut processes = Processes::new(host.0.path());
        let mut read = |free: usize| {
            let hoard = leave_free(free);
            let machine = processes.read(SAMPLES, |_| false).machines.pop();
            drop(hoard);
            machine.map(|machine| (machine.complete, machine.memory.is_some() && machine.disk.is_some()))
        };
        assert_eq!(read(0), None, "no process can be listed");
        assert_eq!(read(1), Some((false, false)), "the folder of threads stays open");
        assert_eq!(read(30), Some((true, true)));
        assert_eq!(read(0).map(|(is_complete, _)| is_complete), Some(false), "names are due");
        assert_eq!(read(30), Some((true, true)));
    });
}

#[test]
fn throttled_time_of_a_shortage_counts_once_it_is_over() {
    alone(module_path!(), "throttled_time_of_a_shortage_counts_once_it_is_over", || {
        let host = Host(tempfile::tempdir().unwrap());
        let cpu = host.0.path().join("sys/fs/cgroup/cpu");
        fs::create_dir_all(&cpu).unwrap();
        fs::write(cpu.join("cpu.shares"), "1024").unwrap();
        let throttle = |group: &str, ns: u64| {
            fs::create_dir_all(cpu.join(group)).unwrap();
            fs::write(cpu.join(group).join("cpu.stat"), format!("throttled_time {ns}\n")).unwrap();
        };
        let enter = |group: &str| {
            fs::write(host.0.path().join("proc/10/cgroup"), format!("1:cpu:/{group}\n")).unwrap();
        };
        host.process(10, "/usr/bin/qemu-system-x86_64", &["qemu"]);
        let controller = Controller::find(host.0.path(), None, "cpu").unwrap();
        let folder = host.0.path().join("proc/10");
        let mut groups = Groups::default();
        let mut read = |is_due: bool| groups.read(&controller, &folder, std::iter::empty(), is_due).ok();
        enter("vm");
        throttle("vm", 1000);
        assert_eq!(read(true), Some(0));
        throttle("vm", 1200);
        let hoard = leave_free(0);
        assert_eq!([read(false), read(true), read(false)], [None; 3]);
        drop(hoard);
        assert_eq!(read(false), Some(200), "the group has stayed");
        // The machine enters another group in a shortage, which has a past.
        let hoard = leave_free(1);
        enter("other");
        throttle("other", 5_000_000);
        let rest = leave_free(0);
        assert_eq!(read(true), None);
        drop((hoard, rest));
        assert_eq!(read(false), Some(200), "the groups are looked up although no more is due");
        throttle("other", 5_000_007);
        throttle("vm", 9000);
        assert_eq!(read(false), Some(207));
    });
}

#[test]
fn the_identity_of_a_machine_stays_in_a_shortage() {
    alone(module_path!(), "the_identity_of_a_machine_stays_in_a_shortage", || {
        let host = Host(tempfile::tempdir().unwrap());
        let machine = ["qemu", "-name", "db", "-uuid", UUID];
        host.process(10, "/usr/bin/qemu-system-x86_64", &machine);
        let folder = host.0.path().join("proc/10");
        let mut known = Known::default();
        let look = |known: &mut Known, free: usize| {
            let hoard = leave_free(free);
            // Identities are due in reading 256 and in some of the first ones.
            let is_there = known.look(&folder, LOOKS_PER_MACHINE);
            drop(hoard);
            assert!(is_there);
            known.machine.clone()
        };
        assert_eq!(look(&mut known, 0), None, "a part of it would be that of another machine");
        let found = look(&mut known, 8).unwrap();
        let uuid = UUID.to_lowercase();
        let whole = (1099, Some("db"), Some(uuid.as_str()));
        assert_eq!((found.started, found.name.as_deref(), found.uuid.as_deref()), whole);
        assert_eq!(look(&mut known, 0).as_ref(), Some(&found));
        // The next look reads the identity again, although it is not due then.
        host.process(10, "/usr/bin/qemu-system-x86_64", &["qemu", "-name", "web"]);
        assert!(known.look(&folder, 1));
        assert_eq!(known.machine.as_ref().and_then(|machine| machine.name.as_deref()), Some("web"));
        // The kernel may give the process another inode at such a time.
        let looks = known.looks;
        fs::rename(&folder, host.0.path().join("moved")).unwrap();
        host.process(10, "/usr/bin/qemu-system-x86_64", &["qemu", "-name", "web"]);
        assert!(look(&mut known, 0).is_some() && known.looks >= looks);
        assert!(look(&mut known, 8).is_some() && known.looks > looks, "it is the same process");
    });
}
