//! Memory for queue pairs in Debian guests: Linux makes a device of it, programs map it, and the
//! fabric has it after deaths of daemon and fabric.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use taut_queue_pair::{Direction, Geometry, dax, layout};
use taut_tests::{Image, Taut, any_image, bin_dir, eventually, image, kill_9};

/// Size of the memory in these tests.
const SIZE: u64 = 16 << 20;

/// What the guest writes into a ring.
const TEXT: &str = "from-the-guest";

/// Makes kernel and initial RAM file system of a guest that looks at its queue pairs.
fn guest_with_probe(taut: &Taut, image: &Path, name: &str, script: &str) -> PathBuf {
    let out = taut.dir().join(name);
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut command = Command::new(checkout.join("tools/make-redis.sh"));
    command.arg(image.parent().unwrap()).arg(image.file_name().unwrap());
    command.arg(bin_dir().join("libtaut_vmci.so"));
    command.args([taut.file("no.map", ""), taut.file(&format!("{name}.script"), script)]).arg(&out);
    command.args([bin_dir().join("examples/queue_pair_probe"), bin_dir().join("qp_pump")]);
    command.arg(c_program(taut));
    assert!(command.status().unwrap().success());
    out
}

/// Compiles the example of the library for C programs.
fn c_program(taut: &Taut) -> PathBuf {
    let program = taut.dir().join("c_stream");
    let crate_of_library = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates/vmci_c");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O2", "-I"]).arg(crate_of_library.join("include"));
    compiler.arg(crate_of_library.join("examples/stream.c")).arg(bin_dir().join("libtaut_vmci_c.a"));
    compiler.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program);
    assert!(compiler.status().unwrap().success());
    program
}

fn vm_file(image: &Path, head: &str, vmci: &str) -> String {
    let image = image.display();
    format!("{head}\n[boot]\nkernel = \"{image}/vmlinuz\"\ninitrd = \"{image}/initrd\"\n[vmci]\n{vmci}\n")
}

/// Waits until a guest's console contains the text, and returns all of it.
fn printed(taut: &Taut, vm: &str, wanted: &str) -> String {
    eventually(&format!("{vm} says {wanted:?}"), || {
        let log = taut.ok(["vm", "log", vm]);
        log.contains(wanted).then_some(log)
    })
}

fn status(taut: &Taut, vm: &str) -> Value {
    taut.json(["vm", "show", vm])["status"].clone()
}

/// Opens the memory file of a running VM as it has it.
fn memory_of(taut: &Taut, vm: &str) -> File {
    let descriptors = format!("/proc/{}/fd", status(taut, vm)["pid"]);
    let of_memory = fs::read_dir(descriptors).unwrap().map(|entry| entry.unwrap().path()).find(|path| {
        fs::read_link(path).is_ok_and(|name| name.to_string_lossy().contains("memfd:taut-queue-pairs"))
    });
    File::open(of_memory.expect("QEMU has the file")).unwrap()
}

/// Number of times that fabrics have accepted memory for queue pairs.
fn accepted(taut: &Taut) -> usize {
    let log = fs::read_to_string(taut.dir().join("log/fabric.log")).unwrap_or_default();
    log.lines().filter(|line| line.contains("the device has queue pairs")).count()
}

#[test]
fn linux_makes_a_device_of_queue_pairs_and_programs_map_it() {
    const SCRIPT: &str = r#"
until [ -c /dev/dax0.0 ]; do sleep 0.2; done
echo "device: size $(cat /sys/bus/dax/devices/dax0.0/size), align $(cat /sys/bus/dax/devices/dax0.0/align)."
queue_pair_probe /dev/dax0.0 16777216 from-the-guest
echo "nodes: $(cat /sys/devices/system/node/online)."
echo "probe: done."
"#;
    let images: Vec<_> = Image::CLOUD.into_iter().filter_map(image).collect();
    let geometry = Geometry::of(SIZE).unwrap();
    let taut = Taut::start();
    // The device is there whether or not the guest sees NUMA nodes.
    let heads = [
        "memory = \"256MiB\"",
        "memory = \"256MiB\"\nvcpus = 2\nplacement = { vcpus_per_node = 1, min_vcpus = 2 }",
    ];
    let name = |image: &PathBuf| image.file_name().unwrap().to_str().unwrap().replace('.', "-");
    let vms: Vec<String> = images.iter().map(name).collect();
    taut.boot_all(vms.iter().zip(images).zip(heads.into_iter().cycle()).map(|((vm, image), head)| {
        let guest = guest_with_probe(&taut, &image, vm, SCRIPT);
        (vm, vm_file(&guest, head, "queue_pairs = \"16MiB\""))
    }));
    for vm in vms {
        let log = printed(&taut, &vm, "probe: done.");
        let channels =
            format!("{} channels with rings of {} bytes", geometry.channels(), geometry.ring_len());
        for wanted in
            ["device: size 16777216, align 2097152.", "magic TAUTQPR1", &channels, "wrote from-the-guest"]
        {
            assert!(log.contains(wanted), "{vm}, {wanted}: {log}");
        }

        // The same bytes are in the file that the host has.
        let memory = memory_of(&taut, &vm);
        assert_eq!(memory.metadata().unwrap().len(), dax::memory_len(SIZE));
        let ring = geometry.channel(geometry.channels() - 1).unwrap() + geometry.ring(Direction::Out);
        let mut found = [0; TEXT.len()];
        memory.read_exact_at(&mut found, dax::DATA_OFFSET + ring).unwrap();
        assert_eq!(found, TEXT.as_bytes(), "{vm}");

        assert_eq!(status(&taut, &vm)["vmci"]["queue_pairs"], "16MiB");
        let shown = taut.ok(["vmci", "show", &vm]);
        assert!(shown.contains("queue pairs      16MiB"), "{shown}");
        taut.ok(["vm", "stop", &vm]);
    }
}

/// The streams and ping-pongs that `qp_pump` has measured: how the bytes of both ends went, and how
/// many of them arrived.
fn measured(log: &str) -> Vec<(String, String, Option<u64>)> {
    let line = |name: &str| {
        let begin = format!("\"{name}\": ");
        log.lines()
            .filter_map(move |line| line.trim().strip_prefix(&begin).map(|rest| rest.trim_end_matches(',')))
    };
    let word = |word: &str| word.trim_matches('"').to_owned();
    let (own, peers) = (line("own").map(word), line("peer").map(word));
    let bytes: Vec<u64> = line("bytes").map(|bytes| bytes.parse().unwrap()).collect();
    let kinds = line("measure").map(word);
    let mut bytes = bytes.into_iter();
    own.zip(peers)
        .zip(kinds)
        .map(|((own, peer), kind)| {
            let bytes = if kind == "stream" { bytes.next() } else { None };
            (own, peer, bytes)
        })
        .collect()
}

#[test]
fn bytes_go_through_rings_of_both_guests_or_of_one() {
    let wait = "until [ -c /dev/dax0.0 ] && [ -c /dev/vsock ]; do sleep 0.2; done";
    let server = format!("{wait}\nc_stream listen 7001 &\nqp_pump listen 7000\n");
    let client = format!(
        "{wait}\nfor how in --wait=60 --packets; do\n\
         qp_pump connect 1001 7000 $how --bytes 16M --size 256,64K --rounds 100 --check\ndone\n\
         c_stream connect 1001 7001 256 4000000\n\
         echo pump: done.\n"
    );
    let taut = Taut::start();
    let image = any_image();
    taut.boot_all([("server", server, 1001), ("client", client, 1002)].map(|(vm, script, cid)| {
        let guest = guest_with_probe(&taut, &image, vm, &script);
        let vmci = format!("queue_pairs = \"16MiB\"\ndomains = [\"pairs\"]\ncid = {cid}");
        (vm, vm_file(&guest, "memory = \"256MiB\"", &vmci))
    }));
    let log = printed(&taut, "client", "pump: done.");
    let both = ("ring".to_owned(), "ring".to_owned());
    let one = ("packets".to_owned(), "ring".to_owned());
    let expected: Vec<_> = [both, one]
        .into_iter()
        .flat_map(|(own, peer)| {
            [Some(16 << 20), None, Some(16 << 20), None].map(|bytes| (own.clone(), peer.clone(), bytes))
        })
        .collect();
    assert_eq!(measured(&log), expected, "{log}");
    for wanted in ["stream: by a ring", "the receiver found 4000000 of 4000000 bytes right"] {
        assert!(log.contains(wanted), "{wanted}: {log}");
    }
    let log = taut.ok(["vm", "log", "server"]);
    assert!(log.contains("stream: by a ring"), "{log}");
}

#[test]
fn each_fabric_has_the_queue_pairs_of_a_running_vm() {
    let mut taut = Taut::start();
    let file = vm_file(&any_image(), "memory = \"128MiB\"", "");
    taut.boot("g", &file);
    assert_eq!(accepted(&taut), 0);
    for line in crate::guide::commands_for("tests/tests/guest/queue_pairs.rs") {
        let words = line.split('#').next().unwrap().replace("db1", "g");
        taut.ok(words.split_whitespace().skip(1));
    }
    let restart = status(&taut, "g")["machine"]["decisions"][0].clone();
    assert!(restart["decision"].as_str().unwrap().contains("it runs with none"), "{restart}");
    taut.ok(["vm", "stop", "--force", "g"]);
    taut.ok(["vm", "start", "--wait", "g"]);
    let is_accepted = |taut: &Taut, times: usize| {
        eventually("the fabric accepts the memory", || (accepted(taut) == times).then_some(()));
    };
    is_accepted(&taut, 1);

    taut.ok(["daemon", "upgrade-fabric"]);
    is_accepted(&taut, 2);

    let fabric = taut.fabric_pid();
    kill_9(fabric);
    eventually("another fabric runs", || (taut.fabric_pid() != fabric).then_some(()));
    is_accepted(&taut, 3);

    // The fabric goes on with what it has. The next daemon has it again, and hands it to the next
    // fabric.
    taut.kill_daemon();
    taut.restart_daemon();
    taut.ok(["daemon", "upgrade-fabric"]);
    is_accepted(&taut, 4);

    let fabric = taut.fabric_pid();
    taut.kill_daemon();
    kill_9(fabric);
    taut.restart_daemon();
    is_accepted(&taut, 5);
    assert_eq!(status(&taut, "g")["vmci"]["queue_pairs"], "16MiB");

    // Another process has other memory. It is allocated and locked with the guest's, and keeps its
    // header.
    taut.ok(["vm", "set", "g", "--memory-reservation", "full"]);
    taut.ok(["vm", "stop", "--force", "g"]);
    taut.ok(["vm", "start", "--wait", "g"]);
    is_accepted(&taut, 6);
    let memory = memory_of(&taut, "g");
    let mut magic = [0; 8];
    memory.read_exact_at(&mut magic, dax::DATA_OFFSET).unwrap();
    assert_eq!(magic, layout::MAGIC);
    assert!(memory.metadata().unwrap().blocks() * 512 >= SIZE, "all of it is allocated");

    // The next process has none.
    taut.ok(["vm", "set", "g", "--vmci-queue-pairs", "none"]);
    taut.ok(["vm", "stop", "--force", "g"]);
    taut.ok(["vm", "start", "--wait", "g"]);
    assert_eq!(status(&taut, "g")["vmci"]["queue_pairs"], Value::Null);
    assert_eq!(accepted(&taut), 6);
}

#[test]
fn bench_measures_queue_pairs_between_guests_that_have_them() {
    let taut = Taut::start();
    let image = any_image();
    let vms =
        [("a", 1001, "queue_pairs = \"16MiB\""), ("b", 1002, "queue_pairs = \"16MiB\""), ("c", 1003, "")];
    taut.boot_all(vms.map(|(vm, cid, queue_pairs)| {
        let vmci = format!("{queue_pairs}\ndomains = [\"pairs\"]\ncid = {cid}");
        (vm, vm_file(&image, "memory = \"256MiB\"", &vmci))
    }));
    let bench = |ends: [&str; 2], more: &str| {
        let words = format!("bench vsock {} {} --against ring --socket-size 64KiB {more}", ends[0], ends[1]);
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        taut.run(&words)
    };
    // Linux makes the device while the agent already answers.
    eventually("both guests have queue pairs", || {
        bench(["a", "b"], "--message 64 --duration 0.1").success.then_some(())
    });
    let streams = bench(["a", "b"], "--message 256,64KiB --sessions 1,3 --check --duration 0.5");
    assert!(streams.success, "{}", streams.stderr);
    assert_eq!(
        streams.stdout.lines().filter(|line| line.starts_with("ring")).count(),
        2,
        "{}",
        streams.stdout
    );
    let to_host = bench(["a", "host"], "--message 4KiB --check --duration 0.5");
    assert!(to_host.success, "{}", to_host.stderr);
    let from_host = bench(["host", "b"], "--mode rr --message 64 --duration 0.5");
    assert!(from_host.success, "{}", from_host.stderr);

    let without = bench(["c", "b"], "--message 64 --duration 0.1");
    assert!(!without.success);
    for wanted in ["with a queue pair: there is no device", "hint: set queue_pairs"] {
        assert!(without.stderr.contains(wanted), "{wanted}: {}", without.stderr);
    }
}
