//! Memory for queue pairs that is added to running VMs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use taut_tests::{Image, Taut, any_image, ask_monitor, eventually, image, kill_9};

/// The file of a VM under QEMU with this head, with a card whose address ends with `host`, and with
/// this table for its VMCI device.
fn file(image: &Path, head: &str, host: u8, vmci: &str) -> String {
    let image = image.display();
    format!(
        "memory = \"256MiB\"\n{head}\n[boot]\nkernel = \"{image}/vmlinuz\"\ninitrd = \"{image}/initrd\"\n\
         [[nic]]\nportgroup = \"lan\"\nip = \"10.72.0.{host}/24\"\n[vmci]\ndomains = [\"pairs\"]\n{vmci}\n"
    )
}

fn status(taut: &Taut, vm: &str) -> Value {
    taut.json(["vm", "show", vm])["status"].clone()
}

/// The bytes that two VMs have received by rings.
fn by_rings(taut: &Taut) -> [u64; 2] {
    ["a", "b"].map(|vm| status(taut, vm)["vmci"]["counters"]["ring_rx_bytes"].as_u64().unwrap())
}

/// Streams between two guests whose ends are both attached, and by their cards.
fn stream_by_rings(taut: &Taut) {
    let before = by_rings(taut);
    // Linux makes the device some time after QEMU.
    eventually("both guests have queue pairs", || {
        let words =
            "bench vsock a b --against ring,tcp --message 4KiB --socket-size 64KiB --check --duration 0.3";
        taut.run(words.split_whitespace()).success.then_some(())
    });
    let after = by_rings(taut);
    assert!(after[1] > before[1], "{before:?} {after:?}");
}

/// Limit of the memory of a VM's process in MiB, as it was recorded.
fn limit(taut: &Taut, vm: &str) -> u64 {
    let record = record(taut, vm);
    let limit = record["limits"]["memory"].as_str().and_then(|limit| limit.strip_suffix("MiB"));
    limit.unwrap_or_else(|| panic!("{record}")).parse().unwrap()
}

/// Number of bytes of a running VM's memory for queue pairs that are allocated.
fn allocated(taut: &Taut, vm: &str) -> u64 {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", status(taut, vm)["pid"])).unwrap();
    let names =
        |path: &PathBuf| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("queue-pairs"));
    let all: Vec<_> = descriptors.map(|entry| entry.unwrap().path()).filter(names).collect();
    let [only] = &all[..] else { panic!("QEMU keeps one descriptor: {all:?}") };
    fs::metadata(only).unwrap().blocks() * 512
}

#[test]
fn running_guests_get_queue_pairs_and_keep_them() {
    let mut taut = Taut::start().with_lan();
    let other = Image::CLOUD.into_iter().find_map(image).unwrap_or_else(any_image);
    taut.boot_all([
        ("a", file(&any_image(), "", 1, "cid = 1001")),
        ("b", file(&other, "memory_reservation = \"full\"", 2, "cid = 1002\nqueue_pairs_room = \"64MiB\"")),
    ]);
    let said = taut.ok(["vm", "set", "a", "--vmci-queue-pairs", "32MiB"]);
    assert!(said.contains("is 32MiB from its next start on; it runs with none"), "{said}");
    taut.ok(["vm", "set", "a", "--vmci-queue-pairs", "none"]);
    for line in crate::guide::commands_for("tests/tests/guest/added_queue_pairs.rs") {
        let words = line.split('#').next().unwrap().replace("db1", "a");
        taut.ok(words.split_whitespace().skip(1));
    }
    let before = limit(&taut, "b");
    let shown = taut.ok(["vmci", "show", "b"]);
    assert!(shown.contains("queue pairs      none; 64MiB can be added while it runs"), "{shown}");
    let said = taut.ok(["vm", "set", "b", "--vmci-queue-pairs", "16MiB"]);
    assert_eq!(said.trim(), "VM b: vmci queue pairs 16MiB");
    for (vm, size) in [("a", "32MiB"), ("b", "16MiB")] {
        assert_eq!(status(&taut, vm)["vmci"]["queue_pairs"], size);
    }
    assert_eq!(limit(&taut, "b") - before, 19, "the memory, 2 MiB before it, and page tables");
    assert!(allocated(&taut, "b") >= 16 << 20, "as all memory of this VM");
    let events = taut.ok(["events"]);
    assert_eq!(events.matches("vmci.queue-pairs-added").count(), 2, "{events}");
    stream_by_rings(&taut);

    // Each daemon and each fabric has it again.
    taut.kill_daemon();
    taut.restart_daemon();
    stream_by_rings(&taut);
    taut.ok(["daemon", "upgrade-fabric"]);
    stream_by_rings(&taut);

    // The memory stays as it is until the next start.
    let said = taut.ok(["vm", "set", "b", "--vmci-queue-pairs", "64MiB"]);
    assert!(said.contains("is 64MiB from its next start on; it runs with 16MiB"), "{said}");
    taut.ok(["vm", "set", "b", "--vmci-queue-pairs", "none"]);
    assert_eq!(status(&taut, "b")["vmci"]["queue_pairs"], "16MiB");
    stream_by_rings(&taut);
    taut.ok(["vm", "stop", "--force", "b"]);
    taut.ok(["vm", "start", "--wait", "b"]);
    assert_eq!(status(&taut, "b")["vmci"]["queue_pairs"], Value::Null);
    assert_eq!(limit(&taut, "b"), before);
}

/// The record of a VM's process.
fn record(taut: &Taut, vm: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(record_path(taut, vm)).unwrap()).unwrap()
}

fn record_path(taut: &Taut, vm: &str) -> PathBuf {
    taut.dir().join(format!("run/vms/{vm}/pid"))
}

fn signal(pid: &Value, signal: Signal) {
    let pid = pid.as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    kill_process(pid.expect("it runs"), signal).unwrap();
}

#[test]
fn what_a_killed_daemon_has_begun_is_ended_by_the_next_one() {
    let mut taut = Taut::start().with_lan();
    taut.boot("g", &file(&any_image(), "", 1, "queue_pairs_room = \"16MiB\""));
    let before = limit(&taut, "g");
    let pid = status(&taut, "g")["pid"].clone();
    let is_there = |taut: &Taut| {
        eventually("it has the memory", || {
            (status(taut, "g")["vmci"]["queue_pairs"] == "16MiB").then_some(())
        });
        assert_eq!(record(taut, "g")["pending_queue_pairs"], Value::Null);
        assert_eq!(limit(taut, "g") - before, 19);
        assert_eq!(status(taut, "g")["vmci"]["reason"], Value::Null);
    };

    // QEMU does not answer before the daemon is killed.
    signal(&pid, Signal::STOP);
    thread::scope(|scope| {
        let set = scope.spawn(|| taut.run(["vm", "set", "g", "--vmci-queue-pairs", "16MiB"]));
        eventually("adding is recorded", || {
            (!record(&taut, "g")["pending_queue_pairs"].is_null()).then_some(())
        });
        kill_9(taut.daemon_pid());
        assert!(!set.join().unwrap().success, "nobody has said that it is there");
    });
    taut.kill_daemon();
    signal(&pid, Signal::CONT);
    taut.restart_daemon();
    is_there(&taut);

    // The daemon is killed when QEMU has the memory, before it can record that.
    taut.kill_daemon();
    let mut begun = record(&taut, "g");
    let had = begun["queue_pairs"].take();
    begun["pending_queue_pairs"] =
        json!({ "file": had, "limits": { "memory": format!("{before}MiB"), "huge": "0", "processes": 81 } });
    begun["pending_queue_pairs"]["file"]["descriptor"] = json!(-1);
    fs::write(record_path(&taut, "g"), begun.to_string()).unwrap();
    taut.restart_daemon();
    is_there(&taut);
    assert_eq!(record(&taut, "g")["queue_pairs"], had);
    eventually("the guest has it", || {
        let words = "bench vsock g host --against ring --message 4KiB --check --duration 0.3";
        taut.run(words.split_whitespace()).success.then_some(())
    });
}

#[test]
fn a_vm_whose_qemu_refuses_the_memory_runs_as_before() {
    let taut = Taut::start().with_lan();
    taut.boot("g", &file(&any_image(), "", 1, "queue_pairs_room = \"16MiB\""));
    let before = limit(&taut, "g");
    let monitor = taut.dir().join("run/vms/g/qmp.sock");
    // Another device takes the slot.
    let memory = json!({ "qom-type": "memory-backend-ram", "id": "other", "size": 4 << 20 });
    let device = json!({ "driver": "nvdimm", "id": "other0", "memdev": "other" });
    let taken = eventually("the slot is taken", || {
        ask_monitor(
            &monitor,
            &[
                json!({ "execute": "object-add", "arguments": memory }),
                json!({ "execute": "device_add", "arguments": device }),
            ],
        )
    });
    assert!(taken.iter().all(|answer| answer.get("return").is_some()), "{taken:?}");
    let said = taut.refused(["vm", "set", "g", "--vmci-queue-pairs", "16MiB"]);
    for wanted in
        ["16MiB of memory for queue pairs were not added", "QEMU refused device_add", "the VM runs as before"]
    {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(limit(&taut, "g"), before);
    assert_eq!(record(&taut, "g")["pending_queue_pairs"], Value::Null);
    let list = json!({ "execute": "qom-list", "arguments": { "path": "/objects" } });
    let left = eventually("the monitor answers", || {
        ask_monitor(&monitor, &[list.clone(), json!({ "execute": "query-fdsets" })])
    });
    assert!(!left[0].to_string().contains("queuepairs"), "{left:?}");
    assert_eq!(left[1]["return"], json!([]));
    assert!(taut.ok(["vmci", "show", "g"]).contains("QEMU refused device_add"));
    assert_eq!(taut.ok(["events"]).matches("vmci.no-queue-pairs").count(), 1);
    taut.ok(["vm", "set", "g", "--vmci-queue-pairs", "none"]);
    assert_eq!(status(&taut, "g")["vmci"]["reason"], Value::Null);
    // Another request is tried at once.
    let said = taut.refused(["vm", "set", "g", "--vmci-queue-pairs", "8MiB"]);
    assert!(said.contains("8MiB of memory for queue pairs were not added"), "{said}");
}
