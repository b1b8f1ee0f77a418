//! Bad input is refused with a message and a hint, and changes nothing.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use taut_tests::{Taut, bin_dir, eventually};

/// Text of each file, and words that the refusal must contain.
const BROKEN: &[(&str, &[&str])] = &[
    ("kind = \"micro\"\nvcpu = 2\n", &["vcpu", "vcpus"]),
    ("kind = \"micro\"\nmemory = \"3 parsecs\"\n", &["3 parsecs"]),
    ("kind = \"micro\"\nmemory = \"1KiB\"\n", &["1KiB"]),
    ("kind = \"micro\"\nvcpus = 0\n", &["0"]),
    ("memory = \"128MiB\"\n[boot]\nkernel = \"no-such-kernel\"\n", &["no-such-kernel"]),
    ("memory = \"128MiB\"\n[disk]\npath = \"no-such-disk\"\n", &["no-such-disk"]),
    ("memory = \"128MiB\"\n", &["boot", "disk"]),
    ("kind = \"micro\"\n[[nic]]\nportgroup = \"nowhere\"\n", &["nowhere"]),
    ("kind = \"micro\"\n[[nic]]\nportgroup = \"lan\"\nmac = \"01:00:00:00:00:01\"\n", &["01:00:00:00:00:01"]),
    (
        "kind = \"micro\"\n[[nic]]\nportgroup = \"lan\"\nmac = \"02:00:00:00:00:01\"\n[[nic]]\nportgroup = \"lan\"\nmac = \"02:00:00:00:00:01\"\n",
        &["02:00:00:00:00:01"],
    ),
    ("kind = \"micro\"\n[[nic]]\nportgroup = \"lan\"\nrings = { rx = 100, tx = 256 }\n", &["100"]),
    (
        "kind = \"micro\"\nmemory = \"64MiB\"\nlatency_sensitivity = \"high\"\n",
        &["latency_sensitivity", "64MiB are missing"],
    ),
    ("this is not = = toml", &[]),
];

#[test]
fn a_broken_vm_file_is_refused_and_changes_nothing() {
    let taut = Taut::start().with_lan();
    let before = taut.json(["daemon", "show"])["revision"].clone();
    for (index, (text, words)) in BROKEN.iter().enumerate() {
        let file = taut.file(&format!("broken{index}.toml"), text);
        let said = taut.refused(["vm", "create", "-f", file.to_str().unwrap(), "--name", "broken"]);
        for word in *words {
            assert!(said.contains(word), "`{word}` is not in the refusal of\n{text}\n{said}");
        }
    }
    assert!(taut.json(["vm", "list"]).as_array().unwrap().is_empty());
    assert_eq!(taut.json(["daemon", "show"])["revision"], before);
}

#[test]
fn an_impossible_port_group_policy_is_refused() {
    let taut = Taut::start().with_lan();
    for vlan in ["4096", "20-10", "ten"] {
        let outcome = taut.run(["portgroup", "create", "odd", "--vswitch", "sw", "--vlan", vlan]);
        let said = outcome.stderr;
        assert!(!outcome.success && said.contains(vlan) && said.contains("10-20,30"), "{said}");
    }
    let said = taut.refused(["portgroup", "create", "odd", "--vswitch", "sw", "--mac-learning"]);
    assert!(said.contains("forged transmits"), "{said}");
}

#[test]
fn an_unreadable_disk_is_named_in_the_refusal() {
    let taut = Taut::start();
    let disk = taut.dir().join("a-directory.img");
    std::fs::create_dir(&disk).unwrap();
    let file = taut.file("vm.toml", "memory = \"128MiB\"\n[disk]\npath = \"a-directory.img\"\n");
    let said = taut.refused(["vm", "create", "-f", file.to_str().unwrap(), "--name", "x"]);
    assert!(said.contains("a-directory.img"), "{said}");
}

#[test]
fn duplicate_names_and_addresses_are_refused() {
    let taut = Taut::start().with_lan();
    let text = "kind = \"micro\"\n[[nic]]\nportgroup = \"lan\"\nmac = \"02:00:00:00:00:07\"\n";
    let file = taut.file("one.toml", text);
    let create = |name| ["vm", "create", "-f", file.to_str().unwrap(), "--name", name];
    taut.ok(create("one"));
    assert!(taut.refused(create("one")).contains("one"));
    let said = taut.refused(create("two"));
    assert!(said.contains("02:00:00:00:00:07") && said.contains("one"), "{said}");
    assert!(taut.refused(["portgroup", "delete", "lan"]).contains("one"), "who uses it is named");
    assert!(taut.refused(["vm", "start", "nobody"]).contains("nobody"));
    taut.ok(["vm", "delete", "one"]);
    taut.ok(create("two"));
}

#[test]
fn a_vmx_file_with_unknown_keys_is_accepted_and_they_are_listed() {
    let taut = Taut::start().with_lan();
    let disk = taut.dir().join("disk.img");
    std::fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let text = "displayName = \"old\"\nmemSize = \"256\"\nnumvcpus = \"1\"\nscsi0:0.present = \"TRUE\"\n\
                scsi0:0.fileName = \"disk.img\"\nethernet0.present = \"TRUE\"\nethernet0.virtualDev = \"vmxnet3\"\n\
                made.up.key = \"42\"\n";
    let file = taut.file("old.vmx", text);
    let said = taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--portgroup", "lan"]);
    assert!(said.contains("made.up.key") && said.contains("ignored"), "{said}");
    assert!(said.contains("ethernet0.virtualDev"), "{said}");
    assert_eq!(taut.json(["vm", "show", "old"])["spec"]["vcpus"], 1);
}

#[test]
fn a_daemon_without_root_names_the_cause() {
    let dir = taut_tests::directory();
    let mut command = Command::new(bin_dir().join("tautd"));
    command.arg("--state-dir").arg(dir.path().join("s")).arg("--run-dir").arg(dir.path().join("r"));
    // The user `nobody` may not reach the folder of the programs, so it runs a copy.
    let copy = dir.path().join("tautd");
    std::fs::copy(bin_dir().join("tautd"), &copy).unwrap();
    for path in [dir.path(), &copy] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(&copy).args(command.get_args()).uid(65534).gid(65534).output().unwrap();
    let said = String::from_utf8_lossy(&std::mem::take(&mut command.stderr)).into_owned();
    assert!(!command.status.success());
    assert!(said.contains("root") && said.contains("hint: "), "{said}");
}

#[test]
fn impossible_daemon_options_are_refused_with_a_hint() {
    let dir = taut_tests::directory();
    let says = |options: &[&str]| {
        // `timeout` ends a daemon that starts all the same.
        let mut command = Command::new("timeout");
        command.arg("60").arg(bin_dir().join("tautd")).arg("--state-dir").arg(dir.path().join("s"));
        if !options.contains(&"--run-dir") {
            command.arg("--run-dir").arg(dir.path().join("r"));
        }
        let ended = command.args(options).output().unwrap();
        assert!(!ended.status.success(), "{options:?}");
        String::from_utf8_lossy(&ended.stderr).into_owned()
    };
    let long = dir.path().join("x".repeat(100));
    for (options, why, hint) in [
        (
            &["--fabric-cpus", "0,4095"],
            "pCPU 4095, which this host does not have",
            "hint: give on-line pCPUs",
        ),
        (&["--cpuset", "/sys/fs/cgroup/no such"], "is no control group", "hint: make it first"),
        (&["--run-dir", long.to_str().unwrap()], "cannot listen", "at most 107 bytes"),
    ] {
        let said = says(options);
        assert!(said.contains(why) && said.contains(hint), "{said}");
    }
}

#[test]
fn a_start_without_qemu_names_the_cause() {
    let mut taut = Taut::start();
    taut.kill_daemon();
    taut.restart_daemon_with([("PATH", "/nonexistent")]);
    let disk = taut.dir().join("disk.img");
    std::fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let file = taut.file("vm.toml", "memory = \"128MiB\"\n[disk]\npath = \"disk.img\"\n");
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "x"]);
    let _ = taut.run(["vm", "start", "x"]);
    let reason = eventually("the start fails", || {
        taut.json(["vm", "show", "x"])["status"]["reason"].as_str().map(str::to_owned)
    });
    assert!(reason.to_lowercase().contains("qemu"), "{reason}");
}

#[test]
fn a_full_disk_refuses_writes_and_keeps_what_is_there() {
    let mut taut = Taut::start().with_lan();
    taut.kill_daemon();
    let small = taut.dir().join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = |args: &[&str]| assert!(Command::new("mount").args(args).status().unwrap().success());
    mount(&["-t", "tmpfs", "-o", "size=512k", "none", small.to_str().unwrap()]);
    for entry in std::fs::read_dir(taut.dir().join("state")).unwrap().flatten() {
        std::fs::copy(entry.path(), small.join(entry.file_name())).unwrap();
    }
    mount(&["--bind", small.to_str().unwrap(), taut.dir().join("state").to_str().unwrap()]);
    taut.restart_daemon();
    let filler = small.join("filler");
    let _ = std::fs::write(&filler, vec![1; 1 << 20]);
    let mut refused = None;
    for number in 0..200 {
        let outcome = taut.run(["vswitch", "create", &format!("s{number}")]);
        if !outcome.success {
            refused = Some((number, outcome.stderr));
            break;
        }
    }
    let (number, said) = refused.expect("a full disk refuses sooner or later");
    assert!(said.contains("\nhint: "), "{said}");
    std::fs::remove_file(&filler).unwrap();
    taut.ok(["vswitch", "create", &format!("s{number}")]);
    let names = taut.json(["vswitch", "list"]);
    assert_eq!(names.as_array().unwrap().len(), number + 2, "every acknowledged write is there: {names}");
    taut.shut_down();
    for path in [taut.dir().join("state"), small] {
        assert!(Command::new("umount").arg(&path).status().unwrap().success());
    }
    taut.restart_daemon();
}
