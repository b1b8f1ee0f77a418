//! Memory for queue pairs as a setting: what is refused, with the reason, before a VM starts.

use serde_json::json;
use taut_tests::Taut;

/// Writes the file of a VM that never starts.
fn file(taut: &Taut, head: &str, vmci: &str) -> String {
    taut.file("disk", "never read: the VM stays off");
    let text = format!("{head}[disk]\npath = \"disk\"\n{vmci}");
    taut.file("q.toml", &text).to_str().unwrap().to_owned()
}

fn vmci(taut: &Taut) -> serde_json::Value {
    taut.json(["vm", "show", "q"])["spec"]["vmci"].clone()
}

#[test]
fn sizes_and_vms_that_cannot_have_queue_pairs_are_refused() {
    let taut = Taut::start();
    let create = |more: &str| taut.refused(["vm", "create", "-f", &file(&taut, "", more), "--name", "q"]);
    let said = create("[vmci]\nqueue_pairs = \"12MiB\"\n");
    assert!(said.contains("queue_pairs = 12MiB is no power of two from 4MiB to 1GiB"), "{said}");
    assert!(said.contains("hint: use 8MiB or 16MiB"), "{said}");
    let said = create("[vmci]\nqueue_pairs = \"2MiB\"\n");
    assert!(said.contains("hint: use 4MiB"), "{said}");
    let micro =
        taut.file("m.toml", "kind = \"micro\"\nmemory = \"64MiB\"\n[vmci]\nqueue_pairs = \"16MiB\"\n");
    let said = taut.refused(["vm", "create", "-f", micro.to_str().unwrap(), "--name", "m"]);
    assert!(said.contains("a micro VM has no queue pairs") && said.contains("kind = \"qemu\""), "{said}");

    taut.ok(["vm", "create", "-f", &file(&taut, "", ""), "--name", "q"]);
    let said = taut.refused(["vm", "set", "q", "--vmci-queue-pairs", "16MiB"]);
    assert!(said.contains("VM `q` has no VMCI device") && said.contains("taut vm set q --vmci on"), "{said}");
    let said = taut.ok(["vm", "set", "q", "--vmci", "on", "--vmci-queue-pairs", "16MiB"]);
    assert!(said.contains("vmci queue pairs 16MiB"), "{said}");
    assert_eq!(vmci(&taut), json!({ "cid": 3, "queue_pairs": "16MiB" }));
    assert!(taut.ok(["vmci", "show", "q"]).contains("queue pairs      16MiB\n"));
    let said = taut.refused(["vm", "set", "q", "--vmci-queue-pairs", "16"]);
    assert!(
        said.contains("queue_pairs = 16 is no power of two") && said.contains("without a unit"),
        "{said}"
    );
    let said = taut.refused(["vm", "set", "q", "--vmci-queue-pairs", "some"]);
    assert!(said.contains("`some` is not a size"), "{said}");
    assert_eq!(vmci(&taut), json!({ "cid": 3, "queue_pairs": "16MiB" }), "nothing has changed");
    let said = taut.ok(["vm", "set", "q", "--vmci-queue-pairs", "none"]);
    assert!(said.contains("vmci queue pairs none"), "{said}");
    assert_eq!(vmci(&taut), json!({ "cid": 3 }));
}

#[test]
fn queue_pairs_count_beside_the_guests_memory() {
    let taut = Taut::start();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let total_mib = total.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() >> 10;
    // All memory of the host in whole huge pages.
    let memory = format!("memory = \"{}MiB\"\n", total_mib / 2 * 2);
    taut.ok(["vm", "create", "-f", &file(&taut, &memory, "[vmci]\nqueue_pairs = \"4MiB\"\n"), "--name", "q"]);
    let said = taut.refused(["vm", "start", "q"]);
    assert!(said.contains("and 6MiB for queue pairs, is more than the whole host has"), "{said}");
}
