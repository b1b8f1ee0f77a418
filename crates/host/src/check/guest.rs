//! Settings that matter only inside a guest: packet filter, SELinux, Java.

use taut_api::check::{GuestFacts, JavaProcess};

use super::{cpu, idle, kernel, memory, network, numbers};
use crate::kernel::topology::Topology;
use crate::kernel::tree::Tree;

pub(super) fn read(tree: Tree<'_>, topology: &Topology) -> GuestFacts {
    GuestFacts {
        kernel: kernel::read(tree),
        idle: idle::read(tree, &numbers(topology)),
        memory: memory::read(tree),
        network: network::read(tree),
        in_vm: cpu::in_vm(tree),
        firewall: firewall(tree),
        selinux: tree
            .text("sys/fs/selinux/enforce")
            .map(|enforce| if enforce == "1" { "enforcing" } else { "permissive" }.to_owned()),
        java: kernel::processes(tree).filter_map(|pid| java(tree, pid)).collect(),
    }
}

/// Finds the tables of iptables and the module of nftables, if anything uses them. Returns `None`
/// without `/proc/net`.
fn firewall(tree: Tree<'_>) -> Option<Vec<String>> {
    tree.text("proc/net/dev")?;
    let mut found = Vec::new();
    for (file, program) in [("ip_tables_names", "iptables"), ("ip6_tables_names", "ip6tables")] {
        let tables = tree.text(&format!("proc/net/{file}")).unwrap_or_default();
        found.extend(tables.split_whitespace().map(|table| format!("{program} {table}")));
    }
    // The third word of a line is the number of users.
    let used = |line: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some("nf_tables") && words.nth(1).and_then(|users| users.parse().ok()) != Some(0)
    };
    if tree.text("proc/modules").is_some_and(|modules| modules.lines().any(used)) {
        found.push("nf_tables".to_owned());
    }
    Some(found)
}

fn java(tree: Tree<'_>, pid: u32) -> Option<JavaProcess> {
    if tree.text(&format!("proc/{pid}/comm"))? != "java" {
        return None;
    }
    let line = tree.bytes(&format!("proc/{pid}/cmdline"))?;
    let large_pages = line
        .split(|byte| *byte == 0)
        .any(|word| word == b"-XX:+UseLargePages" || word == b"-XX:+UseTransparentHugePages");
    Some(JavaProcess { pid, large_pages })
}
