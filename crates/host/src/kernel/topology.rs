//! CPUs, caches, NUMA nodes, memory, and identity of a host, from `/sys` and `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use taut_api::Bytes;
use taut_api::host::{Accelerator, Cpu, HostInfo, NumaNode, QemuInfo};

use super::list::{self, BadList};
use super::tree::Tree;

/// The pCPUs, NUMA nodes and memory of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// On-line pCPUs, by number.
    pub cpus: Vec<Cpu>,
    /// NUMA nodes that have CPUs or memory, by number.
    pub nodes: Vec<NumaNode>,
    /// `MemTotal`.
    pub memory_total: Bytes,
}

/// Why the host could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A file that every Linux has is missing or unreadable.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file has content that no Linux writes.
    #[error("{} contains `{content}`", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The file's content, shortened.
        content: String,
    },
}

/// Reads the host whose file system starts at `root` (`/`, or a captured tree).
///
/// Virtual machines and small boards lack files that larger machines have. A missing topology,
/// cache or node file means one package, one core per CPU, one cache per package, one node.
///
/// # Errors
/// Returns an error if the list of CPUs or the memory cannot be read.
pub fn read(root: &Path) -> Result<Topology, TopologyError> {
    let tree = Tree(root);
    let memory_total = meminfo(tree, "proc/meminfo", "MemTotal:")?;
    let nodes = node_numbers(tree)?;
    Ok(Topology { cpus: cpus(tree, &nodes)?, nodes: self::nodes(tree, &nodes, memory_total)?, memory_total })
}

/// Reads the host for the API, and adds how guests run on it.
///
/// # Errors
/// Returns an error if the list of CPUs or the memory cannot be read.
pub fn describe(
    root: &Path,
    accelerator: Accelerator,
    qemu: Option<QemuInfo>,
) -> Result<HostInfo, TopologyError> {
    let tree = Tree(root);
    let Topology { cpus, nodes, memory_total } = read(root)?;
    Ok(HostInfo {
        hostname: tree.text("proc/sys/kernel/hostname").unwrap_or_else(|| "unknown".to_owned()),
        kernel: tree.text("proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned()),
        os: os(tree),
        cpu_model: cpu_model(tree),
        cpus,
        nodes,
        memory_total,
        memory_available: meminfo(tree, "proc/meminfo", "MemAvailable:")?,
        accelerator,
        qemu,
    })
}

/// Reads the on-line pCPUs, by number.
///
/// # Errors
/// Returns an error if the list of CPUs cannot be read.
pub fn online(root: &Path) -> Result<Vec<Cpu>, TopologyError> {
    let tree = Tree(root);
    cpus(tree, &node_numbers(tree)?)
}

/// Returns the nominal frequency of a pCPU in MHz: cpufreq's base frequency, its maximum, or the
/// first pCPU's present frequency, whichever the host tells first.
pub fn nominal_mhz(root: &Path) -> Option<u32> {
    let tree = Tree(root);
    let khz = ["base_frequency", "cpuinfo_max_freq"]
        .iter()
        .find_map(|file| tree.number::<u32>(&format!("sys/devices/system/cpu/cpu0/cpufreq/{file}")));
    khz.map(|khz| khz / 1000).or_else(|| {
        let text = tree.text("proc/cpuinfo")?;
        let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
        line.split_once(':')?.1.trim().split('.').next()?.parse().ok()
    })
}

/// Returns the size of the host's swap; 0 if the host does not tell.
pub fn swap_total(root: &Path) -> Bytes {
    meminfo(Tree(root), "proc/meminfo", "SwapTotal:").unwrap_or_default()
}

/// Returns the size of the host's memory; 0 if the host does not tell.
pub(crate) fn memory_total(root: &Path) -> Bytes {
    meminfo(Tree(root), "proc/meminfo", "MemTotal:").unwrap_or_default()
}

/// Returns the memory of a process that consists of huge pages; 0 if it is gone.
pub fn huge_memory(root: &Path, pid: u32) -> Bytes {
    meminfo(Tree(root), &format!("proc/{pid}/status"), "HugetlbPages:").unwrap_or_default()
}

/// Returns the memory in free huge pages of 2 MiB, by NUMA node.
pub fn free_huge_pages(root: &Path) -> BTreeMap<u32, Bytes> {
    const POOL: &str = "hugepages/hugepages-2048kB/free_hugepages";
    let tree = Tree(root);
    let bytes = |pages: u32| Bytes(u64::from(pages) << 21);
    let numbers = node_numbers(tree).unwrap_or_default();
    let on = |node: &u32| {
        let pages = tree.number(&format!("sys/devices/system/node/node{node}/{POOL}"))?;
        Some((*node, bytes(pages)))
    };
    let by_node: BTreeMap<u32, Bytes> = numbers.iter().filter_map(on).collect();
    if !by_node.is_empty() {
        return by_node;
    }
    // A host without nodes has one pool. A pool of several nodes cannot be assigned to one of them.
    let whole = tree.number(&format!("sys/kernel/mm/{POOL}")).filter(|_| numbers.len() < 2);
    whole.map(|pages| (0, bytes(pages))).into_iter().collect()
}

fn cpus(tree: Tree<'_>, nodes: &[u32]) -> Result<Vec<Cpu>, TopologyError> {
    let ids = list(tree, "sys/devices/system/cpu/online")?;
    let mut node_of = Vec::new();
    for &node in nodes {
        let cpus = list(tree, &format!("sys/devices/system/node/node{node}/cpulist"))?;
        node_of.extend(cpus.into_iter().map(|cpu| (cpu, node)));
    }
    Ok(ids
        .into_iter()
        .map(|id| {
            let package =
                tree.number(&format!("sys/devices/system/cpu/cpu{id}/topology/physical_package_id"));
            let core = tree.number(&format!("sys/devices/system/cpu/cpu{id}/topology/core_id"));
            let package = package.unwrap_or(0);
            let node = node_of.iter().find(|(cpu, _)| *cpu == id).map_or(0, |(_, node)| *node);
            Cpu {
                id,
                package,
                core: core.unwrap_or(id),
                node,
                llc: last_level_cache(tree, id).unwrap_or(package),
            }
        })
        .collect())
}

/// Returns the first of the CPUs that share this CPU's highest-level cache, as the cache's number.
fn last_level_cache(tree: Tree<'_>, cpu: u32) -> Option<u32> {
    let folder = |index: u32| format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
    let (_, index) = (0..)
        .map_while(|index| Some((tree.number::<u32>(&format!("{}/level", folder(index)))?, index)))
        .max_by_key(|(level, _)| *level)?;
    let shared = tree.text(&format!("{}/shared_cpu_list", folder(index)))?;
    list::parse(&shared).ok()?.first().copied()
}

fn node_numbers(tree: Tree<'_>) -> Result<Vec<u32>, TopologyError> {
    let path = "sys/devices/system/node/online";
    if tree.text(path).is_some() { list(tree, path) } else { Ok(Vec::new()) }
}

fn nodes(tree: Tree<'_>, numbers: &[u32], total: Bytes) -> Result<Vec<NumaNode>, TopologyError> {
    if numbers.is_empty() {
        return Ok(vec![NumaNode { id: 0, memory: total }]);
    }
    numbers
        .iter()
        .map(|&id| {
            let path = format!("sys/devices/system/node/node{id}/meminfo");
            Ok(NumaNode { id, memory: meminfo(tree, &path, "MemTotal:")? })
        })
        .collect()
}

fn os(tree: Tree<'_>) -> String {
    let release = tree.text("etc/os-release").or_else(|| tree.text("usr/lib/os-release"));
    let pretty = release.as_deref().and_then(|text| {
        let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
        Some(value.trim_matches(['"', '\'']).to_owned())
    });
    pretty.unwrap_or_else(|| "Linux".to_owned())
}

fn cpu_model(tree: Tree<'_>) -> String {
    let model = tree.text("proc/cpuinfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    model.unwrap_or_else(|| "unknown".to_owned())
}

/// Reads a file that every Linux has.
fn required(tree: Tree<'_>, path: &str) -> Result<String, TopologyError> {
    let path = tree.0.join(path);
    fs::read_to_string(&path).map_err(|source| TopologyError::Read { path, source })
}

/// Reads a file that holds a list of CPUs or nodes.
fn list(tree: Tree<'_>, path: &str) -> Result<Vec<u32>, TopologyError> {
    let text = required(tree, path)?;
    list::parse(&text).map_err(|BadList| bad(tree, path, &text))
}

/// Reads a value in KiB of `/proc/meminfo`, or of a node's `meminfo`, which puts "Node 0" before
/// it.
fn meminfo(tree: Tree<'_>, path: &str, key: &str) -> Result<Bytes, TopologyError> {
    let text = required(tree, path)?;
    let line = text.lines().find(|line| line.split_whitespace().any(|word| word == key));
    let value = line.and_then(|line| line.split_once(key)?.1.trim().strip_suffix("kB")?.trim().parse().ok());
    value
        .and_then(|kib: u64| kib.checked_mul(1024))
        .map(Bytes)
        .ok_or_else(|| bad(tree, path, line.unwrap_or(&text)))
}

fn bad(tree: Tree<'_>, path: &str, content: &str) -> TopologyError {
    let content = content.trim().chars().take(200).collect();
    TopologyError::Content { path: tree.0.join(path), content }
}

#[cfg(test)]
mod tests;
