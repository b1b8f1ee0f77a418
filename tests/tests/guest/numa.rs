//! Virtual NUMA nodes: the guest's kernel sees what the plan decided.

use taut_tests::{Netns, Taut, any_image};

use crate::direct;

#[test]
fn a_guest_sees_the_planned_numa_nodes() {
    let taut = Taut::start().with_lan();
    let place = "vcpus = 3\n[placement]\nvcpus_per_node = 2\nmin_vcpus = 3\n";
    let file = direct(&any_image(), "ip = \"10.72.0.1/24\"");
    // The kernel's own message on the console.
    let file = file.replace("[boot]\n", "[boot]\ncmdline = \"loglevel=7\"\n");
    let (memory, tables) = file.split_once('\n').unwrap();
    taut.boot("wide", &format!("{memory}\n{place}{tables}"));
    let log = taut.ok(["vm", "log", "wide"]);
    let of_node = |node: u8| log.lines().filter(|line| line.ends_with(&format!("-> Node {node}"))).count();
    assert_eq!((of_node(0), of_node(1)), (1, 2), "three vCPUs, at most two on a node:\n{log}");
    assert!(log.contains("NODE_DATA(1) allocated"), "each node has memory of its own:\n{log}");
    let explained = taut.ok(["vm", "explain", "wide"]);
    assert!(explained.contains("the guest sees 2 NUMA nodes"), "{explained}");
    // Each node's memory is a file of its own, and the fabric works in both.
    let probe = Netns::attach(&taut, "probe", "lan", "10.72.0.9");
    probe.reaches("10.72.0.1", 10);
}
