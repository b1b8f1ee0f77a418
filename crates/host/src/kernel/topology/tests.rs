//! Trees of hosts in a temporary folder, with only the files that matter.

use std::fs;

use taut_api::host::AcceleratorKind;

use super::*;

/// Makes files with their content below a root.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

const MEMINFO: &str = "MemTotal:       16384000 kB\nMemFree:  1 kB\nMemAvailable:    8192000 kB\n";

/// Two packages with two cores of two threads each; the last-level cache is per core pair, a node
/// per package.
fn server() -> tempfile::TempDir {
    let mut files = vec![
        ("proc/meminfo".to_owned(), MEMINFO.to_owned()),
        ("proc/cpuinfo".to_owned(), "processor\t: 0\nmodel name\t: Some CPU @ 2.4GHz\n".to_owned()),
        ("proc/sys/kernel/hostname".to_owned(), "esx7\n".to_owned()),
        ("proc/sys/kernel/osrelease".to_owned(), "6.12.0\n".to_owned()),
        ("etc/os-release".to_owned(), "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n".to_owned()),
        ("sys/devices/system/cpu/online".to_owned(), "0-6\n".to_owned()),
        ("sys/devices/system/node/online".to_owned(), "0-1\n".to_owned()),
        ("sys/devices/system/node/node0/cpulist".to_owned(), "0-1,4-5\n".to_owned()),
        ("sys/devices/system/node/node1/cpulist".to_owned(), "2-3,6-7\n".to_owned()),
        ("sys/devices/system/node/node0/meminfo".to_owned(), "Node 0 MemTotal:  8192000 kB\n".to_owned()),
        ("sys/devices/system/node/node1/meminfo".to_owned(), "Node 1 MemTotal:  8192004 kB\n".to_owned()),
    ];
    for cpu in 0..8 {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        let package = cpu % 4 / 2;
        files.push((format!("{folder}/topology/physical_package_id"), package.to_string()));
        files.push((format!("{folder}/topology/core_id"), (cpu % 2).to_string()));
        for (index, level, shared) in [
            (0, 1, format!("{},{}", cpu % 4, cpu % 4 + 4)),
            (1, 3, format!("{0}-{1},{2}", package * 2, package * 2 + 1, package * 2 + 4)),
        ] {
            files.push((format!("{folder}/cache/index{index}/level"), format!("{level}\n")));
            files.push((format!("{folder}/cache/index{index}/shared_cpu_list"), shared));
        }
    }
    let files: Vec<_> = files.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect();
    tree(&files)
}

/// Describes the host below `root` as one without KVM or QEMU.
fn described(root: &Path) -> Result<HostInfo, TopologyError> {
    describe(root, Accelerator { kind: AcceleratorKind::Tcg, why: "a test".into() }, None)
}

#[test]
fn a_server_with_two_packages() {
    let topology = described(server().path()).unwrap();
    assert_eq!(topology.hostname, "esx7");
    assert_eq!(topology.kernel, "6.12.0");
    assert_eq!(topology.os, "Debian GNU/Linux 13 (trixie)");
    assert_eq!(topology.cpu_model, "Some CPU @ 2.4GHz");
    let cpu = |id, package, core, node, llc| Cpu { id, package, core, node, llc };
    let expected = [
        cpu(0, 0, 0, 0, 0),
        cpu(1, 0, 1, 0, 0),
        cpu(2, 1, 0, 1, 2),
        cpu(3, 1, 1, 1, 2),
        cpu(4, 0, 0, 0, 0),
        cpu(5, 0, 1, 0, 0),
        cpu(6, 1, 0, 1, 2),
    ];
    assert_eq!(topology.cpus, expected, "pCPU 7 is off line");
    let node = |id, kib: u64| NumaNode { id, memory: Bytes(kib * 1024) };
    assert_eq!(topology.nodes, [node(0, 8_192_000), node(1, 8_192_004)]);
    assert_eq!(topology.memory_available, Bytes(8_192_000 * 1024));
    let read = read(server().path()).unwrap();
    assert_eq!((read.cpus, read.nodes), (topology.cpus, topology.nodes));
}

#[test]
fn a_machine_without_topology_files_has_one_package_and_node() {
    let root = tree(&[("proc/meminfo", MEMINFO), ("sys/devices/system/cpu/online", "0-1\n")]);
    let topology = described(root.path()).unwrap();
    let cpu = |id| Cpu { id, package: 0, core: id, node: 0, llc: 0 };
    assert_eq!(topology.cpus, [cpu(0), cpu(1)]);
    assert_eq!(topology.nodes, [NumaNode { id: 0, memory: Bytes(16_384_000 * 1024) }]);
    assert_eq!((topology.os.as_str(), topology.cpu_model.as_str()), ("Linux", "unknown"));
}

#[test]
fn a_node_without_cpus_is_a_node() {
    let root = tree(&[
        ("proc/meminfo", MEMINFO),
        ("sys/devices/system/cpu/online", "0\n"),
        ("sys/devices/system/node/online", "0,2\n"),
        ("sys/devices/system/node/node0/cpulist", "0\n"),
        ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 10 kB\n"),
        ("sys/devices/system/node/node2/cpulist", "\n"),
        ("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: 20 kB\n"),
    ]);
    let nodes = read(root.path()).unwrap().nodes;
    assert_eq!(
        nodes.iter().map(|node| (node.id, node.memory.0)).collect::<Vec<_>>(),
        [(0, 10240), (2, 20480)]
    );
}

#[test]
fn an_error_names_the_missing_file_or_the_wrong_content() {
    let error = described(tree(&[]).path()).unwrap_err();
    assert!(matches!(&error, TopologyError::Read { path, .. } if path.ends_with("proc/meminfo")), "{error}");
    for (meminfo, online, word) in [
        ("MemTotal: many kB\nMemAvailable: 1 kB\n", "0\n", "many"),
        ("MemTotal: 1 kB\n", "0\n", "MemTotal"),
        ("MemTotal: 18446744073709551615 kB\nMemAvailable: 1 kB\n", "0\n", "18446744073709551615"),
        (MEMINFO, "0-x\n", "0-x"),
        (MEMINFO, "0-99999999\n", "99999999"),
    ] {
        let root = tree(&[("proc/meminfo", meminfo), ("sys/devices/system/cpu/online", online)]);
        let error = described(root.path()).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn free_huge_pages_are_counted_by_node() {
    let root = tree(&[
        ("sys/devices/system/node/online", "0-1\n"),
        ("sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "0\n"),
        ("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "256\n"),
    ]);
    assert_eq!(free_huge_pages(root.path()), BTreeMap::from([(0, Bytes(0)), (1, Bytes::mib(512))]));
    let small = tree(&[("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3\n")]);
    assert_eq!(free_huge_pages(small.path()), BTreeMap::from([(0, Bytes::mib(6))]));
    assert!(free_huge_pages(&small.path().join("nothing")).is_empty());
}

#[test]
fn huge_pages_of_a_process_are_counted() {
    let root = tree(&[("proc/7/status", "Name:\tqemu\nVmRSS:\t    900 kB\nHugetlbPages:\t    4096 kB\n")]);
    assert_eq!(huge_memory(root.path(), 7), Bytes::mib(4));
    assert_eq!(huge_memory(root.path(), 8), Bytes(0), "it is gone");
}
