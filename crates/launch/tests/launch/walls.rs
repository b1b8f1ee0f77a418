//! The walls, as the process and the host see them in `/proc`.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use taut_launch::{Device, Filter, Limit, Namespaces, Wall};

use crate::fixture::{CAP_MKNOD, CAP_SYS_ADMIN, CAP_SYS_RESOURCE, FIRST_USER, Start, shell};

const NAMESPACES: [&str; 6] = ["mnt", "net", "ipc", "uts", "pid", "cgroup"];

/// Returns the values of a field of `/proc/PID/status`, without the spaces.
fn field<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).split_whitespace().collect()
}

/// Walls that are missing for another reason than the age of the kernel.
fn missing(launched: &taut_launch::Launched) -> Vec<Wall> {
    let walls = launched.missing.iter().map(|one| one.wall);
    walls.filter(|wall| !Wall::NEWER_THAN_LINUX_6_1.contains(wall)).collect()
}

#[test]
fn a_program_has_its_own_user_no_capabilities_and_a_filter() {
    let finished = Start::script("cat /proc/self/status").run();
    assert_eq!(finished.program.exit_status(), Some(0), "{}", finished.output);
    assert_eq!(missing(&finished.launched), []);
    let status = &finished.output;
    assert_eq!(field(status, "Uid"), [(FIRST_USER + 7).to_string().as_str(); 4]);
    assert_eq!(field(status, "Gid"), [(FIRST_USER + 8).to_string().as_str(); 4]);
    assert!(field(status, "Groups").is_empty(), "{status}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(status, set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field(status, "NoNewPrivs"), ["1"]);
    assert_eq!(field(status, "Seccomp"), ["2"]);
    // Rust's runtime ignores SIGPIPE (13), and the shell must not.
    assert_eq!(u64::from_str_radix(field(status, "SigIgn")[0], 16).unwrap() & 1 << 12, 0);
}

/// A container may forbid to raise limits. A program that locks memory then keeps the capability
/// for it, and no other.
#[test]
fn a_program_that_locks_memory_can_do_so() {
    let mut start = Start::script("ulimit -l; cat /proc/self/status");
    start.document.limits.memlock = Some(Limit::Unlimited);
    start.document.may_lack.insert(Wall::Capabilities);
    let finished = start.run();
    assert_eq!(finished.program.exit_status(), Some(0), "{}", finished.output);
    let unlimited = finished.output.starts_with("unlimited\n");
    let (walls, capabilities) =
        if unlimited { (vec![], "0000000000000000") } else { (vec![Wall::Capabilities], "0000000000004000") };
    assert_eq!(missing(&finished.launched), walls);
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(field(&finished.output, set), [capabilities], "{set}");
    }
}

#[test]
fn a_program_has_six_namespaces_of_its_own_and_is_the_caller_s_child() {
    let mut running =
        Start::script("read line; for n in mnt net ipc uts pid cgroup; do readlink /proc/self/ns/$n; done")
            .start();
    let launched = running.report.as_ref().unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", launched.pid)).unwrap();
    assert_eq!(field(&status, "PPid"), [std::process::id().to_string()]);
    assert_eq!(field(&status, "NSpid"), [launched.pid.to_string().as_str(), "1"]);
    assert_eq!(field(&status, "NSsid")[1], "1", "the process has a session in its namespace");
    running.write_line();
    let finished = running.finish();
    let inside: Vec<&str> = finished.output.lines().collect();
    for (name, inside) in NAMESPACES.into_iter().zip(&inside) {
        let outside = fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert!(inside.starts_with(&format!("{name}:[")), "{inside}");
        assert_ne!(*inside, outside.to_str().unwrap());
    }
    assert_eq!(inside.len(), 6, "{}", finished.output);
}

#[test]
fn namespaces_that_are_turned_off_are_reported() {
    let mut start = Start::script("readlink /proc/self/ns/uts; echo $$");
    start.document.namespaces = Namespaces { uts: false, pid: false, ..Namespaces::default() };
    let finished = start.run();
    assert_eq!(missing(&finished.launched), [Wall::UtsNamespace, Wall::PidNamespace]);
    let outside = fs::read_link("/proc/self/ns/uts").unwrap();
    assert_eq!(finished.output, format!("{}\n{}\n", outside.display(), finished.launched.pid));
}

/// Without a private root, Landlock alone closes the host's files.
#[test]
fn landlock_refuses_files_that_anybody_may_read() {
    let mut start = Start::script("cat /proc/self/comm && cat /etc/passwd");
    start.document.namespaces.mount = false;
    start.document.root = taut_launch::Root::default();
    let finished = start.run();
    assert_eq!(missing(&finished.launched), [Wall::MountNamespace]);
    assert_eq!(finished.program.exit_status(), Some(1));
    assert_eq!(finished.output, "cat\ncat: /etc/passwd: Permission denied\n");
}

#[test]
fn the_root_has_what_the_document_lists_and_nothing_else() {
    let target = env!("CARGO_TARGET_TMPDIR");
    let folder = tempfile::tempdir_in(target).unwrap();
    let (read, write) = (folder.path().join("read"), folder.path().join("write"));
    fs::create_dir(&write).unwrap();
    fs::write(&read, "read\n").unwrap();
    rustix::fs::chmod(&write, 0o777.into()).unwrap();
    rustix::fs::chmod(&read, 0o666.into()).unwrap();
    let (read, write) = (read.to_str().unwrap(), write.to_str().unwrap());
    let script = format!(
        "cat {read}; echo more >>{read}; echo new >{write}/new; cat {write}/new; ls -A {}; ls /; ls -ln /dev/null; \
         echo x >/tmp/x; cat /tmp/x; echo gone >/dev/null",
        folder.path().display()
    );
    let mut start = Start::script(&script);
    start.document.root.read_only = vec![read.into()];
    start.document.root.writable = vec![write.into()];
    start.document.root.tmp = Some(1 << 20);
    // Everything that the root has is reachable, so that the root alone is tested.
    start.document.landlock.write = vec!["/".into()];
    let output = start.run().output;
    let mut lines = output.lines();
    let mut line = || lines.next().unwrap_or_else(|| panic!("{output}"));
    assert_eq!(line(), "read");
    assert!(line().contains("Read-only file system"), "{output}");
    assert_eq!(line(), "new");
    assert_eq!([line(), line()], ["read", "write"]);
    let first = folder.path().components().nth(1).unwrap().as_os_str().to_str().unwrap();
    let mut names: Vec<&str> = vec!["dev", "proc", "tmp", first];
    let system = crate::fixture::system();
    names.extend(system.iter().map(|path| path.file_name().unwrap().to_str().unwrap()));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.iter().map(|_| line()).collect::<Vec<_>>(), names);
    let node = line();
    assert!(node.starts_with("crw------- 1 ") && node.contains(&(FIRST_USER + 7).to_string()), "{node}");
    assert_eq!(line(), "x");
    assert_eq!(lines.next(), None, "{output}");
}

#[test]
fn proc_has_this_process_and_nothing_of_the_host() {
    let script = "cd /proc; for f in [0-9]* kcore kallsyms sys cpuinfo kmsg; do [ -e $f ] && echo $f; done; \
                  wc -l <self/mountinfo";
    let output = Start::script(script).run().output;
    let lines: Vec<&str> = output.lines().collect();
    // This process, and the mounts of `/`, `/dev`, `/proc` and the system's folders.
    assert_eq!(lines[0], "1", "{output}");
    assert!(lines[1].parse::<u32>().unwrap() < 12, "{output}");
    assert_eq!(lines.len(), 2, "{output}");
}

#[test]
fn descriptors_are_inherited_only_if_the_document_keeps_them() {
    // Other shells know descriptors up to 9 only.
    let bash = fs::canonicalize("/bin/bash").unwrap();
    let script = "echo kept >&11; ls /proc/self/fd; cat /proc/self/fd/13";
    let mut start = Start::new(&bash, &["bash", "-c", script]);
    let (mut kept, passed) = UnixStream::pair().unwrap();
    assert_eq!(start.keep(passed), 11);
    assert_eq!(start.inherit(File::open("/etc/passwd").unwrap()), 12);
    // As QEMU opens kernels.
    assert_eq!(start.keep(crate::fixture::memory(b"kernel\n")), 13);
    let finished = start.run();
    drop(start);
    // 3 is the folder that ls itself reads.
    assert_eq!(finished.output, "0\n1\n11\n13\n2\n3\nkernel\n");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut kept, &mut text).unwrap();
    assert_eq!(text, "kept\n");
}

#[test]
fn limits_and_oom_score_are_set_before_the_program_runs() {
    let script = "cat /proc/self/oom_score_adj; umask; ulimit -n; ulimit -c; grep -E 'locked|msgqueue|processes' /proc/self/limits";
    let mut start = Start::script(script);
    start.document.oom_score_adj = Some(321);
    start.document.limits.nofile = Some(Limit::At(96));
    start.document.limits.memlock = Some(Limit::At(65536));
    start.document.limits.nproc = Some(Limit::At(5));
    let output = start.run().output;
    let words: Vec<&str> = output.split_whitespace().collect();
    assert_eq!(words[..4], ["321", "0077", "96", "0"], "{output}");
    for line in
        ["Max processes 5 5 processes", "Max locked memory 65536 65536 bytes", "Max msgqueue size 0 0 bytes"]
    {
        assert!(words.join(" ").contains(line), "{output}");
    }
}

#[test]
fn an_inspector_starts_and_answers_and_dies_of_anything_else() {
    let run = |program: &Path, args: &[&str]| {
        let mut start = Start::new(program, args);
        start.document.filter = Filter::Inspector;
        start.document.root.proc = false;
        start.document.landlock.read.clear();
        start.run()
    };
    // Any program in Rust that only prints.
    let finished = run(Path::new(env!("CARGO_BIN_EXE_taut-launch")), &["taut-launch", "--version"]);
    assert_eq!(finished.program.exit_status(), Some(0), "{}", finished.output);
    assert!(finished.output.starts_with("taut-launch "), "{}", finished.output);
    // A shell asks for its user and folder, which an inspector may not.
    let finished = run(&shell(), &["sh", "-c", "echo inside"]);
    assert_eq!(finished.program.terminating_signal(), Some(libc::SIGSYS), "{}", finished.output);
}

#[test]
fn a_container_s_refusals_are_tolerated_if_the_document_says_so() {
    let mut start = Start::script("echo x >/dev/null && echo written").without(CAP_MKNOD);
    let error = start.start().failed();
    assert!(error.to_string().contains("the wall `device_nodes` is missing"), "{error}");
    start.document.may_lack.insert(Wall::DeviceNodes);
    let finished = start.run();
    assert_eq!(missing(&finished.launched), [Wall::DeviceNodes]);
    let reason = &finished.launched.missing.iter().find(|one| one.wall == Wall::DeviceNodes).unwrap().reason;
    assert!(reason.ends_with("user 0, group 0, mode 666"), "{reason}");
    assert_eq!(finished.output, "written\n");

    // A node of the host that the program's user may not open is told at once.
    let mut start = Start::script("").without(CAP_MKNOD);
    start.document.may_lack.insert(Wall::DeviceNodes);
    let found = fs::metadata("/dev/console").unwrap();
    let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
    start.document.root.devices.push(Device { path: "/dev/console".into(), major, minor, mode: 0o600 });
    let error = start.start().failed().to_string();
    assert!(error.contains("mknod of /dev/console is refused") && error.contains("CAP_MKNOD"), "{error}");

    let mut start = Start::script("").without(CAP_SYS_RESOURCE);
    start.document.oom_score_adj = Some(-1000);
    let error = start.start().failed();
    assert!(error.to_string().contains("the wall `oom_score` is missing"), "{error}");
    start.document.may_lack.insert(Wall::OomScore);
    assert_eq!(missing(&start.run().launched), [Wall::OomScore]);
}

/// A container without CAP_SYS_ADMIN has no namespace to give. User, filter and Landlock remain.
#[test]
fn walls_that_need_no_privilege_remain_without_namespaces() {
    let mut start = Start::script("cat /proc/self/status; cat /etc/passwd").without(CAP_SYS_ADMIN);
    start.document.may_lack = Wall::ALL.into();
    let finished = start.run();
    let namespaces = [
        Wall::MountNamespace,
        Wall::NetNamespace,
        Wall::IpcNamespace,
        Wall::UtsNamespace,
        Wall::CgroupNamespace,
        Wall::PidNamespace,
        Wall::DeviceNodes,
    ];
    assert_eq!(missing(&finished.launched), namespaces);
    let status = &finished.output;
    assert_eq!(field(status, "Uid")[0], (FIRST_USER + 7).to_string());
    assert_eq!(field(status, "CapEff"), ["0000000000000000"]);
    assert_eq!(field(status, "Seccomp"), ["2"]);
    assert!(status.ends_with("cat: /etc/passwd: Permission denied\n"), "{status}");
}

#[test]
fn standard_input_reaches_the_program() {
    let mut running = Start::script("read line; echo read").start();
    running.write_line();
    assert_eq!(running.finish().output, "read\n");
}
