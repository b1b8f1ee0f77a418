//! Hosts whose processes the tests have made.

use std::fs;
use std::os::unix::fs::symlink;

use taut_api::printable::MOST_NAME;

use super::groups::LOOKS_PER_GROUPS;
use super::threads::{Figures, Threads};
use super::*;

mod shortage;

const UUID: &str = "6BA7B810-9DAD-11D1-80B4-00C04FD430C8";
/// Needs of the daemon's samples.
const SAMPLES: Needs =
    Needs { threads: Detail::Times, throttling: true, memory: true, disk: true, paging: true };
/// Needs of a list of all threads.
const PLACES: Needs = Needs { threads: Detail::Places, ..Needs::LEAST };

struct Host(tempfile::TempDir);

impl Host {
    fn process(&self, pid: u32, program: &str, line: &[&str]) {
        let folder = self.0.path().join(format!("proc/{pid}"));
        fs::create_dir_all(folder.join("task")).unwrap();
        let _ = fs::remove_file(folder.join("exe"));
        symlink(program, folder.join("exe")).unwrap();
        fs::write(folder.join("cmdline"), line.join("\0")).unwrap();
        let rest = vec!["7"; 18].join(" ");
        fs::write(folder.join("stat"), format!("{pid} (q) x) S {rest} {pid}99 5\n")).unwrap();
    }

    fn thread(&self, pid: u32, tid: u32, name: &str, [ran, waited]: [u64; 2]) {
        let folder = self.0.path().join(format!("proc/{pid}/task/{tid}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
        fs::write(folder.join("schedstat"), format!("{ran} {waited} 7\n")).unwrap();
        self.place(pid, tid, name, 0);
    }

    /// Writes on which pCPU a thread ran.
    fn place(&self, pid: u32, tid: u32, name: &str, cpu: u32) {
        let rest = vec!["0"; 35].join(" ");
        let stat = format!("{tid} ({name}) S {rest} {cpu} 0 0 25\n");
        fs::write(self.0.path().join(format!("proc/{pid}/task/{tid}/stat")), stat).unwrap();
    }

    fn end_of_thread(&self, pid: u32, tid: u32) {
        // An open file of a thread that has ended cannot be read.
        fs::write(self.0.path().join(format!("proc/{pid}/task/{tid}/schedstat")), "").unwrap();
        fs::remove_dir_all(self.0.path().join(format!("proc/{pid}/task/{tid}"))).unwrap();
    }
}

fn times([ran_ns, waited_ns]: [u64; 2]) -> Times {
    Times { ran_ns, waited_ns }
}

fn vcpu(tid: u32, spent: [u64; 2]) -> Vcpu {
    Vcpu { tid, times: times(spent) }
}

#[test]
fn machines_are_found_by_their_program_and_named_by_their_command_line() {
    let host = Host(tempfile::tempdir().unwrap());
    let libvirts = ["qemu", "-name", "guest=db,debug-threads=on", "-uuid", UUID, "-m", "1G"];
    host.process(10, "/usr/bin/qemu-system-x86_64", &libvirts);
    host.process(11, "/usr/bin/kvm", &["kvm", "--name", "web,process=x"]);
    host.process(12, "/usr/libexec/qemu-kvm (deleted)", &["qemu", "-m", "1G"]);
    host.process(13, "/usr/sbin/libvirtd", &["libvirtd", "-name", "x"]);
    let mut processes = Processes::new(host.0.path());
    let found = processes.read(SAMPLES, |_| false).machines;
    let all: Vec<_> =
        found.iter().map(|found| (found.pid, found.name.as_deref(), found.uuid.as_deref())).collect();
    assert_eq!(
        all,
        [(10, Some("db"), Some(&*UUID.to_lowercase())), (11, Some("web"), None), (12, None, None)]
    );
    assert_eq!((found[0].started, found[0].looks), (1099, 1));
    assert_eq!((found[0].throttled_ns, found[0].memory, found[0].disk), (None, None, None));
    // libvirt's child runs QEMU a bit later.
    host.process(13, "/usr/bin/qemu-system-x86_64", &["qemu", "-name", "late"]);
    assert_eq!(processes.read(SAMPLES, |_| false).machines.len(), 4);
    fs::remove_dir_all(host.0.path().join("proc/10")).unwrap();
    assert_eq!(processes.read(SAMPLES, |_| false).machines.len(), 3);
}

#[test]
fn times_of_vcpus_are_the_kernels_and_those_of_other_threads_add_up() {
    let host = Host(tempfile::tempdir().unwrap());
    host.process(10, "/usr/bin/qemu-system-x86_64", &["qemu"]);
    host.thread(10, 10, "qemu-system-x86", [500, 5]);
    host.thread(10, 11, "CPU 0/KVM", [1000, 100]);
    host.thread(10, 12, "qemu-system-x86", [0, 0]);
    let mut processes = Processes::new(host.0.path());
    let first = processes.read(SAMPLES, |_| false).machines.remove(0);
    assert_eq!((first.threads, &first.vcpus), (3, &BTreeMap::from([(0, vcpu(11, [1000, 100]))])));
    assert_eq!(first.others, Times::default(), "what was before is not known to be anybody's");
    host.thread(10, 10, "qemu-system-x86", [600, 6]);
    host.thread(10, 11, "CPU 0/KVM", [3000, 300]);
    // The second vCPU has got its name, and a thread for I/O has come.
    host.thread(10, 12, "CPU 1/KVM", [70, 7]);
    host.thread(10, 13, "worker", [30, 3]);
    let second = processes.read(SAMPLES, |_| false).machines.remove(0);
    assert_eq!(second.vcpus, BTreeMap::from([(0, vcpu(11, [3000, 300])), (1, vcpu(12, [70, 7]))]));
    assert_eq!(second.others, times([130, 4]));
    host.end_of_thread(10, 13);
    host.thread(10, 10, "qemu-system-x86", [601, 6]);
    assert_eq!(
        processes.read(SAMPLES, |_| false).machines.remove(0).others,
        times([131, 4]),
        "it does not go back"
    );
}

#[test]
fn vcpus_wait_for_memory_from_when_they_are_first_seen() {
    let host = Host(tempfile::tempdir().unwrap());
    let wait = |ran: u64, ticks: u64| {
        host.thread(10, 11, "CPU 0/KVM", [ran, 0]);
        let rest = vec!["0"; 35].join(" ");
        let stat = format!("11 (CPU 0/KVM) S {rest} 0 0 0 {ticks}\n");
        fs::write(host.0.path().join("proc/10/task/11/stat"), stat).unwrap();
    };
    host.process(10, "/usr/bin/qemu-system-x86_64", &["qemu"]);
    wait(1000, 500);
    let mut processes = Processes::new(host.0.path());
    let mut read = || processes.read(SAMPLES, |_| false).machines.remove(0).paged_ns;
    assert_eq!(read(), None, "the kernel does not count it");
    let sysctl = host.0.path().join("proc/sys/kernel/task_delayacct");
    fs::create_dir_all(sysctl.parent().unwrap()).unwrap();
    fs::write(sysctl, "1\n").unwrap();
    assert_eq!(read(), Some(0), "what was before is not known");
    wait(2000, 525);
    assert_eq!(read(), Some(250_000_000));
    wait(2000, 550);
    assert_eq!(read(), Some(250_000_000), "a vCPU that has not run still waits");
    wait(3000, 575);
    assert_eq!(read(), Some(750_000_000));
}

#[test]
fn throttled_time_is_that_of_the_groups_while_the_machine_is_in_them() {
    let host = Host(tempfile::tempdir().unwrap());
    let cpu = host.0.path().join("sys/fs/cgroup/cpu");
    fs::create_dir_all(cpu.join("vm/inner")).unwrap();
    fs::create_dir_all(cpu.join("other")).unwrap();
    fs::write(cpu.join("cpu.shares"), "1024").unwrap();
    let throttle = |group: &str, ns: u64| {
        fs::write(cpu.join(group).join("cpu.stat"), format!("throttled_time {ns}\n")).unwrap();
    };
    let enter = |group: &str| {
        fs::write(host.0.path().join("proc/10/cgroup"), format!("1:cpu:/{group}\n")).unwrap();
    };
    host.process(10, "/usr/bin/qemu-system-x86_64", &["qemu"]);
    host.thread(10, 10, "qemu", [5, 0]);
    enter("vm/inner");
    throttle("vm", 1000);
    throttle("vm/inner", 70);
    throttle("other", 5_000_000);
    let mut processes = Processes::new(host.0.path());
    let mut read = || processes.read(SAMPLES, |_| false).machines.remove(0).throttled_ns;
    assert_eq!(read(), Some(0));
    throttle("vm", 1200);
    throttle("vm/inner", 75);
    host.thread(10, 10, "qemu", [6, 0]);
    assert_eq!(read(), Some(205));
    enter("other");
    for _ in 0..LOOKS_PER_GROUPS {
        read();
    }
    throttle("other", 6_000_000);
    throttle("vm", 9000);
    host.thread(10, 10, "qemu", [7, 0]);
    assert_eq!(read(), Some(205), "the past of a group is not the machine's");
    throttle("other", 6_000_001);
    host.thread(10, 10, "qemu", [9, 0]);
    assert_eq!(read(), Some(206));
    // The past of a group that cannot be read at first is not the machine's either.
    fs::create_dir_all(cpu.join("late")).unwrap();
    enter("late");
    for _ in 0..LOOKS_PER_GROUPS {
        read();
    }
    host.thread(10, 10, "qemu", [10, 0]);
    assert_eq!(read(), Some(206));
    for (ran, ns, expected) in [(11, 7_000_000, 206), (12, 7_000_002, 208)] {
        throttle("late", ns);
        host.thread(10, 10, "qemu", [ran, 0]);
        assert_eq!(read(), Some(expected));
    }
}

#[test]
fn threads_have_their_pcpu_and_their_times() {
    let host = Host(tempfile::tempdir().unwrap());
    host.process(7, "/usr/bin/qemu-system-x86_64", &["qemu"]);
    host.thread(7, 7, "qemu) (x\u{1b}", [5, 1]);
    host.thread(7, 8, "CPU 1/KVM", [100, 50]);
    host.place(7, 8, "CPU 1/KVM", 3);
    host.process(9, "/usr/sbin/cron", &["cron"]);
    host.thread(9, 9, "cron", [3, 0]);
    let mut processes = Processes::new(host.0.path());
    let first = processes.read(PLACES, |_| false);
    let of = |thread: &Thread| (thread.tid, thread.name.clone(), thread.vcpu, thread.cpu);
    assert_eq!(
        first.threads.iter().map(of).collect::<Vec<_>>(),
        [
            (7, "qemu) (x\u{fffd}".to_owned(), None, 0),
            (8, "CPU 1/KVM".to_owned(), Some(1), 3),
            (9, "cron".to_owned(), None, 0)
        ]
    );
    assert_eq!((first.threads[1].times, first.threads[1].block_ticks), (times([100, 50]), 25));
    host.thread(7, 8, "CPU 1/KVM", [200, 60]);
    host.place(7, 8, "CPU 1/KVM", 2);
    assert_eq!(processes.read(PLACES, |_| false).threads[1].cpu, 2);
    // The kernel uses a number again.
    fs::rename(host.0.path().join("proc/7"), host.0.path().join("ended")).unwrap();
    host.process(7, "/usr/sbin/atd", &["atd"]);
    // Only now, so that the new folder has another inode.
    fs::remove_dir_all(host.0.path().join("ended")).unwrap();
    let later = format!("7 (atd) S {} 79999 5\n", vec!["7"; 18].join(" "));
    fs::write(host.0.path().join("proc/7/stat"), later).unwrap();
    host.thread(7, 7, "atd", [5, 1]);
    let last = processes.read(PLACES, |_| false);
    assert_eq!((last.machines.len(), last.threads.len(), last.threads[0].name.as_str()), (0, 2, "atd"));
    assert!(!delays_are_counted(host.0.path()));
}

#[test]
fn a_thread_that_follows_another_one_is_found_although_their_number_stays() {
    let host = Host(tempfile::tempdir().unwrap());
    host.process(7, "/usr/bin/kvm", &["kvm"]);
    host.thread(7, 7, "kvm", [5, 1]);
    host.thread(7, 8, "worker", [5, 1]);
    let mut processes = Processes::new(host.0.path());
    for (gone, new) in [(8, 9), (9, 8)] {
        processes.read(PLACES, |_| false);
        host.end_of_thread(7, gone);
        host.thread(7, new, "worker", [0, 0]);
        let numbers: Vec<_> =
            processes.read(PLACES, |_| false).threads.iter().map(|thread| thread.tid).collect();
        assert_eq!(numbers, [7, new]);
    }
}

#[test]
fn a_reading_has_no_more_than_was_needed() {
    let host = Host(tempfile::tempdir().unwrap());
    host.process(7, "/usr/bin/kvm", &["kvm"]);
    host.thread(7, 7, "kvm", [5, 1]);
    host.thread(7, 8, "CPU 0/KVM", [100, 50]);
    fs::write(host.0.path().join("proc/7/status"), "VmRSS: 7 kB\n").unwrap();
    let mut processes = Processes::new(host.0.path());
    let mut read = |needs| {
        let mut found = processes.read(needs, |_| false);
        (found.machines.remove(0), found.threads.len())
    };
    let (least, threads) = read(Needs::LEAST);
    assert_eq!((least.threads, least.vcpus[&0], least.memory, threads), (2, vcpu(8, [0, 0]), None, 0));
    let (sampled, threads) = read(SAMPLES);
    assert_eq!((sampled.vcpus[&0], threads), (vcpu(8, [100, 50]), 0));
    assert_eq!(sampled.memory.map(|memory| memory.resident), Some(7 << 10));
    assert_eq!(read(PLACES).1, 2);
    assert!(SAMPLES.covers(Needs::LEAST) && !SAMPLES.covers(PLACES));
    assert!(SAMPLES.and(PLACES).covers(SAMPLES));
}

#[test]
fn names_of_strangers_are_printable_and_short() {
    let host = Host(tempfile::tempdir().unwrap());
    let name = format!("guest=a\u{1b}]0;\u{202e}\n{}", "x".repeat(100_000));
    host.process(7, "/tmp/kvm", &["kvm", "-uuid", "../../x\"} 1", "-name", &name]);
    let machine = Processes::new(host.0.path()).read(Needs::LEAST, |_| false).machines.remove(0);
    let name = machine.name.clone().unwrap();
    assert!(name.starts_with("a\u{fffd}]0;\u{fffd}\u{fffd}x") && name.ends_with("x…"), "{name}");
    assert_eq!((name.chars().count(), machine.uuid.clone()), (MOST_NAME, None));
    // A name behind the bound is not read, and one that is cut by it is shorter.
    let line = "y".repeat(70_000);
    host.process(8, "/tmp/kvm", &["kvm", &line, "-name", "late"]);
    assert_eq!(Processes::new(host.0.path()).read(Needs::LEAST, |_| false).machines[1].name, None);
}

#[test]
fn machines_of_others_are_bounded_and_the_oldest_come_first() {
    let host = Host(tempfile::tempdir().unwrap());
    for pid in 1..=u32::try_from(MOST_MACHINES).unwrap() + 3 {
        host.process(pid, "/tmp/kvm", &["kvm"]);
    }
    let mut processes = Processes::new(host.0.path());
    let is_own = |pid| pid == 1027;
    let found = processes.read(Needs::LEAST, is_own);
    assert_eq!((found.machines.len(), found.machines_left_out), (MOST_MACHINES + 1, 2));
    // Processes began in the order of their text: 1099, 10099, … 99 behind the number.
    let is_in = |pid| found.machines.iter().any(|machine| machine.pid == pid);
    assert!(is_in(1) && is_in(1024) && is_in(1027) && !is_in(1025) && !is_in(1026));
    // One that has more threads than all may have is left out, and no other.
    let budget = &mut Budget { processes: 2, threads: 10 };
    assert_eq!([11, 4, 7, 6, 0].map(|count| budget.take(Some(count))), [false, true, false, true, false]);
}

#[test]
fn processes_are_listed_only_after_one_has_begun() {
    const QEMU: &str = "/usr/bin/qemu-system-x86_64";
    let host = Host(tempfile::tempdir().unwrap());
    let newest = |pid: u32| {
        fs::write(host.0.path().join("proc/loadavg"), format!("0.00 0.01 0.05 1/234 {pid}\n")).unwrap();
    };
    host.process(50, "/bin/sh", &["sh"]);
    host.process(60, QEMU, &[QEMU]);
    host.thread(60, 60, "qemu", [5, 0]);
    newest(60);
    let mut processes = Processes::new(host.0.path());
    let mut found = |needs| {
        let machines = processes.read(needs, |_| false).machines.into_iter();
        machines.map(|machine| (machine.pid, machine.looks)).collect::<Vec<_>>()
    };
    assert_eq!(found(SAMPLES), [(60, 1)]);
    // The shell becomes a machine, and the machine ends.
    host.process(50, QEMU, &[QEMU]);
    fs::remove_dir_all(host.0.path().join("proc/60")).unwrap();
    host.process(70, QEMU, &[QEMU]);
    assert_eq!(found(SAMPLES), [(50, 2)], "the kernel tells of no new process");
    newest(70);
    assert_eq!(found(SAMPLES), [(50, 3), (70, 1)]);
    host.process(80, QEMU, &[QEMU]);
    assert_eq!(found(PLACES).len(), 3, "all are needed");
}

#[test]
fn a_machine_that_rests_is_not_looked_at_until_something_has_begun_or_ended() {
    let host = Host(tempfile::tempdir().unwrap());
    let newest = |pid: u32| {
        fs::write(host.0.path().join("proc/loadavg"), format!("0.00 0.01 0.05 1/234 {pid}\n")).unwrap();
    };
    host.process(60, "/usr/bin/qemu-system-x86_64", &["qemu"]);
    host.thread(60, 60, "qemu", [5, 0]);
    host.thread(60, 61, "CPU 0/KVM", [5, 0]);
    newest(61);
    let mut processes = Processes::new(host.0.path());
    let mut threads = || processes.read(SAMPLES, |_| false).machines.first().map(|machine| machine.threads);
    // Later looks are those 4 and 8.
    assert_eq!([(); 5].map(|()| threads()), [Some(2); 5]);
    host.thread(60, 62, "worker", [5, 0]);
    assert_eq!(threads(), Some(2), "the kernel tells of no new thread");
    newest(62);
    assert_eq!(threads(), Some(3));
    // The thread ends, and then the process.
    host.end_of_thread(60, 62);
    assert_eq!(threads(), Some(2));
    host.end_of_thread(60, 60);
    host.end_of_thread(60, 61);
    fs::remove_dir_all(host.0.path().join("proc/60")).unwrap();
    assert_eq!(threads(), None, "a machine that has ended is in no reading");
}

#[test]
fn threads_are_read_again_only_once_their_process_has_run() {
    let host = Host(tempfile::tempdir().unwrap());
    host.process(60, "/usr/bin/qemu-system-x86_64", &["qemu"]);
    let write = |ran: u64| host.thread(60, 61, "CPU 0/KVM", [ran, 0]);
    write(5);
    let folder = host.0.path().join("proc/60");
    let (mut threads, files) = (Threads::default(), OpenFileBudget::of_this_process());
    let mut read = |ran: Option<u64>, count: usize, detail: Detail, paging: bool| {
        let ran = ran.map(Duration::from_nanos);
        threads.read(&folder, Some(count), Figures { detail, paging }, ran, &files);
        (threads.may_have_run(), threads.vcpus().get(&0).map(|vcpu| vcpu.times.ran_ns))
    };
    assert_eq!(read(Some(5), 1, Detail::Times, false), (true, Some(5)));
    write(6);
    assert_eq!(read(Some(5), 1, Detail::Times, false), (false, Some(5)), "the kernel says that it rests");
    assert_eq!(read(Some(5), 1, Detail::Times, true), (true, Some(6)), "more is needed");
    write(7);
    assert_eq!(read(Some(5), 1, Detail::Times, false), (false, Some(6)), "less is needed");
    assert_eq!(read(Some(5), 1, Detail::Places, false), (true, Some(7)));
    write(8);
    assert_eq!(read(Some(5), 2, Detail::Places, false), (true, Some(8)), "there is another thread");
    write(9);
    assert_eq!(read(Some(6), 1, Detail::Places, false), (true, Some(9)));
    write(10);
    assert_eq!(read(None, 1, Detail::Places, false), (true, Some(10)), "the kernel does not tell");
    write(11);
    assert_eq!(read(None, 1, Detail::Places, false), (true, Some(11)));
}

/// A program that returns what is written to it.
struct Echo(std::process::Child);

impl Echo {
    fn start() -> Self {
        let mut command = std::process::Command::new("cat");
        let pipe = std::process::Stdio::piped;
        Self(command.stdin(pipe()).stdout(pipe()).spawn().unwrap())
    }

    /// Makes the program run: writes to it and reads the answer.
    fn run(&mut self) {
        use std::io::{Read as _, Write as _};
        let mut bytes = [b'x'; 4096];
        self.0.stdin.as_mut().unwrap().write_all(&bytes).unwrap();
        self.0.stdout.as_mut().unwrap().read_exact(&mut bytes).unwrap();
    }

    /// Returns how long it has run, by the kernel.
    fn ran_ns(&self) -> u64 {
        let pid = self.0.id();
        task::schedstat(Path::new(&format!("/proc/{pid}/task/{pid}"))).unwrap().ran_ns
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn times_of_a_real_process_are_current_although_it_rests_in_between() {
    let mut echo = Echo::start();
    let pid = echo.0.id();
    let mut processes = Processes::new(Path::new("/"));
    assert!(processes.has_clocks);
    let mut found = || {
        let found = processes.read(PLACES, |_| false);
        let ran_ns = found.threads.iter().find(|thread| thread.pid == pid).map(|thread| thread.times.ran_ns);
        (ran_ns, processes.known.get(&pid).is_some_and(|known| known.threads.may_have_run()))
    };
    let mut last = 0;
    for _ in 0..5 {
        echo.run();
        // The program goes to sleep only after it has written the answer.
        last = loop {
            let before = echo.ran_ns();
            let seen = [found(), found()];
            if echo.ran_ns() == before {
                assert_eq!(seen.map(|(ran_ns, _)| ran_ns), [Some(before); 2]);
                assert!(!seen[1].1, "the clock tells that it rests");
                assert!(before > last);
                break before;
            }
        };
    }
    drop(echo);
    assert_eq!(found().0, None);
}

#[test]
fn changes_in_a_calm_time_show_at_the_next_list() {
    const QEMU: &str = "/usr/bin/qemu-system-x86_64";
    let host = Host(tempfile::tempdir().unwrap());
    for pid in [50, 55, 60, 65] {
        host.process(pid, QEMU, &[QEMU]);
        host.thread(pid, pid, "qemu", [5, 0]);
    }
    host.process(50, "/bin/sh", &["sh"]);
    host.process(55, "/bin/sh", &["sh"]);
    host.thread(65, 66, "CPU 0/KVM", [5, 0]);
    fs::write(host.0.path().join("proc/loadavg"), "0.00 0.01 0.05 1/234 70\n").unwrap();
    let mut processes = Processes::new(host.0.path());
    let mut all = Vec::new();
    for reading in 1..=130 {
        match reading {
            20 => host.process(50, QEMU, &[QEMU]),
            25 => host.end_of_thread(65, 66),
            30 => {
                host.end_of_thread(60, 60);
                fs::remove_dir_all(host.0.path().join("proc/60")).unwrap();
            }
            // The kernel does not tell of it.
            35 => {
                host.process(80, QEMU, &[QEMU]);
                host.thread(80, 80, "qemu", [5, 0]);
            }
            70 => host.process(55, QEMU, &[QEMU]),
            _ => {}
        }
        let found = processes.read(SAMPLES, |_| false).machines;
        all.push(found.iter().map(|machine| (machine.pid, machine.threads)).collect::<Vec<_>>());
    }
    let first = |wanted: (u32, usize)| all.iter().position(|found| found.contains(&wanted)).map(|at| at + 1);
    let last = |pid: u32| all.iter().rposition(|found| found.iter().any(|of| of.0 == pid)).map(|at| at + 1);
    assert_eq!(first((65, 2)), Some(1));
    assert_eq!(first((65, 1)), Some(25), "files of the thread cannot be read");
    assert_eq!(last(60), Some(29));
    // Lists are those of readings 1, 17, 33, 49 and so on.
    assert_eq!((first((80, 1)), last(80)), (Some(49), Some(130)));
    // Process 80 ended the calm time, so the 64th reading is not in one.
    assert_eq!(first((50, 1)), Some(64));
    // Reading 128 is in one. The next list is that of reading 129.
    assert_eq!(first((55, 1)), Some(129));
}

#[test]
fn a_machine_that_has_not_changed_is_shared_with_the_reading_before() {
    let host = Host(tempfile::tempdir().unwrap());
    host.process(60, "/usr/bin/qemu-system-x86_64", &["qemu", "-name", "db"]);
    host.thread(60, 60, "qemu", [5, 0]);
    let status = host.0.path().join("proc/60/status");
    fs::write(&status, "VmRSS:\t1024 kB\n").unwrap();
    let mut processes = Processes::new(host.0.path());
    let mut read = |needs| processes.read(needs, |_| false).machines.remove(0);
    let mut last = read(SAMPLES);
    assert!(last.memory.is_some());
    for looks in 2..=MOST_LOOKS {
        let next = read(SAMPLES);
        assert!(next.looks == looks && !Arc::ptr_eq(&next, &last));
        last = next;
    }
    // Looks at memory and disk traffic are due once in 32 readings.
    let shared = (0..32).filter(|_| Arc::ptr_eq(&std::mem::replace(&mut last, read(SAMPLES)), &last)).count();
    assert!(shared >= 30, "{shared}");
    assert_eq!(read(Needs { memory: false, ..SAMPLES }).memory, None, "less is needed");
    host.thread(60, 60, "qemu", [6, 0]);
    fs::remove_file(&status).unwrap();
    let next = read(SAMPLES);
    assert!(next.others.ran_ns == 1 && last.others.ran_ns == 0 && next.memory.is_none());
    fs::write(&status, "VmRSS:\t2048 kB\n").unwrap();
    assert!(read(SAMPLES).memory.is_some(), "it could not be read before");
}
